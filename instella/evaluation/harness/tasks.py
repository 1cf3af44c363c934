"""Tasks of the harness over held-out items that lie on the disk; nothing is fetched."""

from collections.abc import Sequence
from typing import Any

import datasets
from lm_eval.api.task import ConfigurableTask

from instella.data.tokenizer import END_OF_TEXT
from instella.evaluation.harness.rows import Row

_BOXED = r"\\boxed\{([^{}]*)\}"


def task_of(name: str, kind: str, rows: Sequence[Row], max_new_tokens: int) -> ConfigurableTask:
    """The task of one held-out set, without examples.

    Args:
        name: of the set.
        kind: of the set.
        rows: as ``rows.rows_of`` makes them.
        max_new_tokens: longest answer, for problems.
    """
    found = datasets.Dataset.from_list(list(rows))
    config = {
        "task": name,
        "custom_dataset": lambda **_: {"test": found},
        "test_split": "test",
        "num_fewshot": 0,
        "target_delimiter": "",
        **_CONFIGS[kind],
    }
    if kind == "problem":
        config["generation_kwargs"] = {
            "until": [END_OF_TEXT], "max_gen_toks": max_new_tokens, "do_sample": False,
        }  # fmt: skip
    return ConfigurableTask(config=config)


def _metrics(aggregation: str, *names: str, higher: bool = True) -> list[dict[str, Any]]:
    return [
        {"metric": name, "aggregation": aggregation, "higher_is_better": higher} for name in names
    ]


_CHOICE = {
    "output_type": "multiple_choice",
    "doc_to_text": "context",
    "doc_to_choice": "choices",
    "doc_to_target": "gold",
    "metric_list": _metrics("mean", "acc", "acc_norm"),
}
_CONFIGS: dict[str, dict[str, Any]] = {
    "text": {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "text",
        "metric_list": _metrics("bits_per_byte", "bits_per_byte", higher=False),
    },
    "answer": {
        "output_type": "loglikelihood",
        "doc_to_text": "context",
        "doc_to_target": "target",
        "metric_list": [
            *_metrics("perplexity", "perplexity", higher=False),
            *_metrics("mean", "acc"),
        ],
    },
    "preference": _CHOICE,
    # As the cloze form of the stages: a blank between label and choice.
    "choice": {**_CHOICE, "target_delimiter": " "},
    "problem": {
        "output_type": "generate_until",
        "doc_to_text": "context",
        "doc_to_target": "answer",
        "metric_list": _metrics("mean", "exact_match"),
        "filter_list": [
            {
                "name": "last box",
                "filter": [
                    {"function": "regex", "regex_pattern": _BOXED, "group_select": -1},
                    {"function": "take_first"},
                ],
            }
        ],
    },
}
"""A task's own part of the harness's configuration, by kind of held-out set."""
