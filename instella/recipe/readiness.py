"""What a whole run would miss, told before anything is fetched or computed."""

from pathlib import Path

from instella.errors import BadUse
from instella.recipe.graph import build_graph
from instella.recipe.settings import Recipe

# By which a machine is known to have a GPU of the class's maker; the stage looks closer.
DEVICES = {"gfx942": Path("/dev/kfd"), "sm90": Path("/dev/nvidiactl")}
MAX_NAMED = 3


def require_ready(recipe: Recipe, recipe_file: Path, launcher: str) -> None:
    """Every source is pinned, and stages that run on this machine find the GPUs they need.

    Args:
        recipe, recipe_file: what is to run.
        launcher: of the placement; unless ``local`` other machines have the GPUs.

    Raises:
        BadUse: all that is missing, in one line.
    """
    missing = [*_unpinned(recipe, recipe_file.parent), *_without_device(recipe, launcher)]
    if missing:
        raise BadUse(
            f"{recipe_file}: this recipe can be read, checked, planned and dry-run (-n) but not "
            f"run: {'; '.join(missing)}"
        )


def absent_files(recipe: Recipe, recipe_file: Path) -> list[str]:
    """One line for each ``file`` source of the graph whose file is not there."""
    graph = build_graph(recipe)
    return [
        f"source {name}: {file} is not there; put the file in its place"
        for name, source in recipe.sources.items()
        if source.kind == "file"
        and f"source_{name}" in graph
        # a source without a path has its own line when it is fetched
        and source.path
        and not (file := recipe_file.parent / source.path).is_file()
    ]


def _unpinned(recipe: Recipe, folder: Path) -> list[str]:
    graph = build_graph(recipe)
    names = [
        name
        for name, source in recipe.sources.items()
        if source.kind == "hub"
        and f"source_{name}" in graph
        and (source.revision is None or source.lock is None or not (folder / source.lock).is_file())
    ]
    if not names:
        return []
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return [
        f"{len(names)} hub sources have no revision or no lock file "
        f"({', '.join(names[:MAX_NAMED])}{more}; `instella data lock NAME` makes one)"
    ]


def _without_device(recipe: Recipe, launcher: str) -> list[str]:
    device = DEVICES.get(recipe.numerics)
    if device is None or launcher != "local" or device.exists():
        return []
    return [
        f"numerics class {recipe.numerics} needs a GPU and there is no {device} here (on a cluster "
        "the profile's launcher starts stages where the GPUs are)"
    ]
