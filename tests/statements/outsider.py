"""Checks a proof as docs/statements.md tells, without the kit: KEY.pub PROOF FILE.

Needs the libraries cryptography and blake3. Prints the proved line, if there is one, and the
root; ends with a traceback when anything does not fit.
"""

import base64
import hashlib
import json
import sys
from pathlib import Path

from blake3 import blake3
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key


def root(leaf: bytes, index: int, size: int, siblings: list[str]) -> str:
    """Root of the tree of ``size`` leaves in which the leaf has this place (RFC 9162, 2.1.3.2)."""
    found, last = blake3(b"\0" + leaf).digest(), size - 1
    for sibling in map(bytes.fromhex, siblings):
        pair = (sibling, found) if index % 2 or index == last else (found, sibling)
        while index == last and index and index % 2 == 0:
            index, last = index // 2, last // 2
        found = blake3(b"\1" + b"".join(pair)).digest()
        index, last = index // 2, last // 2
    return found.hex() if last == 0 else "none"


def main(key: Path, proof: Path, file: Path) -> None:
    """Verify the signature, then the way from file and line to the signed root."""
    value = json.loads(proof.read_bytes())
    signed = value["statement"]
    payload, kind = base64.b64decode(signed["payload"]), signed["payloadType"].encode()
    message = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
    public = load_pem_public_key(key.read_bytes())
    assert isinstance(public, ec.EllipticCurvePublicKey)
    public.verify(base64.b64decode(signed["signatures"][0]["sig"]), message, ec.ECDSA(SHA256()))
    stated, leaf, line = json.loads(payload)["predicate"], value["file"], value["line"]
    text = json.dumps(leaf, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n"
    place = value["path"]
    found = root(text.encode(), place["index"], stated["files"]["count"], place["siblings"])
    assert found == stated["files"]["root"], "the file is not of the run"
    assert hashlib.sha256(file.read_bytes()).hexdigest() == leaf["sha256"], "another file"
    if line is not None:
        lines = leaf["lines"]
        found = root(line["text"].encode(), line["index"], lines["count"], line["siblings"])
        assert found == lines["root"], "the line is not of the file"
        print(line["text"], end="")
    print(stated["root"])


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
