"""Sends results of a run's stages to a place elsewhere; a record goes last."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from instella.artifacts.identity import identity_key
from instella.artifacts.lineage import dependants, holders, sound_manifests
from instella.artifacts.manifest import MAX_BYTES, Entry, Manifest, parse_manifest
from instella.artifacts.stamps import Stamps
from instella.artifacts.store import Store
from instella.artifacts.store_verify import Damage
from instella.canonical import json_bytes
from instella.errors import Incomplete, KitError, VerificationError
from instella.progress import Reporter
from instella.recipe.graph import Stage
from instella.remotes.fetch import hash_of
from instella.remotes.names import code_name, object_name, record_name
from instella.remotes.patience import Crew, answer_of
from instella.remotes.pull import closure
from instella.remotes.remote import Remote, read_small


@dataclass(frozen=True)
class Pushed:
    """What a push came to: stages whose result is there now, objects sent and their bytes."""

    stages: int
    objects: int
    size: int


class Push:
    """One push.

    Args:
        remote: where to.
        store: where from.
        graph: the recipe's graph.
        results: folder of the recipe's results, whose manifests say what is sent.
        report: takes lines.
        read_back: read and hash each object there before its record is written; else only
            its size is asked for.
    """

    def __init__(
        self,
        remote: Remote,
        store: Store,
        graph: Mapping[str, Stage],
        results: Path,
        report: Reporter,
        read_back: bool = False,
    ) -> None:
        self._remote = remote
        self._store = store
        self._graph = graph
        self._results = results
        self._report = report
        self._read_back = read_back
        self._sent: dict[Entry, None] = {}

    def run(self, names: Iterable[str]) -> Pushed:
        """Send the stages named, and all that they are made from.

        Raises:
            Incomplete: a stage has no result, or results do not fit each other.
            VerificationError: an object here is bad, or the place records another content for
                the same identity; nothing is sent then.
            KitError: the place cannot be written.
        """
        manifests = self._manifests(closure(self._graph, names))
        self._check_objects(manifests)
        with Crew(self._report.say) as crew:
            known = {name: self._known(name, item, crew) for name, item in manifests.items()}
            for name, manifest in manifests.items():
                self._send(name, manifest, known[name], crew)
        return Pushed(len(manifests), len(self._sent), sum(entry.size for entry in self._sent))

    def _manifests(self, stages: Mapping[str, Stage]) -> dict[str, Manifest]:
        found = sound_manifests(self._results, self._graph)
        missing = [name for name in stages if name not in found]
        if missing:
            raise Incomplete(
                f"{self._results}: no result of {', '.join(missing[:4])}"
                f"{' and others' * (len(missing) > 4)}; run the recipe to its end"
            )
        for name, stage in stages.items():
            contents = {role: found[source].content for role, source in stage.inputs.items()}
            if dict(found[name].identity["inputs"]) != contents:
                raise Incomplete(
                    f"{self._results}: {name} was not made from the inputs that stand there; run "
                    "the recipe to its end"
                )
        return {name: found[name] for name in stages}

    def _check_objects(self, manifests: Mapping[str, Manifest]) -> None:
        entries = {entry for manifest in manifests.values() for entry in manifest.files.values()}
        files = {self._store.object_path(entry.sha256): entry for entry in entries}
        for path, found in sorted(Stamps(self._store).examine(files).items()):
            owners = tuple(dict.fromkeys(o.stage for o in holders(manifests, files[path])))
            readers = tuple(
                other for other in self._graph if other in dependants(self._graph, owners[0])
            )
            damage = Damage(object_name(files[path]), found, owners, readers)
            raise VerificationError(
                f"{self._store.root}: {damage}; nothing was sent: ./kit run makes it again"
            )

    def _known(self, name: str, manifest: Manifest, crew: Crew) -> bool:
        """Whether the place has this record; VerificationError if it has another content."""
        key = identity_key(manifest.identity)
        where = f"{self._remote.shown}/{record_name(key)}"
        data = crew.patiently(where, lambda: read_small(self._remote, record_name(key), MAX_BYTES))
        if data is None:
            return False
        try:
            other = parse_manifest(data, where)
        except VerificationError as error:
            self._report.say(f"{error}; replacing it")
            return False
        if other.identity == manifest.identity and other.content != manifest.content:
            raise VerificationError(
                f"{where}: {name}: content {other.content} there, {manifest.content} here, of the "
                "same identity; nothing was sent: instella audit --sample tells which is right"
            )
        return other.to_bytes() == manifest.to_bytes()

    def _send(self, name: str, manifest: Manifest, is_known: bool, crew: Crew) -> None:
        """Objects, then what the code hash is made of, then the record."""
        entries = list(dict.fromkeys(manifest.files.values()))
        key = identity_key(manifest.identity)
        # Small, and no harm alone: a place that takes nothing says so before much is sent.
        self._send_code(str(manifest.identity.get("code")), crew)
        wrong = self._wrong(entries, crew)
        self._put_all(wrong, crew)
        with self._remote.guarded():
            # What a removal took meanwhile, or arrived as other bytes: nobody removes now.
            left = self._wrong(entries if not self._read_back else wrong, crew)
            self._put_all(left, crew)
            left = self._wrong(left, crew)
            if left:
                raise KitError(
                    f"{self._remote.shown}/{object_name(left[0])}: has other bytes than were sent, "
                    f"twice; {name} is not recorded there"
                )
            self._send_code(str(manifest.identity.get("code")), crew)
            if not is_known:
                self._put_bytes(record_name(key), manifest.to_bytes(), crew)
        self._report.say(f"{name}: {len(wrong)} of {len(entries)} objects sent")

    def _wrong(self, entries: list[Entry], crew: Crew) -> list[Entry]:
        """Those that the place lacks, or has with another size (or hash, where it is read)."""

        def is_right(entry: Entry) -> bool:
            where = f"{self._remote.shown}/{object_name(entry)}"
            if self._read_back:
                return crew.patiently(where, lambda: hash_of(self._remote, entry)) == entry.sha256
            return (
                crew.patiently(where, lambda: self._remote.size(object_name(entry))) == entry.size
            )

        jobs = crew.start(is_right, entries)
        answers = answer_of(jobs.values())
        return [entry for entry, right in zip(jobs, answers, strict=True) if not right]

    def _put_all(self, entries: list[Entry], crew: Crew) -> None:
        answer_of(crew.start(lambda entry: self._put(entry, crew), entries).values())

    def _put(self, entry: Entry, crew: Crew) -> None:
        where = f"{self._remote.shown}/{object_name(entry)}"
        file = self._store.object_path(entry.sha256)
        crew.patiently(where, lambda: self._remote.put(object_name(entry), file, entry))
        self._sent[entry] = None

    def _put_bytes(self, name: str, data: bytes, crew: Crew) -> None:
        where = f"{self._remote.shown}/{name}"
        crew.patiently(where, lambda: self._remote.put_bytes(name, data))

    def _send_code(self, code: str, crew: Crew) -> None:
        modules = self._store.code_modules(code)
        where = f"{self._remote.shown}/{code_name(code)}"
        if modules is None or crew.patiently(where, lambda: self._remote.size(code_name(code))):
            return
        self._put_bytes(code_name(code), json_bytes(modules), crew)
