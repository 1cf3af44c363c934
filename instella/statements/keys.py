"""Keys that sign: ECDSA on P-256 with SHA-256, which the public verifiers of all our formats take.

Signatures are deterministic (RFC 6979). Of the two values s that are valid for a signature the
smaller one stands, in the one DER form, so nobody without the key can turn a signature
into another one that is valid too.
"""

import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from instella.canonical import sha256_bytes
from instella.errors import BadUse, KitError

MAX_KEY_BYTES = 1 << 16
PRIVATE_MODE = 0o600
PUBLIC_SUFFIX = ".pub"
# Order of the group of P-256 (SEC 2, version 2, 2.4.2).
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_URI = re.compile(r"[a-z][a-z0-9+.-]+:")


@dataclass(frozen=True)
class PublicKey:
    """What signatures are verified with.

    Attributes:
        key: the point.
        pem: its SubjectPublicKeyInfo as PEM.
    """

    key: ec.EllipticCurvePublicKey
    pem: bytes

    @property
    def keyid(self) -> str:
        """SHA-256 of the PEM, 64 hex digits: a hint in an envelope, which nothing trusts."""
        return sha256_bytes(self.pem)

    def is_signature(self, message: bytes, signature: bytes) -> bool:
        """Whether ``signature`` is this key's for ``message``, in the one form we write."""
        with suppress(ValueError, InvalidSignature):
            if lowered(signature) == signature:
                self.key.verify(signature, message, ec.ECDSA(hashes.SHA256()))
                return True
        return False


@dataclass(frozen=True)
class Signer:
    """Makes signatures.

    Attributes:
        public: the key that verifies them.
        sign: messages to signatures, in their order.
        secret: the private key in PEM, so that it can be looked for in what is published;
            nothing for a key that nobody sees.
    """

    public: PublicKey
    sign: Callable[[Sequence[bytes]], list[bytes]]
    secret: bytes = field(default=b"", repr=False)


def lowered(signature: bytes) -> bytes:
    """A signature in DER with the smaller s; ValueError if it is none."""
    r, s = decode_dss_signature(signature)
    return encode_dss_signature(r, min(s, _ORDER - s))


def make_key(path: Path) -> PublicKey:
    """Write a new private key to ``path``, readable by its owner alone, and PATH.pub beside it.

    Raises:
        BadUse: one of the files exists, or the folder cannot be written.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    public = _public(key.public_key())
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    target = path.with_name(path.name + PUBLIC_SUFFIX)
    for file, data, mode in ((path, secret, PRIVATE_MODE), (target, public.pem, 0o644)):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            with os.fdopen(os.open(file, flags, mode), "wb") as opened:
                opened.write(data)
        except OSError as error:
            raise BadUse(f"{file}: cannot be made ({error.strerror}); name a new file") from None
    return public


def read_public(path: Path) -> PublicKey:
    """The public key in a PEM file.

    Raises:
        BadUse: it holds no public key of P-256.
    """
    data = _read(path)
    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise BadUse(f"{path}: no public key in PEM; `instella statement key` makes one") from None
    return _public(_on_curve(key, str(path)))


def local_signer(data: bytes, where: str) -> Signer:
    """A signer with a private key in PEM; ``where`` names it in errors.

    Raises:
        BadUse: no unencrypted private key of P-256.
    """
    try:
        key = load_pem_private_key(data, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise BadUse(f"{where}: no unencrypted private key in PEM") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BadUse(f"{where}: {_WANTED}")
    public = _public(_on_curve(key.public_key(), where))
    algorithm = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)

    def sign(messages: Sequence[bytes]) -> list[bytes]:
        return [lowered(key.sign(message, algorithm)) for message in messages]

    return Signer(public, sign, data)


def signer_of(
    uri: str, public: PublicKey | None, environment: Mapping[str, str], forbidden: Sequence[Path]
) -> Signer:
    """The signer that a URI names.

    Args:
        uri: path of a PEM file, ``file:PATH``, ``env:VARIABLE`` (PEM in a variable), or a URI
            that securesystemslib knows (``awskms:``, ``hsm:``, ...).
        public: its public key; needed for the last kind only.
        environment: variables.
        forbidden: folders that are published, where no private key may lie.

    Raises:
        BadUse: there is no such key, it is of another kind, or it lies where it must not.
    """
    scheme, _, rest = uri.partition(":") if _URI.match(uri) else ("file", "", uri)
    if scheme == "env":
        if rest not in environment:
            raise BadUse(f"{uri}: no such variable; set it to the private key in PEM")
        return local_signer(environment[rest].encode("utf-8"), uri)
    if scheme == "file":
        path = Path(rest)
        refuse_inside(path, forbidden)
        data = _read(path)
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise BadUse(f"{path}: others may read this private key: chmod 600 {path}")
        return local_signer(data, str(path))
    if public is None:
        raise BadUse(f"{uri}: give its public key too (--public FILE)")
    # imported here: only this path starts another Python
    from instella.statements.remote import remote_signer

    return remote_signer(uri, public)


def refuse_inside(path: Path, forbidden: Sequence[Path]) -> None:
    """Refuse a private key inside a folder that is published.

    Raises:
        BadUse: it lies there, or would.
    """
    for folder in forbidden:
        if path.resolve().is_relative_to(folder.resolve()):
            raise BadUse(f"{path}: a private key must not lie in {folder}; move it elsewhere")


def _public(key: ec.EllipticCurvePublicKey) -> PublicKey:
    return PublicKey(key, key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def _on_curve(key: object, where: str) -> ec.EllipticCurvePublicKey:
    if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1):
        return key
    raise BadUse(f"{where}: {_WANTED}")


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_KEY_BYTES + 1)
    except OSError as error:
        raise BadUse(f"{path}: cannot be read ({error.strerror}); name a key file") from None
    if len(data) > MAX_KEY_BYTES:
        raise KitError(f"{path}: larger than {MAX_KEY_BYTES} bytes, so no key")
    return data


_WANTED = (
    "not a key of ECDSA on P-256, which all verifiers take; `instella statement key` makes one"
)
