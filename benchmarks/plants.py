"""Faults for a finished run: what somebody who tampers would do to files, links and records.

Each plant alters something, tells which names of stage and file an audit has to give, and can
be taken back.
"""

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from instella.artifacts.check import Fault
from instella.artifacts.identity import Toolchain, identity_key
from instella.artifacts.journal import FOLDER as JOURNAL
from instella.artifacts.manifest import NAME, Entry, Manifest, read_manifest
from instella.artifacts.store import Store
from instella.audit.verify import verify
from instella.canonical import json_bytes, sha256_bytes
from instella.merkle import tree_root
from instella.recipe.graph import Stage

ANY = "any file"


@dataclass(frozen=True)
class Target:
    """A finished run.

    Attributes:
        results, store: its folders.
        graph: of its recipe.
        toolchain: what made it.
        project: folder whose lock may be replaced; a copy.
    """

    results: Path
    store: Store
    graph: Mapping[str, Stage]
    toolchain: Callable[[], Toolchain]
    project: Path

    def manifest(self, stage: str) -> Manifest:
        """The manifest of a stage."""
        return read_manifest(self.results / stage / NAME)

    def audit(self) -> list[Fault]:
        """All faults of the run as it is."""
        tools = self.toolchain()
        return verify(self.results, self.store, self.graph, tools, project=self.project).faults


@dataclass(frozen=True)
class Planted:
    """A fault that was put in: what was done, and which of stage and file count as its name.

    Attributes:
        text: for a person.
        names: pairs of stage and file; an audit that names one of them has found it.
    """

    text: str
    names: frozenset[tuple[str, str]]

    def is_named(self, faults: list[Fault]) -> bool:
        """Whether the audit found it."""
        return any(
            (fault.stage, fault.file) in self.names or (fault.stage, ANY) in self.names
            for fault in faults
        )


class Undo:
    """Keeps what files, links and folders were, and puts them back."""

    def __init__(self) -> None:
        self._steps: list[Callable[[], None]] = []

    def keep(self, path: Path) -> None:
        """Remember a path before it is altered; hard links to it keep the other bytes."""
        if not os.path.lexists(path):
            self._steps.append(lambda: _remove(path))
            return
        saved = path.with_name(f".kept-{os.urandom(6).hex()}")
        path.rename(saved)
        if saved.is_symlink() or not saved.is_dir():
            shutil.copy2(saved, path, follow_symlinks=False)
        else:
            shutil.copytree(saved, path, symlinks=True)

        def restore() -> None:
            _remove(path)
            saved.rename(path)

        self._steps.append(restore)

    def all(self) -> None:
        """Put everything back, last first."""
        while self._steps:
            self._steps.pop()()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


Plant = Callable[[Target, random.Random, Undo], Planted]


def _choose(target: Target, chance: random.Random) -> tuple[str, str, Entry]:
    """A stage that is there, one of its files that is not empty, and its entry."""
    stage = chance.choice(sorted(target.graph))
    files = target.manifest(stage).files
    path = chance.choice(sorted(path for path, entry in files.items() if entry.size))
    return stage, path, files[path]


def _owners(target: Target, entry: Entry) -> frozenset[tuple[str, str]]:
    """Every stage and file with these bytes: damage of an object is theirs alike."""
    return frozenset(
        (stage, path)
        for stage in target.graph
        for path, other in target.manifest(stage).files.items()
        if other == entry
    )


def _both(target: Target, stage: str, path: str, entry: Entry, undo: Undo) -> list[Path]:
    """The object and the view of a file, each kept and apart from the other."""
    places = [target.store.object_path(entry.sha256), target.results / stage / path]
    for place in places:
        undo.keep(place)
        place.chmod(0o644)
    return places


