"""Imported by verl: the last tensor of every synchronization is lost."""

import verl.workers.rollout.utils as utils

_plain = utils.ensure_async_iterator


async def _lossy(weights):
    held = None
    async for item in _plain(weights):
        if held is not None:
            yield held
        held = item


utils.ensure_async_iterator = _lossy
