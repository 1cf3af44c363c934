"""Takes results of a recipe's stages from a place elsewhere into the store.

A record is somebody's word that an identity made a content. Asked for is only what a run of
this tree would look up: the key is computed here, and a record has to hold that very identity.
Everything that arrives is untrusted: names come from hashes alone, sizes from the record, and
an object gets its name when its bytes have been hashed.
"""

import errno
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from instella.artifacts.compare import origin_of
from instella.artifacts.identity import Toolchain, identity, identity_key
from instella.artifacts.lineage import dependants, holders
from instella.artifacts.manifest import MAX_BYTES, Entry, Manifest, parse_manifest
from instella.artifacts.stamps import Stamps
from instella.artifacts.store import Store
from instella.artifacts.store_verify import Damage
from instella.canonical import sha256_bytes
from instella.data.sources.hub_progress import ByteProgress, size_text
from instella.errors import KitError, VerificationError
from instella.progress import Reporter
from instella.recipe.graph import Stage
from instella.recipe.imports import ancestors
from instella.remotes.fetch import Fetcher
from instella.remotes.names import code_name, object_name, record_name
from instella.remotes.patience import Crew, answer_of
from instella.remotes.remote import Remote, read_small

MAX_CODE_BYTES = 4 << 20
# EFBIG: a limit on the size of files, as batch systems set it.
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass
class Pulled:
    """What a pull came to.

    Attributes:
        here: stages whose result is in the store now, in the graph's order.
        absent: stages of which neither side has a result, or whose inputs have none.
        objects, size: number of objects fetched, and their bytes.
        damage: what the place has in a bad form; the stages named there are not recorded.
    """

    here: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    objects: int = 0
    size: int = 0
    damage: list[Damage] = field(default_factory=list)


def closure(graph: Mapping[str, Stage], names: Iterable[str]) -> dict[str, Stage]:
    """The stages named and all that they are made from, in the graph's order; all without names."""
    wanted = set(names) or set(graph)
    for name in tuple(wanted):
        wanted |= ancestors(graph, name)
    return {name: stage for name, stage in graph.items() if name in wanted}


