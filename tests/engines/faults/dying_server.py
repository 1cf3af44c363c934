"""Imported by verl: a rollout server ends without a word after some answers."""

import os

import verl.workers.rollout.replica as replicas

ANSWERS = 5
_plain = replicas.TokenOutput
_made = 0


def _dying(**fields):
    global _made
    _made += 1
    if _made > ANSWERS:
        os._exit(7)
    return _plain(**fields)


replicas.TokenOutput = _dying
