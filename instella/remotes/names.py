"""Names of a store's files, relative to the store."""

from instella.artifacts.manifest import Entry


def object_name(entry: Entry) -> str:
    """Of the bytes."""
    return f"sha256/{entry.sha256[:2]}/{entry.sha256}"


def record_name(key: str) -> str:
    """Of the record under an identity key."""
    return f"actions/{key}"


def code_name(code: str) -> str:
    """Of what a code hash was made of."""
    return f"code/{code}"
