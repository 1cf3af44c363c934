"""What a stage function gets to see: nothing else may reach its output."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from instella.progress import Reporter
from instella.recipe.settings import RECIPES_CHECKPOINTS, UNSHARDED, Checkpoints, Sharding


@dataclass(frozen=True)
class Job:
    """One execution of a stage.

    Attributes:
        stage: name in the graph.
        settings: the stage's settings, frozen dataclasses and plain values by name.
        inputs: role to a folder with the verified, read-only files of that artifact.
        output: empty folder; every file in it at the end becomes the artifact.
        scratch: folder of this identity that survives a kill; resumable state only.
        downloads: folder where fetched archives may be kept (sources only).
        recipe_folder: folder of the recipe file, for sources of kind ``file``.
        numerics: numerics class.
        ranks: processes of a training stage; never changes the bytes.
        report: progress lines.
        workers: processes of a tokens stage; never changes the bytes.
        sharding: how the ranks hold the network; never changes the bytes.
        checkpoints: when a training stage saves, and how many of them stay.
        units: (I, N): only share I of N of a tokens stage's units is wanted, in scratch.
    """

    stage: str
    settings: Mapping[str, Any]
    inputs: Mapping[str, Path]
    output: Path
    scratch: Path
    downloads: Path
    recipe_folder: Path
    numerics: str
    ranks: int
    report: Reporter
    workers: int = 1
    units: tuple[int, int] | None = None
    sharding: Sharding = UNSHARDED
    checkpoints: Checkpoints = RECIPES_CHECKPOINTS
