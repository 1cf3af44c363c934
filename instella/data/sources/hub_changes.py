"""What changed between two locks of one repository, as lines for a person."""

from collections.abc import Iterator, Mapping

from instella.data.sources.hub_lock import Lock, LockedFile
from instella.data.sources.hub_progress import size_text

MAX_NAMED = 20


def changes(old: Lock | None, new: Lock) -> list[str]:
    """Lines that say what is new; none when nothing is.

    Rows are compared where both locks know them for every file.
    """
    if old is None:
        return [_whole(new)]
    lines = [
        f"{name}: {before} -> {after}"
        for name, before, after in (
            ("repository", old.repository, new.repository),
            ("type", old.repository_type, new.repository_type),
            ("commit", old.commit, new.commit),
            ("patterns", " ".join(old.patterns), " ".join(new.patterns)),
            ("licence", old.licence, new.licence),
            ("gated", _gate(old), _gate(new)),
            ("page", old.page, new.page),
        )
        if before != after
    ]
    lines += _rows(row_count(old), row_count(new))
    lines += _schema(columns_of(old), columns_of(new))
    lines += _files(old.files, new.files)
    return lines


def row_count(lock: Lock) -> int | None:
    """Rows of all files that hold rows; None when one of the data files has none known."""
    data = [file for path, file in lock.files.items() if _holds_rows(path, file)]
    rows = [file.rows for file in data if file.rows is not None]
    return sum(rows) if data and len(rows) == len(data) else None


def columns_of(lock: Lock) -> dict[str, frozenset[str]]:
    """Column to the types it has in the lock's files."""
    found: dict[str, frozenset[str]] = {}
    for columns in lock.schemas.values():
        for name, kind in columns.items():
            found[name] = found.get(name, frozenset()) | {kind}
    return found


def _holds_rows(path: str, file: LockedFile) -> bool:
    return file.rows is not None or path.endswith((".parquet", ".jsonl", ".gz", ".zst"))


def _whole(lock: Lock) -> str:
    rows = row_count(lock)
    size = size_text(sum(file.size for file in lock.files.values()))
    counted = f"{rows:,} rows" if rows is not None else "rows unknown"
    return (
        f"new: commit {lock.commit}, {len(lock.files)} files, {size}, {counted}, licence "
        f"{lock.licence}, gated {_gate(lock)}"
    )


def _gate(lock: Lock) -> str:
    return lock.gated if lock.gated == "no" else f"{lock.gated} (terms at {lock.page})"


def _rows(old: int | None, new: int | None) -> Iterator[str]:
    if old == new:
        return
    if old is None or new is None:
        yield f"rows: {_count(old)} -> {_count(new)}"
    else:
        yield f"rows: {old:,} -> {new:,} ({new - old:+,})"


def _count(rows: int | None) -> str:
    return "unknown" if rows is None else f"{rows:,}"


def _schema(old: Mapping[str, frozenset[str]], new: Mapping[str, frozenset[str]]) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        column = name if name.isprintable() else repr(name)
        if before is None or after is None:
            what = "added, " if before is None else "removed, was "
            yield f"column {column}: {what}{_kinds(after or before or frozenset())}"
        else:
            yield f"column {column}: {_kinds(before)} -> {_kinds(after)}"


def _kinds(kinds: frozenset[str]) -> str:
    text = " or ".join(sorted(kinds))
    return text if text.isprintable() else repr(text)


def _files(old: Mapping[str, LockedFile], new: Mapping[str, LockedFile]) -> Iterator[str]:
    added = sorted(new.keys() - old.keys())
    removed = sorted(old.keys() - new.keys())
    changed = sorted(p for p in old.keys() & new.keys() if old[p].sha256 != new[p].sha256)
    if added or removed or changed:
        yield f"files: {len(added)} added, {len(removed)} removed, {len(changed)} changed"
    yield from _named([f"  + {_shown(path)} ({_file(new[path])})" for path in added])
    yield from _named([f"  - {_shown(path)} ({_file(old[path])})" for path in removed])
    yield from _named(
        [f"  ~ {_shown(path)} ({_file(old[path])} -> {_file(new[path])})" for path in changed]
    )
    learned = [
        p for p in old.keys() & new.keys()
        if old[p].sha256 == new[p].sha256 and old[p] != new[p]
    ]  # fmt: skip
    if learned:
        yield f"facts about the same bytes: {len(learned)} files"


def _named(lines: list[str]) -> list[str]:
    if len(lines) <= MAX_NAMED:
        return lines
    return [*lines[:MAX_NAMED], f"  and {len(lines) - MAX_NAMED} more"]


def _file(file: LockedFile) -> str:
    size = size_text(file.size)
    return size if file.rows is None else f"{size}, {file.rows:,} rows"


def _shown(path: str) -> str:
    return path if path.isprintable() else repr(path)