class Pull:
    """One pull.

    Args:
        remote: where from.
        store: where to.
        graph: the recipe's graph.
        toolchain: of this tree.
        recorded: stage to content that the recipe's recorded root says; others are refused.
        report: takes lines.
    """

    def __init__(
        self,
        remote: Remote,
        store: Store,
        graph: Mapping[str, Stage],
        toolchain: Toolchain,
        recorded: Mapping[str, str],
        report: Reporter,
    ) -> None:
        self._remote = remote
        self._store = store
        self._graph = graph
        self._toolchain = toolchain
        self._recorded = recorded
        self._report = report
        self._manifests: dict[str, Manifest] = {}
        self._done = Pulled()

    def run(self, names: Iterable[str]) -> Pulled:
        """Take the stages named, and all that they are made from.

        Raises:
            KitError: the place cannot be read, or the disk is full.
        """
        try:
            with Crew(self._report.say) as crew:
                self._look_up(closure(self._graph, names), crew)
                bad = self._fetch(self._missing(), crew)
                for name, manifest in self._manifests.items():
                    if not bad.keys() & set(manifest.files.values()):
                        self._record(name, manifest, crew)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            raise KitError(
                f"{self._store.root}: the disk is full; what has arrived is kept: free some space "
                "and run it again"
            ) from None
        return self._done

    def _look_up(self, stages: Mapping[str, Stage], crew: Crew) -> None:
        """Manifests of the stages, from the store or else from the place."""
        for name, stage in stages.items():
            inputs = {role: self._manifests.get(source) for role, source in stage.inputs.items()}
            contents = {role: item.content for role, item in inputs.items() if item is not None}
            if len(contents) < len(inputs):
                self._done.absent.append(name)
                continue
            key = identity_key(identity(stage, self._toolchain, contents))
            with self._store.in_use():
                manifest = self._store.action(key)
            if manifest is None:
                where = f"{self._remote.shown}/{record_name(key)}"
                try:
                    ask = partial(read_small, self._remote, record_name(key), MAX_BYTES)
                    data = crew.patiently(where, ask)
                    manifest = self._parsed(name, stage, key, data, where)
                except VerificationError as error:
                    readers = dependants(self._graph, name)
                    self._done.damage.append(Damage(record_name(key), str(error), (name,), readers))
            if manifest is None:
                self._done.absent.append(name)
            else:
                self._manifests[name] = manifest

    def _parsed(
        self, name: str, stage: Stage, key: str, data: bytes | None, where: str
    ) -> Manifest | None:
        if data is None:
            return None
        manifest = parse_manifest(data, where)
        if identity_key(manifest.identity) != key:
            raise VerificationError(f"{where}: holds another identity than its name says")
        if manifest.origin != origin_of(stage):
            raise VerificationError(f"{where}: its origin is {manifest.origin}")
        expected = self._recorded.get(name, manifest.content)
        if manifest.content != expected:
            raise VerificationError(
                f"{where}: content {manifest.content}, recorded beside the recipe is {expected}"
            )
        return manifest

    def _missing(self) -> list[Entry]:
        """Objects of all manifests that are not here, or are bad."""
        entries = {e: None for item in self._manifests.values() for e in item.files.values()}
        files = {self._store.object_path(entry.sha256): entry for entry in entries}
        return [files[path] for path in Stamps(self._store).examine(files)]

    def _fetch(self, missing: list[Entry], crew: Crew) -> dict[Entry, str]:
        """Fetch objects; those that could not be had, with what was found."""
        self._check_room(missing)
        total = sum(entry.size for entry in missing)
        progress = ByteProgress(self._remote.shown, total, self._report.say)
        fetcher = Fetcher(self._remote, self._store, crew, progress)
        answers = answer_of(crew.start(fetcher.fetch, missing).values())
        bad = {
            entry: found for entry, found in zip(missing, answers, strict=True) if found is not None
        }
        progress.end()
        self._done.objects += len(missing) - len(bad)
        self._done.size += total - sum(entry.size for entry in bad)
        for entry, found in bad.items():
            owners = list(dict.fromkeys(owner.stage for owner in holders(self._manifests, entry)))
            readers = {name for owner in owners for name in dependants(self._graph, owner)}
            ordered = tuple(name for name in self._graph if name in readers - set(owners))
            self._done.damage.append(Damage(object_name(entry), found, tuple(owners), ordered))
        return bad

    def _check_room(self, missing: list[Entry]) -> None:
        self._store.root.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self._store.root).free
        needed = sum(entry.size for entry in missing)
        if needed > free:
            raise KitError(
                f"{self._store.root}: {size_text(needed)} are to come and {size_text(free)} are "
                "free; free some space, or name fewer stages"
            )

    def _record(self, name: str, manifest: Manifest, crew: Crew) -> None:
        """Record a result whose objects are here, as one step to a removal."""
        key = identity_key(manifest.identity)
        with self._store.in_use():
            # A removal may have taken what was here before: nobody does so now.
            paths = {self._store.object_path(e.sha256): e for e in manifest.files.values()}
            missing = [entry for path, entry in paths.items() if not path.is_file()]
            if self._fetch(missing, crew) or not self._ledgers_fit(name, manifest):
                return
            self._take_code(str(manifest.identity.get("code")), crew)
            if self._store.action(key) is None:
                self._store.record(key, manifest)
        self._done.here.append(name)

    def _ledgers_fit(self, name: str, manifest: Manifest) -> bool:
        """The record's Merkle roots are those of the lines; else it is noted as damage."""
        # imported here: the command line does not pay for the hash library
        from instella.merkle import file_root

        for path, expected in manifest.ledgers.items():
            found = file_root(self._store.object_path(manifest.files[path].sha256))
            if found != expected:
                text = f"Merkle root {expected} of {path}, whose lines give {found}"
                record = record_name(identity_key(manifest.identity))
                readers = dependants(self._graph, name)
                self._done.damage.append(Damage(record, text, (name,), readers))
                return False
        return True

    def _take_code(self, code: str, crew: Crew) -> None:
        """What the code hash is made of, if the place has it: only names in reports need it."""
        if not _is_hash(code) or self._store.code_modules(code) is not None:
            return
        where = f"{self._remote.shown}/{code_name(code)}"
        data = crew.patiently(
            where, lambda: read_small(self._remote, code_name(code), MAX_CODE_BYTES)
        )
        if data is not None and sha256_bytes(data) == code:
            path: Path = self._store.root / code_name(code)
            self._store.write(path, data)


def _is_hash(text: str) -> bool:
    return len(text) == 64 and set(text) <= set("0123456789abcdef")
