"""Loss of a unigram model on the held-out texts: what stage 1 must be better than.

Add-one smoothed counts of the packed training tokens of stage 1; the tokens predicted
are those that the text measure predicts.
"""

from decimal import Decimal
from functools import cache

import numpy as np

from instella.artifacts.job import Job
from instella.data.tokenizer import load
from instella.evaluation.records import read_items, write_scores
from instella.evaluation.texts import text_ids


def run(job: Job) -> None:
    """Write the records of each text set and ``scores.json``.

    Raises:
        VerificationError: a set without an item.
    """
    encoder = load(job.inputs["tokenizer"])
    tokens = np.load(job.inputs["tokens"] / "tokens.npy", mmap_mode="r", allow_pickle=False)
    counts = np.bincount(tokens, minlength=encoder.vocab_size) + 1
    total = int(counts.sum())
    measured = {}
    for name, settings in job.settings["sets"].items():
        records = []
        for item in read_items(job.inputs["heldout"], name):
            predicted = text_ids(encoder, item["text"], settings.sequence_length)[1:]
            loss = sum(_log(total) - _log(int(counts[token])) for token in predicted)
            figures = {"loss": [loss, float(len(predicted))]}
            records.append({"key": item["key"], "cluster": item["key"], "figures": figures})
        measured[name] = records
    write_scores(job.output, measured, job.settings["bootstrap"], job.settings["seed"])


@cache
def _log(count: int) -> float:
    """Natural logarithm rounded once; the C library's last bit depends on its version."""
    return float(Decimal(count).ln())
