"""Other people's tools: they take what we sign, refuse what is changed, and sign for us.

They live in an environment of their own, which ``./kit setup signing`` makes from a lock.
"""

import base64
import json
import subprocess
from pathlib import Path

import pytest

from instella.canonical import json_bytes
from instella.errors import BadUse, KitError
from instella.prove.copies import PROJECT
from instella.statements import folder
from instella.statements.folder import Finished
from instella.statements.keys import local_signer, make_key, read_public, signer_of
from instella.statements.remote import PYTHON, remote_signer

from .conftest import make_run, toy_graph

SCRIPT = Path(__file__).with_name("public_verifiers.py")
TOOL = PYTHON.with_name("model_signing")


@pytest.fixture(scope="session")
def tools() -> Path:
    """Python of the environment with the public tools, set up as the documentation says."""
    done = subprocess.run(
        ["./kit", "setup", "signing"], cwd=PROJECT, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr
    return PYTHON


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("public") / "key"
    make_key(path)
    return path


@pytest.fixture
def run(tmp_path: Path, key: Path) -> Finished:
    """A run signed with the key; a test may alter it."""
    run = make_run(tmp_path / "run", toy_graph())
    folder.write(run, folder.signed(folder.payloads(run), local_signer(key.read_bytes(), "key")))
    return run


def call(*words: object) -> "subprocess.CompletedProcess[str]":
    command = [str(word) for word in words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_public_verifiers_take_every_statement(tools: Path, key: Path, run: Finished) -> None:
    done = call(tools, SCRIPT, f"{key}.pub", run.results)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == folder.present(run.folder)


def test_public_verifiers_refuse_what_is_changed(tools: Path, key: Path, run: Finished) -> None:
    """One bit of a payload or a signature, and a file that is another than was signed."""
    for name in ("run.intoto.jsonl", "scores/results.intoto.jsonl"):
        place = run.folder / name
        before = place.read_bytes()
        value = json.loads(before)
        payload = bytearray(base64.b64decode(value["payload"]))
        payload[len(payload) // 2] ^= 1
        value["payload"] = base64.b64encode(payload).decode()
        place.write_bytes(json_bytes(value))
        done = call(tools, SCRIPT, f"{key}.pub", run.results)
        assert done.returncode == 1 and "Accepted signatures do not match" in done.stderr
        place.write_bytes(before)
    words = (run.results / "sft", "--signature", run.folder / "models" / "sft.sig")
    verify = (TOOL, "verify", "key", *words, "--public_key", f"{key}.pub")
    assert call(*verify).returncode == 0
    weights = run.results / "sft" / "model.safetensors"
    weights.chmod(0o644)
    weights.write_bytes(b"\1" + weights.read_bytes()[1:])
    done = call(*verify)
    assert done.returncode == 1 and "Hash mismatch for 'model.safetensors'" in done.stderr


def test_model_signing_states_the_same_of_a_model(tools: Path, key: Path, run: Finished) -> None:
    """What its own signer writes differs in the signature and the paths it always leaves out."""
    target = run.results.parent / "theirs.sig"
    model = run.results / "sft"
    done = call(
        TOOL, "sign", "key", model, "--private_key", key, "--signature", target,
        "--ignore-paths", model / "manifest.json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    stated = []
    for path in (target, run.folder / "models" / "sft.sig"):
        value = json.loads(path.read_bytes())
        payload = json.loads(base64.b64decode(value["dsseEnvelope"].pop("payload")))
        ignored = payload["predicate"]["serialization"].pop("ignore_paths")
        assert "manifest.json" in ignored
        value["dsseEnvelope"].pop("signatures")
        stated.append((value, payload))
    assert stated[0] == stated[1]


def test_a_key_behind_a_uri_signs(tools: Path, key: Path, run: Finished) -> None:
    """``file2:`` is securesystemslib's own: it stands here for the URI of a KMS."""
    public = read_public(key.with_name("key.pub"))
    signer = signer_of(f"file2:{key}", public, {}, [])
    folder.write(run, folder.signed(folder.payloads(run), signer))
    assert folder.refusals(run, public) == []
    other = make_key(key.with_name("other"))
    with pytest.raises(KitError, match=r"signs nothing: .*KeyMismatchError"):
        signer_of(f"file2:{key}", other, {}, []).sign([b"a"])
    with pytest.raises(KitError, match="signs nothing: ValueError: Unsupported private key scheme"):
        signer_of("nokms:a", public, {}, []).sign([b"a"])


def test_without_the_environment_a_uri_says_what_to_do(key: Path, tmp_path: Path) -> None:
    public = read_public(key.with_name("key.pub"))
    with pytest.raises(BadUse, match=r"awskms:a: needs securesystemslib: \./kit setup signing"):
        remote_signer("awskms:a", public, tmp_path / "python")
