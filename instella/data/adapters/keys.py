"""Keys of documents that come from rows: what a row holds, not where it stands.

A key is the row's own identity, where the data set has one, and a hash of the content. An
identity alone is not enough: several data sets count it anew in each file. So two rows
have one key only if they are the same document, published twice.
"""

from typing import Any

from instella.canonical import json_bytes, sha256_bytes

HEX_DIGITS = 32
HEX_DIGITS_WITH_IDENTITY = 16


def content_key(*content: Any, identity: str | None = None) -> str:
    """``HASH`` (32 hex digits), or ``IDENTITY/HASH`` (16 hex digits).

    Args:
        content: texts, numbers and lists of them that make the document.
        identity: the row's own.
    """
    digest = sha256_bytes(json_bytes(content))
    if identity is None:
        return digest[:HEX_DIGITS]
    return f"{identity}/{digest[:HEX_DIGITS_WITH_IDENTITY]}"
