"""Where a run happens, and what its stages find there."""

from dataclasses import dataclass
from pathlib import Path

from instella.artifacts.manifest import NAME, Manifest, read_manifest
from instella.artifacts.store import Store
from instella.errors import Incomplete, VerificationError
from instella.recipe.graph import Stage
from instella.recipe.settings import RECIPES_CHECKPOINTS, UNSHARDED, Checkpoints, Sharding


@dataclass(frozen=True)
class Workspace:
    """Where a run happens; never part of an identity.

    Attributes:
        results: folder of this recipe's results, ``results/<recipe name>``.
        store: the store.
        downloads: folder for fetched archives.
        recipe_folder: folder of the recipe file.
        ranks: processes of a training stage.
        workers: processes of a tokens stage.
        sharding: how the ranks of a training stage hold its network.
        checkpoints: when a training stage saves, and how many of them stay.
    """

    results: Path
    store: Store
    downloads: Path
    recipe_folder: Path
    ranks: int = 1
    workers: int = 1
    sharding: Sharding = UNSHARDED
    checkpoints: Checkpoints = RECIPES_CHECKPOINTS

    def manifest(self, stage: str) -> Path:
        """Path of a stage's manifest, whether it exists or not."""
        return self.results / stage / NAME


def input_manifests(stage: Stage, workspace: Workspace) -> dict[str, Manifest]:
    """Role to manifest of each input.

    Raises:
        Incomplete: an input has not run.
        VerificationError: a manifest is damaged; it is removed, to be made again.
    """
    found = {}
    for role, name in stage.inputs.items():
        path = workspace.manifest(name)
        if not path.is_file():
            raise Incomplete(f"{stage.name}: needs {name}, which has no result yet; run it first")
        try:
            manifest = read_manifest(path)
            if manifest.stage != name:
                raise VerificationError(f"{path}: stage: expected {name}, found {manifest.stage}")
        except VerificationError as error:
            path.unlink()
            raise VerificationError(
                f"{error}; removed, so that rerunning {name} makes it again"
            ) from None
        found[role] = manifest
    return found
