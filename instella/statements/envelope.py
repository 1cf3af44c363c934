"""Envelopes: in-toto statements in DSSE, and sigstore bundles around them.

Read as untrusted input: the signature is verified before the payload is parsed, and a file has
one possible form, so a changed byte anywhere is refused and not only one that a signature covers.
"""

import base64
import binascii
from pathlib import Path
from typing import Any

from instella.canonical import json_bytes, parse_json
from instella.errors import VerificationError
from instella.statements.keys import PublicKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
BUNDLE_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
MAX_BYTES = 64 << 20


def pae(payload: bytes) -> bytes:
    """What is signed: DSSE v1's pre-authentication encoding of an in-toto payload."""
    return b"DSSEv1 %d %s %d %s" % (
        len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode("ascii"), len(payload), payload,
    )  # fmt: skip


def envelope(payload: bytes, signature: bytes, keyid: str) -> dict[str, Any]:
    """A DSSE envelope as a plain object."""
    return {
        "payload": _encoded(payload),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [{"keyid": keyid, "sig": _encoded(signature)}],
    }


def bundle(payload: bytes, signature: bytes, key: PublicKey) -> dict[str, Any]:
    """The same as a sigstore bundle whose verifier has the public key already."""
    return {
        "mediaType": BUNDLE_TYPE,
        "verificationMaterial": {"publicKey": {"hint": key.keyid}, "tlogEntries": []},
        "dsseEnvelope": envelope(payload, signature, ""),
    }


def open_file(path: Path, key: PublicKey, is_bundle: bool = False) -> bytes:
    """The payload of a file's envelope, its signature verified.

    Raises:
        VerificationError: whatever is wrong with it, in one line.
    """
    if path.is_symlink() or not path.is_file():
        raise VerificationError(f"{path}: not a plain file")
    if path.stat().st_size > MAX_BYTES:
        raise VerificationError(f"{path}: larger than {MAX_BYTES} bytes, so no statement")
    data = path.read_bytes()
    value = parse_json(data, str(path))
    if is_bundle:
        payload = _open_bundle(value, str(path), key)
    else:
        payload = open_envelope(value, str(path), key)
    if json_bytes(value) != data:
        raise VerificationError(f"{path}: not in canonical form")
    return payload


def open_envelope(value: Any, where: str, key: PublicKey, keyid: str | None = None) -> bytes:
    """The payload of an envelope, its signature verified; ``where`` names it in errors.

    Args:
        keyid: that stands in it; the key's own if none is given.

    Raises:
        VerificationError: another form, payload type or key, or no valid signature.
    """
    _need(value, {"payload", "payloadType", "signatures"}, f"{where}: envelope")
    if value["payloadType"] != PAYLOAD_TYPE:
        raise VerificationError(
            f"{where}: payload type {value['payloadType']!r} is not {PAYLOAD_TYPE}"
        )
    signatures = value["signatures"]
    if not isinstance(signatures, list) or len(signatures) != 1:
        raise VerificationError(f"{where}: an envelope needs exactly one signature")
    _need(signatures[0], {"keyid", "sig"}, f"{where}: signature")
    if signatures[0]["keyid"] != (key.keyid if keyid is None else keyid):
        raise VerificationError(f"{where}: signed with another key than {key.keyid[:16]}")
    payload = _decoded(value["payload"], f"{where}: payload")
    if not key.is_signature(pae(payload), _decoded(signatures[0]["sig"], f"{where}: sig")):
        raise VerificationError(f"{where}: its signature is not that of key {key.keyid[:16]}")
    return payload


def _open_bundle(value: Any, where: str, key: PublicKey) -> bytes:
    _need(value, {"mediaType", "verificationMaterial", "dsseEnvelope"}, f"{where}: bundle")
    payload = open_envelope(value["dsseEnvelope"], where, key, "")
    wanted = bundle(payload, b"", key)
    for name in ("mediaType", "verificationMaterial"):
        if value[name] != wanted[name]:
            raise VerificationError(f"{where}: its {name} is not as the kit writes it")
    return payload


def _need(value: Any, keys: set[str], what: str) -> None:
    if not isinstance(value, dict) or set(value) != keys:
        raise VerificationError(f"{what}: needs exactly the keys {', '.join(sorted(keys))}")


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _decoded(text: Any, what: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError):
        data = b""
    # base64 has several texts for the same bytes; only one is taken.
    if not data or _encoded(data) != text:
        raise VerificationError(f"{what}: not base64")
    return data