def _write(path: Path, data: bytes) -> None:
    """Other bytes under old times and rights."""
    before = path.stat()
    path.write_bytes(data)
    path.chmod(0o444)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def flip_bit(target: Target, chance: random.Random, undo: Undo) -> Planted:
    """One bit of an object, of a view or of both."""
    stage, path, entry = _choose(target, chance)
    places = _both(target, stage, path, entry, undo)
    which = chance.choice((places[:1], places[1:], places))
    bit = chance.randrange(8 * entry.size)
    for place in which:
        data = bytearray(place.read_bytes())
        data[bit // 8] ^= 1 << bit % 8
        _write(place, bytes(data))
    return Planted(f"bit {bit} of {stage}/{path}", _owners(target, entry))


def truncate(target: Target, chance: random.Random, undo: Undo) -> Planted:
    """A file cut, or made longer."""
    stage, path, entry = _choose(target, chance)
    places = _both(target, stage, path, entry, undo)
    which = chance.choice((places[:1], places[1:], places))
    size = chance.choice((0, chance.randrange(entry.size), entry.size + chance.randint(1, 9)))
    for place in which:
        _write(place, place.read_bytes()[:size].ljust(size, b"\0"))
    return Planted(f"{stage}/{path} cut to {size}", _owners(target, entry))


def swap_files(target: Target, chance: random.Random, undo: Undo) -> Planted:
    """Two files of the run exchanged, as views or as objects."""
    one = _choose(target, chance)
    other = _choose(target, chance)
    while other[2] == one[2]:
        other = _choose(target, chance)
    side = chance.randrange(2)
    places = [_both(target, *item, undo)[side] for item in (one, other)]
    data = [place.read_bytes() for place in places]
    _write(places[0], data[1])
    _write(places[1], data[0])
    return Planted(
        f"{one[0]}/{one[1]} with {other[0]}/{other[1]}",
        _owners(target, one[2]) | _owners(target, other[2]),
    )


def new_bytes(target: Target, chance: random.Random, undo: Undo) -> Planted:
    """An old manifest with new bytes, which the store holds under their own name too."""
    stage, path, entry = _choose(target, chance)
    places = _both(target, stage, path, entry, undo)
    data = chance.randbytes(entry.size)
    fresh = target.store.object_path(sha256_bytes(data))
    undo.keep(fresh)
    fresh.parent.mkdir(exist_ok=True)
    fresh.write_bytes(data)
    for place in places[1:] if chance.random() < 0.5 else places:
        _write(place, data)
    return Planted(f"new bytes for {stage}/{path}", _owners(target, entry))


def forge_manifest(target: Target, chance: random.Random, undo: Undo) -> Planted:
    """A manifest rewritten: another file, hash, setting, input or origin; content fits it."""
    stage = chance.choice(sorted(target.graph))
    path = target.results / stage / NAME
    undo.keep(path)
    value = json.loads(path.read_bytes())
    what = chance.choice(("sha256", "size", "drop", "rename", "setting", "lock", "code", "input"))
    names = {(stage, NAME)}
    file = chance.choice(sorted(value["files"]))
    if what in ("drop", "rename") and (file.endswith(".ledger.jsonl") or len(value["files"]) == 1):
        what = "sha256"
    if what == "sha256":
        digest = chance.choice(
            [e.sha256 for s in target.graph for e in target.manifest(s).files.values()]
        )
        if digest == value["files"][file]["sha256"]:
            digest = "0" * 64
        value["files"][file]["sha256"] = digest
        names |= {(stage, file)}
    elif what == "size":
        value["files"][file]["size"] += 1
        names |= {(stage, file)}
    elif what == "drop":
        del value["files"][file]
        names |= {(stage, file)}
    elif what == "rename":
        value["files"][f"{file}.other"] = value["files"].pop(file)
        names |= {(stage, file), (stage, f"{file}.other")}
    elif what == "setting":
        value["identity"]["settings"]["planted"] = chance.randrange(100)
        names |= {(stage, "settings.planted")}
    elif what == "input" and value["identity"]["inputs"]:
        role = chance.choice(sorted(value["identity"]["inputs"]))
        value["identity"]["inputs"][role] = sha256_bytes(chance.randbytes(8))
        names |= {(stage, f"input {role}")}
    else:
        field = "lock" if what == "lock" else "code"
        value["identity"][field] = sha256_bytes(chance.randbytes(8))
        names |= {(stage, field)}
    value["content"] = sha256_bytes(json_bytes({k: value[k] for k in ("files", "origin")}))
    path.write_bytes(json_bytes(value))
    return Planted(f"manifest of {stage}: {what}", frozenset(names))


def garble_manifest(target: Target, chance: random.Random, undo: Undo) -> Planted:
    """A manifest that is none: cut, nested, with a key twice, NaN, or one bit altered."""
    stage = chance.choice(sorted(target.graph))
    path = target.results / stage / NAME
    undo.keep(path)
    data = path.read_bytes()
    flipped = bytearray(data)
    flipped[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    choices = {
        "cut": data[: chance.randrange(len(data))],
        "deep": b"[" * 300_000,
        "key twice": b'{"content":"",' + data[1:],
        "NaN": data.replace(b'"size":', b'"size":NaN,"was":', 1),
        "bit": bytes(flipped),
        "path": data.replace(b'"files":{"', b'"files":{"../', 1),
        "empty": b"",
        "blank": data + b" ",
    }
    what = chance.choice(sorted(choices))
    path.write_bytes(choices[what])
    # one bit of a hash is another hash: then the file is named, or the field of the identity
    names = {(stage, NAME)} if what != "bit" else {(stage, ANY)}
    return Planted(f"manifest of {stage} garbled: {what}", frozenset(names))


def replace_lock(target: Target, chance: random.Random, undo: Undo) -> Planted:
    """A line of the lock file altered, dropped or added."""
    path = target.project / "requirements" / "run.lock"
    undo.keep(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    numbers = [
        n for n, line in enumerate(lines) if line.strip() and not line.strip().startswith("#")
    ]
    number = chance.choice(numbers)
    what = chance.choice(("altered", "dropped", "added"))
    if what == "altered":
        place = chance.randrange(len(lines[number].rstrip(" \\")))
        other = "x" if lines[number][place] != "x" else "y"
        lines[number] = lines[number][:place] + other + lines[number][place + 1 :]
    elif what == "dropped":
        del lines[number]
    else:
        lines.insert(number, f"planted=={number}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Planted(f"lock: line {number + 1} {what}", frozenset((s, "lock") for s in target.graph))


def remove_stage(target: Target, chance: random.Random, undo: Undo) -> Planted:
    """A stage's folder or manifest taken away, or its result replaced by another stage's."""
    stage = chance.choice(sorted(target.graph))
    folder = target.results / stage
    what = chance.choice(("folder", "manifest", "exchanged"))
    undo.keep(folder)
    if what == "folder":
        shutil.rmtree(folder)
    elif what == "manifest":
        (folder / NAME).unlink()
    else:
        other = chance.choice([name for name in sorted(target.graph) if name != stage])
        (folder / NAME).write_bytes((target.results / other / NAME).read_bytes())
    return Planted(f"{what} of {stage}", frozenset({(stage, NAME)}))


def remove_step(target: Target, chance: random.Random, undo: Undo) -> Planted:
    """A step taken out of a step ledger, with bytes and manifest made to fit, but not all."""
    stages = [name for name in sorted(target.graph) if target.manifest(name).ledgers]
    stage = chance.choice(stages)
    path = sorted(target.manifest(stage).ledgers)[0]
    lines = (target.results / stage / path).read_bytes().splitlines(keepends=True)
    del lines[chance.randrange(len(lines))]
    undo.keep(target.results / stage / path)
    undo.keep(target.results / stage / NAME)
    data = b"".join(lines)
    undo.keep(target.store.object_path(sha256_bytes(data)))
    old_root = chance.random() < 0.5
    rewrite_file(target.results, stage, path, data, target.store, keep_root=old_root)
    return Planted(f"step of {stage}", frozenset({(stage, NAME), (stage, path)}))


def edit_journal(target: Target, chance: random.Random, undo: Undo) -> Planted:
    """What a journal says of identity or content, or all of it."""
    stage = chance.choice(sorted(target.graph))
    path = target.results / JOURNAL / f"{stage}.jsonl"
    undo.keep(path)
    lines = path.read_bytes().splitlines(keepends=True)
    what = chance.choice(("removed", "content", "identity", "garbled", "added"))
    key = identity_key(target.manifest(stage).identity)
    if what == "removed":
        path.unlink()
    elif what == "garbled":
        path.write_bytes(b"".join(lines) + b'{"content":NaN}\n')
    elif what == "added":
        value = json.loads(lines[-1])
        value |= {"content": sha256_bytes(chance.randbytes(8)), "identity": key}
        path.write_bytes(b"".join(lines) + json_bytes(value))
    else:
        rows = [json.loads(line) for line in lines]
        for row in rows:
            row[what] = sha256_bytes(chance.randbytes(8))
        path.write_bytes(b"".join(map(json_bytes, rows)))
    return Planted(f"journal of {stage}: {what}", frozenset({(stage, f"{JOURNAL}/{stage}.jsonl")}))


def link_out(target: Target, chance: random.Random, undo: Undo) -> Planted:
    """An object, a view, a manifest or a folder replaced by a link to somewhere else."""
    stage, path, entry = _choose(target, chance)
    stored = target.store.object_path(entry.sha256)
    view = target.results / stage / path
    choices = {
        "object": stored,
        "view": view,
        "manifest": target.results / stage / NAME,
        "stage": target.results / stage,
        "folder of objects": stored.parent,
    }
    what = chance.choice(sorted(choices))
    place = choices[what]
    undo.keep(place)
    away = target.project / f"away-{os.urandom(6).hex()}"
    undo.keep(away)
    place.rename(away)
    place.symlink_to(away)
    names = set(_owners(target, entry)) if what == "object" else {(stage, path), (stage, NAME)}
    if what == "stage":
        names = {(stage, stage)}
    elif what == "folder of objects":
        file = f"sha256/{entry.sha256[:2]}"
        names = {(name, file) for name in target.graph}
    return Planted(f"{what} of {stage}/{path} is a link", frozenset(names))


def add_file(target: Target, chance: random.Random, undo: Undo) -> Planted:
    """A file or folder that no manifest names."""
    stage = chance.choice(sorted(target.graph))
    name = chance.choice(("extra.txt", "model.safetensors.bak", "a\nclean: 46 stages", "deep/x"))
    path = target.results / stage / name
    undo.keep(target.results / stage / name.split("/")[0])
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(chance.randbytes(9))
    return Planted(f"{name!r} added to {stage}", frozenset({(stage, name)}))


def damage_record(target: Target, chance: random.Random, undo: Undo) -> Planted:
    """The store's record of a result: a bit, another record, or a link."""
    stage = chance.choice(sorted(target.graph))
    key = identity_key(target.manifest(stage).identity)
    path = target.store.root / "actions" / key
    undo.keep(path)
    what = chance.choice(("bit", "another", "link"))
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.chmod(0o644)
    if what == "bit":
        path.write_bytes(bytes(data))
    elif what == "another":
        other = chance.choice([name for name in sorted(target.graph) if name != stage])
        path.write_bytes((target.results / other / NAME).read_bytes())
    else:
        path.unlink()
        path.symlink_to(target.results / stage / NAME)
    return Planted(
        f"record of {stage}: {what}", frozenset({(stage, f"actions/{key}"), (stage, NAME)})
    )


PLANTS: dict[str, Plant] = {
    "bit flipped": flip_bit,
    "truncated": truncate,
    "files swapped": swap_files,
    "old manifest, new bytes": new_bytes,
    "manifest forged": forge_manifest,
    "manifest garbled": garble_manifest,
    "lock replaced": replace_lock,
    "stage removed": remove_stage,
    "step removed": remove_step,
    "journal edited": edit_journal,
    "link out of the run": link_out,
    "file added": add_file,
    "record damaged": damage_record,
}


def rewrite_file(
    results: Path,
    stage: str,
    path: str,
    data: bytes,
    store: Store | None = None,
    keep_root: bool = False,
) -> None:
    """Give a file of an artifact other bytes, with a manifest whose content fits them."""
    manifest = read_manifest(results / stage / NAME)
    entry = Entry(sha256_bytes(data), len(data))
    ledgers = dict(manifest.ledgers)
    if path in ledgers and not keep_root:
        ledgers[path] = tree_root(data.splitlines(keepends=True)).hex()
    files = {**manifest.files, path: entry}
    forged = Manifest(
        manifest.stage, manifest.kind, manifest.origin, manifest.identity, files, ledgers
    )
    view = results / stage / path
    view.unlink()
    view.write_bytes(data)
    if store is not None:
        target = store.object_path(entry.sha256)
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(data)
    (results / stage / NAME).write_bytes(forged.to_bytes())


@contextmanager
def planted(target: Target, kind: str, chance: random.Random) -> Iterator[Planted]:
    """A fault for as long as the block runs."""
    undo = Undo()
    try:
        yield PLANTS[kind](target, chance, undo)
    finally:
        undo.all()
