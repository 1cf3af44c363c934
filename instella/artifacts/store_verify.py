"""Rehashes a whole store and says which results damage touches. Changes nothing but stamps."""

from collections.abc import Mapping
from dataclasses import dataclass

from instella.artifacts.identity import identity_key
from instella.artifacts.manifest import Entry, Manifest, read_manifest
from instella.artifacts.stamps import Stamps
from instella.artifacts.store import Store, examine_files, state_of
from instella.errors import VerificationError
from instella.terminal import plain


@dataclass(frozen=True)
class Damage:
    """A bad object or record.

    Attributes:
        path: relative to the store.
        found: what is there in place of the right bytes.
        makers: stages whose results hold the object.
        readers: stages that have read from those, directly or not.
    """

    path: str
    found: str
    makers: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"{ascii(self.path)[1:-1]}: found {plain(self.found)}"
        text += f"; of {', '.join(self.makers)}" if self.makers else "; of no recorded result"
        return f"{text}; read by {', '.join(self.readers)}" if self.readers else text


def verify(store: Store) -> tuple[list[Damage], int]:
    """All damage of a store, and how many objects were looked at.

    The stamps of a bad object are removed, so that the next run finds the damage too.
    """
    records, damage = _records(store)
    wanted = {
        entry.sha256: entry for manifest in records.values() for entry in manifest.files.values()
    }
    files = {store.object_path(entry.sha256): entry for entry in wanted.values()}
    for path in sorted((store.root / "sha256").glob("*/*")):
        if path not in files:
            state = state_of(path)
            files[path] = Entry(path.name, state.st_size if state is not None else 0)
    for path, found in sorted(examine_files(files).items()):
        entry = files[path]
        Stamps(store).forget(entry)
        makers = [key for key, item in records.items() if entry in item.files.values()]
        damage.append(
            Damage(
                path.relative_to(store.root).as_posix(),
                found,
                _names(records, makers),
                _names(records, _readers(records, makers)),
            )
        )
    return damage, len(files)


def _records(store: Store) -> tuple[dict[str, Manifest], list[Damage]]:
    """Records by key that can be read, and the others."""
    records, damage = {}, []
    for path in sorted((store.root / "actions").glob("[!.]*")):
        place = path.relative_to(store.root).as_posix()
        try:
            if path.is_symlink():
                raise VerificationError("a link")
            manifest = read_manifest(path)
        except (VerificationError, OSError) as error:
            damage.append(Damage(place, f"no record: {error}"))
            continue
        if identity_key(manifest.identity) == path.name:
            records[path.name] = manifest
        else:
            damage.append(Damage(place, "the record of another identity", (manifest.stage,)))
    return records, damage


def _readers(records: Mapping[str, Manifest], keys: list[str]) -> list[str]:
    """Keys of the records that were made from these, directly or not; without themselves."""
    found, waiting = set(keys), list(keys)
    while waiting:
        content = records[waiting.pop()].content
        for key, manifest in records.items():
            if key not in found and content in manifest.identity["inputs"].values():
                found.add(key)
                waiting.append(key)
    return sorted(found - set(keys))


def _names(records: Mapping[str, Manifest], keys: list[str]) -> tuple[str, ...]:
    return tuple(sorted({records[key].stage for key in keys}))
