"""Keys: who may read them, what they sign, and what is refused."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from instella.errors import BadUse
from instella.statements import keys
from instella.statements.keys import Signer, local_signer, make_key, read_public, signer_of


def test_a_new_key_is_its_owners_alone(tmp_path: Path) -> None:
    public = make_key(tmp_path / "key")
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert read_public(tmp_path / "key.pub").keyid == public.keyid
    with pytest.raises(BadUse, match=r"key: cannot be made \(File exists\)"):
        make_key(tmp_path / "key")
    (tmp_path / "key").chmod(0o640)
    with pytest.raises(BadUse, match="others may read this private key: chmod 600"):
        signer_of(str(tmp_path / "key"), None, {}, [])


def test_signatures_are_deterministic_and_have_one_form(signer: Signer) -> None:
    for number in range(20):
        message = str(number).encode()
        (one,), (other,) = signer.sign([message]), signer.sign([message])
        assert one == other and signer.public.is_signature(message, one)
        r, s = decode_dss_signature(one)
        high = encode_dss_signature(r, keys._ORDER - s)
        # the library takes both
        signer.public.key.verify(high, message, ec.ECDSA(keys.hashes.SHA256()))
        assert not signer.public.is_signature(message, high)
        assert not signer.public.is_signature(message + b" ", one)
        assert not signer.public.is_signature(message, one + b"\0")


def test_other_kinds_of_keys_are_refused(tmp_path: Path) -> None:
    wrong = [ed25519.Ed25519PrivateKey.generate(), ec.generate_private_key(ec.SECP384R1())]
    for key in wrong:
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        with pytest.raises(BadUse, match=r"a\.pem: not a key of ECDSA on P-256"):
            local_signer(text, "a.pem")
    (tmp_path / "a").write_bytes(b"\0" * 20)
    with pytest.raises(BadUse, match="no public key in PEM"):
        read_public(tmp_path / "a")
    with pytest.raises(BadUse, match="no unencrypted private key"):
        local_signer(b"", "a.pem")


def test_where_a_key_may_come_from(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    make_key(tmp_path / "key")
    make_key(tmp_path / "results" / "key")
    text = (tmp_path / "key").read_text()
    for uri in (str(tmp_path / "key"), f"file:{tmp_path / 'key'}", "env:SIGNING_KEY"):
        assert signer_of(uri, None, {"SIGNING_KEY": text}, []).public == read_public(
            tmp_path / "key.pub"
        )
    with pytest.raises(BadUse, match="must not lie in"):
        signer_of(str(tmp_path / "results" / "key"), None, {}, [tmp_path / "results"])
    with pytest.raises(BadUse, match="env:ABSENT: no such variable"):
        signer_of("env:ABSENT", None, {}, [])
    with pytest.raises(BadUse, match="give its public key too"):
        signer_of("awskms:alias/a", None, {}, [])
