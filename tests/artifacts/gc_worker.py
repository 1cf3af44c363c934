"""Runs the toy graph again and again in a store that others use and remove from.

    python -m tests.artifacts.gc_worker FOLDER NUMBER

Prints in its last line what the last round made.
"""

import shutil
import sys
from pathlib import Path

from instella.artifacts.store import Store
from instella.artifacts.workspace import Workspace

from .toy import Cut, Project, make_graph

ROUNDS = 8


def main(folder: Path, number: int) -> None:
    """Each round has another setting than the one before; some begin without results."""
    project = Project(folder / f"tree{number}")
    project.store = Store(folder / "store")
    project.results = folder / f"results{number}" / "toy"
    project.workspace = Workspace(project.results, project.store, folder / "downloads", folder)
    for turn in range(ROUNDS):
        # The same few settings in every process, so that they share results and bytes.
        project.graph = make_graph(cut=Cut(length=3 + (turn + number) % 4))
        if turn % 3 == number:
            shutil.rmtree(project.results, ignore_errors=True)
        project.run_all()
    project.graph = make_graph()
    print({name: manifest.content for name, manifest in project.run_all().items()})


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
