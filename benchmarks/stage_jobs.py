"""Jobs of training stages, as ``instella stage`` makes them, on tokens made for a measurement.

Import it after the numerics class has set its variables: it loads torch.
"""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from instella.artifacts.job import Job
from instella.network.folder import TOKENIZER_FILES
from instella.progress import Reporter


def job_of(
    stage: str, settings: Mapping[str, Any], inputs: Mapping[str, Path], folder: Path,
    numerics: str, ranks: int = 1,
) -> Job:  # fmt: skip
    """A job that writes below ``folder`` and says nothing."""
    for name in ("output", "scratch"):
        (folder / name).mkdir()
    return Job(
        stage=stage,
        settings=dict(settings),
        inputs=dict(inputs),
        output=folder / "output",
        scratch=folder / "scratch",
        downloads=folder,
        recipe_folder=folder,
        numerics=numerics,
        ranks=ranks,
        report=Reporter(stage, stream=io.StringIO()),
    )


def pretrain_inputs(folder: Path, tokens: np.ndarray) -> dict[str, Path]:
    """Inputs of a pretraining stage: tokens, uint16 [N], and the files of a tokenizer."""
    inputs = {name: folder / name for name in ("tokens", "tokenizer")}
    for path in inputs.values():
        path.mkdir()
    np.save(inputs["tokens"] / "tokens.npy", tokens)
    for name in TOKENIZER_FILES:
        (inputs["tokenizer"] / name).write_text("{}\n", encoding="utf-8")
    return inputs
