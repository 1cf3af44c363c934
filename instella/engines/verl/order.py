"""verl's replay buffer with its rows in the order of the data, and none missing.

verl orders a step's rows by the moment each response was done and names them at random, and it
fills up rows whose reward or rollout failed with padding. Here rows stand as the training file
has them, a prompt's samples beside each other, and a missing one ends the run.
"""

from typing import Any

import transfer_queue as tq
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

TRAIN = "train"


class OrderedReplayBuffer(ReplayBuffer):
    """Takes ``sampler_kwargs.samples``, the responses of a prompt."""

    def _materialize_batch(
        self, partition_id: str, selected_prompt_uids: list[str], partition_snapshot: dict[str, Any]
    ) -> Any:
        batch = super()._materialize_batch(partition_id, selected_prompt_uids, partition_snapshot)
        if partition_id == TRAIN:
            wanted = len(selected_prompt_uids) * self.sampler_kwargs["samples"]
            if len(batch.keys) != wanted:
                raise RuntimeError(
                    f"a step has {len(batch.keys)} of {wanted} responses: a reward or a rollout "
                    "failed; the workers' logs above have the reason"
                )
        rows = tq.kv_batch_get(
            keys=batch.keys, partition_id=partition_id, select_fields=["index", "responses"]
        )
        responses = [response.tolist() for response in rows["responses"].unbind()]
        indices = [int(index) for index in rows["index"]]
        places = list(zip(indices, responses, batch.keys, strict=True))
        order = sorted(range(len(places)), key=places.__getitem__)
        batch.keys[:] = [batch.keys[number] for number in order]
        batch.tags[:] = [batch.tags[number] for number in order]
        return batch
