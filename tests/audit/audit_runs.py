"""Small runs of three real stages each: tokens, tokenizer and a training stage on them.

    python audit_runs.py FOLDER NUMERICS NAME=VALUE...

makes one in a process of its own, with other pins than the class has.
"""

import io
import os
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from instella import numerics
from instella.artifacts.identity import Toolchain
from instella.artifacts.job import Job
from instella.artifacts.runner import run_stage
from instella.artifacts.store import Store
from instella.artifacts.workspace import Workspace
from instella.progress import Reporter
from instella.recipe.graph import Stage
from instella.recipe.settings import Model, Optimizer, Pretrain, PretrainData, Schedule, Training

LENGTH = 32
SHAPE = Model(
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=1,
    num_attention_heads=2,
    vocab_size=64,
    max_position_embeddings=LENGTH,
)
TRAINING = Training(
    global_batch=4,
    micro_batch=2,
    optimizer=Optimizer(learning_rate=0.01),
    schedule=Schedule("constant"),
    seed=11,
    epochs=1,
    max_steps=8,
    ledger_every=3,
)
PRETRAIN = Pretrain(PretrainData(LENGTH, ()), TRAINING, init_seed=3)
WINDOWS = 64
# A gradient of weights is a sum over the rows of a micro-batch. From about 1000 on MKL shares
# them among threads, and their terms add in another order.
LONG = replace(PRETRAIN, training=replace(TRAINING, global_batch=32, micro_batch=32))


def graph_of(
    pretrain: Pretrain = PRETRAIN, model: Model = SHAPE, marker: str = "x"
) -> dict[str, Stage]:
    """tokens, tokenizer -> train; ``marker`` is a setting of the tokens that changes nothing."""
    return {
        "tokens": Stage("tokens", "tokens_text", {"marker": marker}, {}),
        "tokenizer": Stage("tokenizer", "tokenizer", {}, {}),
        "train": Stage(
            "train",
            "pretrain",
            {"model": model, "pretrain": pretrain},
            {"tokens": "tokens", "tokenizer": "tokenizer"},
        ),
    }


def write_tokens(folder: Path, vocabulary: int, flipped: int | None = None) -> None:
    """Random tokens; one bit of the token with number ``flipped`` is another."""
    import numpy as np

    from instella.canonical import write_npy

    tokens = (
        np.random.default_rng(0).integers(2, vocabulary - 2, WINDOWS * LENGTH).astype(np.uint16)
    )
    if flipped is not None:
        tokens[flipped] ^= 1
    write_npy(folder / "tokens.npy", tokens)


def write_tokenizer(folder: Path) -> None:
    """A tokenizer of single words."""
    from tokenizers import AddedToken, Tokenizer, models

    from instella.data.tokenizer import END_OF_TEXT, PADDING, write_folder

    words = {END_OF_TEXT: 0, PADDING: 1, "a": 2}
    backend = Tokenizer(models.WordLevel(words, END_OF_TEXT))
    backend.add_special_tokens([AddedToken(word, special=True) for word in list(words)[:2]])
    write_folder(folder, backend.to_str().encode(), 0, 1, "")


def make_run(
    folder: Path,
    graph: dict[str, Stage] | None = None,
    numerics_class: str = "portable-x86",
    flipped: int | None = None,
    dies_after: int | None = None,
) -> Path:
    """Run all stages of a graph; returns the results folder, with a store beside it.

    With ``dies_after`` training is broken off after that step first, and then goes on.
    """
    from instella.stages import pretrain

    graph = graph or graph_of()
    vocabulary = graph["train"].settings["model"].vocab_size
    functions: dict[str, Any] = {
        "tokens": lambda job: write_tokens(job.output, vocabulary, flipped),
        "tokenizer": lambda job: write_tokenizer(job.output),
        "train": pretrain.run,
    }
    space = Workspace(folder / "results" / "toy", Store(folder / "store"), folder, folder)
    tools = Toolchain.here(numerics_class)

    def quiet(name: str, job: Job) -> None:
        functions[name](replace(job, report=Reporter(name, stream=io.StringIO())))

    def dying(job: Job) -> None:
        pretrain.run(replace(job, report=_Dying(dies_after or 0)))

    for name, stage in graph.items():
        if name == "train" and dies_after is not None:
            with suppress(_Died):
                run_stage(stage, graph, space, tools, dying, Reporter(name, stream=io.StringIO()))
        report = Reporter(name, stream=io.StringIO())
        run_stage(stage, graph, space, tools, lambda job, name=name: quiet(name, job), report)
    return space.results


class _Died(Exception):
    """Stands for the end of the process."""


class _Dying(Reporter):
    """Breaks off after a step."""

    def __init__(self, after: int) -> None:
        super().__init__("train", stream=io.StringIO())
        self._after = after

    def step(self, step: int, total: int, tokens: int = 0, **figures: float) -> None:
        """Break off once the step is done."""
        if step == self._after:
            raise _Died


def main(folder: Path, numerics_class: str, *variables: str) -> None:
    """Make a run of long sums with these variables, which its identity tells."""
    pins = dict(variable.split("=") for variable in variables)
    numerics.apply_environment(numerics_class)
    numerics._PINS[numerics_class] = {**numerics.pins(numerics_class), **pins}
    os.environ.update(pins)
    make_run(folder, graph_of(LONG), numerics_class)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
