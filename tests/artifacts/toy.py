"""A small graph with stage functions of a few lines, and a project tree for its code."""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from instella.artifacts.code import CodeIndex
from instella.artifacts.identity import Toolchain, lock_hash
from instella.artifacts.job import Job
from instella.artifacts.manifest import Manifest
from instella.artifacts.runner import run_stage
from instella.artifacts.store import Store
from instella.artifacts.workspace import Workspace
from instella.recipe.graph import Stage


@dataclass(frozen=True)
class Cut:
    """Settings of the toy stages."""

    length: int
    start: int = 0


def make_tree(folder: Path) -> Path:
    """A project tree with a toy package; returns the package folder."""
    package = folder / "instella"
    files = {
        "__init__.py": '"""Toy."""\n',
        "stages/__init__.py": "",
        "stages/toy.py": "from instella.helper import FACTOR\n\ndef run(job):\n    return FACTOR\n",
        "helper.py": '"""Doc."""\nFACTOR = 2  # comment\n',
        "unused.py": "VALUE = 1\n",
    }
    for name, text in files.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    lock = folder / "requirements" / "run.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text("# made by hand\nnumpy==1.0 \\\n    --hash=sha256:00\n\n")
    return package


def make_graph(
    text: str = "the quick brown fox", cut: Cut | None = None, label: str = "x"
) -> dict[str, Stage]:
    """source -> words -> total, and source -> side."""
    cut = cut or Cut(length=9)
    return {
        "source": Stage("source", "toy", {"text": text, "label": label}, {}),
        "words": Stage("words", "toy", {"cut": cut}, {"text": "source"}),
        "side": Stage("side", "toy", {"cut": Cut(1)}, {"text": "source"}),
        "total": Stage("total", "toy", {}, {"words": "words", "side": "side"}),
    }


def source(job: Job) -> None:
    """Two files."""
    (job.output / "text.txt").write_text(job.settings["text"])
    (job.output / "deep").mkdir()
    (job.output / "deep" / "licence.txt").write_text("toy\n")


def words(job: Job) -> None:
    """The cut text, and the licence file handed on unchanged."""
    text = (job.inputs["text"] / "text.txt").read_text()
    cut = job.settings["cut"]
    (job.output / "words.txt").write_text(text[cut.start : cut.start + cut.length])
    (job.output / "licence.txt").write_bytes(
        (job.inputs["text"] / "deep" / "licence.txt").read_bytes()
    )


def total(job: Job) -> None:
    """Sizes of the inputs."""
    sizes = [len((job.inputs[role] / "words.txt").read_text()) for role in sorted(job.inputs)]
    (job.output / "total.txt").write_text(repr(sizes))


FUNCTIONS: dict[str, Callable[[Job], None]] = {
    "source": source,
    "words": words,
    "side": words,
    "total": total,
}


class Project:
    """A workspace under ``folder`` with counters of what was computed."""

    def __init__(self, folder: Path, graph: dict[str, Stage] | None = None) -> None:
        self.folder = folder
        self.package = folder / "instella"
        if not self.package.exists():
            make_tree(folder)
        self.graph = graph or make_graph()
        self.store = Store(folder / "store")
        self.results = folder / "results" / "toy"
        self.workspace = Workspace(self.results, self.store, folder / "downloads", folder)
        self.computed: list[str] = []

    def toolchain(self) -> Toolchain:
        """Code and lock of the toy tree as they are now."""
        lock = lock_hash(self.folder / "requirements" / "run.lock")
        return Toolchain(CodeIndex(self.package), lock, "native-cpu")

    def run(self, name: str, function: Callable[[Job], None] | None = None) -> Manifest:
        """Run one stage."""

        def counted(job: Job) -> None:
            self.computed.append(name)
            (function or FUNCTIONS[name])(job)

        return run_stage(self.graph[name], self.graph, self.workspace, self.toolchain(), counted)

    def run_all(self) -> dict[str, Manifest]:
        """Run every stage in order."""
        return {name: self.run(name) for name in self.graph}

    def manifest_bytes(self) -> dict[str, bytes]:
        """Manifest file of every stage that has one."""
        paths = {name: self.workspace.manifest(name) for name in self.graph}
        return {name: path.read_bytes() for name, path in paths.items() if path.is_file()}


def in_child(action: Callable[[], object]) -> int:
    """Run ``action`` in a forked child; exit status, negative for a signal."""
    child = os.fork()
    if child == 0:
        try:
            action()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die_at(call: int) -> None:
    """Patch this process so that its ``call``-th change of the file system is SIGKILL."""
    counter = 0

    def wrapped(function: Callable[..., object]) -> Callable[..., object]:
        def patched(*arguments: object, **options: object) -> object:
            nonlocal counter
            counter += 1
            if counter == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return patched

    for name in ("replace", "rename", "link", "fsync", "chmod", "unlink", "mkdir", "rmdir"):
        setattr(os, name, wrapped(getattr(os, name)))
