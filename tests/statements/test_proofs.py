"""Proofs of files and lines: each one checks by itself, no changed one does."""

import base64
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from instella.canonical import json_bytes, read_json
from instella.errors import BadUse, VerificationError
from instella.inclusion import audit_path, root_with
from instella.merkle import tree_root
from instella.statements import folder
from instella.statements.envelope import envelope, pae
from instella.statements.folder import RUN_FILE, Finished
from instella.statements.keys import Signer
from instella.statements.proofs import check, prove, score_index
from instella.statements.tree import leaves, lines_of

MUTATIONS = 100


def test_paths_lead_to_the_root_and_to_no_other() -> None:
    for size in range(1, 34):
        tree = [b"leaf %d" % number for number in range(size)]
        root = tree_root(tree)
        for index, leaf in enumerate(tree):
            path = audit_path(tree, index)
            assert len(path) <= (size - 1).bit_length()
            assert root_with(leaf, index, size, path) == root
            assert root_with(b"another", index, size, path) != root
            if size > 1:
                with pytest.raises(VerificationError, match="path is too short"):
                    root_with(leaf, index, size, path[:-1])
                assert _root(leaf, (index + 1) % size, size, path) != root
            with pytest.raises(VerificationError, match="path is too long"):
                root_with(leaf, index, size, [*path, root])
            with pytest.raises(VerificationError, match="there is no such leaf"):
                root_with(leaf, size, size, path)


def _root(leaf: bytes, index: int, size: int, path: list[bytes]) -> bytes | None:
    try:
        return root_with(leaf, index, size, path)
    except VerificationError:
        return None


def proof(run: Finished, place: tuple[str, str], index: int | None = None) -> bytes:
    return prove(read_json(run.folder / RUN_FILE), run.manifests, run.store, place, index)


def test_every_file_and_every_line_is_proved(toy: Finished, signer: Signer, tmp_path: Path) -> None:
    """With nothing at hand but the proof and the key."""
    path = tmp_path / "alone" / "proof.json"
    path.parent.mkdir()
    for leaf in leaves(toy.manifests, toy.store):
        place = (leaf.stage, leaf.path)
        path.write_bytes(proof(toy, place))
        proved = check(path, signer.public)
        assert (proved.stage, proved.path, proved.root) == (*place, toy.root)
        assert (proved.sha256, proved.size) == (leaf.entry.sha256, leaf.entry.size)
        assert proved.line is None
        if leaf.lines is None:
            with pytest.raises(BadUse, match="its lines cannot be proved"):
                proof(toy, place, 0)
            continue
        for index, line in enumerate(lines_of(toy.store, leaf.path, leaf.entry)):
            path.write_bytes(proof(toy, place, index))
            proved = check(path, signer.public)
            assert (proved.line, proved.index) == (line.decode(), index)


def test_an_outsider_checks_it_without_the_kit(
    toy: Finished, signer: Signer, tmp_path: Path
) -> None:
    """As the page tells, in a folder with nothing but key, proof and file."""
    (tmp_path / "key.pub").write_bytes(signer.public.pem)
    (tmp_path / "proof").write_bytes(proof(toy, ("evaluate_sft", "scores.json"), 2))
    shutil.copy(toy.results / "evaluate_sft" / "scores.json", tmp_path)
    script = Path(__file__).with_name("outsider.py")
    command = [sys.executable, "-I", str(script), "key.pub", "proof", "scores.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    line = str(check(tmp_path / "proof", signer.public).line)
    assert (done.returncode, done.stdout) == (0, f"{line}{toy.root}\n"), done.stderr
    data = (tmp_path / "proof").read_bytes()
    (tmp_path / "proof").write_bytes(data.replace(b"words", b"wards", 1))
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stdout == ""


def test_one_score_is_proved(toy: Finished, signer: Signer, tmp_path: Path) -> None:
    manifest = toy.manifests["evaluate_sft"]
    index = score_index(toy.store, manifest, "words", "loss")
    path = tmp_path / "proof.json"
    path.write_bytes(proof(toy, ("evaluate_sft", "scores.json"), index))
    line = json.loads(str(check(path, signer.public).line))
    assert line == {
        "set": "words", "metric": "loss", "value": 0.5, "low": 0.25, "high": 0.75, "items": 5,
    }  # fmt: skip
    with pytest.raises(BadUse, match="it has sums/loss, sums/right, words/loss, words/right"):
        score_index(toy.store, manifest, "words", "pass")
    with pytest.raises(BadUse, match="has lines 1 to 4, not 5"):
        proof(toy, ("evaluate_sft", "scores.json"), 4)
    with pytest.raises(BadUse, match=r"has no file a; it has rows.jsonl, source.json|rows.jsonl"):
        proof(toy, ("source_words", "a"))


def _mutated(data: bytes, signer: Signer, chance: random.Random) -> bytes:
    way = chance.randrange(9)
    value: dict[str, Any] = json.loads(data)
    if way == 0:
        place = chance.randrange(len(data))
        return data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]
    if way == 1:
        return data[: chance.randrange(len(data))]
    if way == 2:
        value["path"]["index"] += chance.choice([-1, 1, 7])
    elif way == 3:
        value["line"]["text"] = value["line"]["text"].replace("1", "2", 1)
    elif way == 4:
        value["file"]["sha256"] = "0" * 64
    elif way == 5:
        value["path"]["siblings"].append("0" * 64)
    elif way == 6:
        value["line"]["index"] = 10 ** chance.randrange(20, 4000)
    elif way == 7:
        value["line"]["text"] = "\ud800"
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode() + b"\n"
    else:
        stated = json.loads(base64.b64decode(value["statement"]["payload"]))
        stated["predicateType"] = "https://slsa.dev/provenance/v1"
        payload = json_bytes(stated)
        (signature,) = signer.sign([pae(payload)])
        value["statement"] = envelope(payload, signature, signer.public.keyid)
    return json_bytes(value)


def test_no_mutated_proof_is_taken(toy: Finished, signer: Signer, tmp_path: Path) -> None:
    data = proof(toy, ("evaluate_sft", "sums.jsonl"), 1)
    path, chance = tmp_path / "proof.json", random.Random(1130)
    for _ in range(MUTATIONS):
        path.write_bytes(_mutated(data, signer, chance))
        with pytest.raises(VerificationError) as caught:
            check(path, signer.public)
        assert str(caught.value).isprintable() and len(str(caught.value)) < 1000


def test_a_damaged_file_is_not_proved(copy: Finished) -> None:
    entry = copy.manifests["evaluate_sft"].files["sums.jsonl"]
    place = copy.store.object_path(entry.sha256)
    shutil.copyfile(copy.results / "evaluate_sft" / "scores.json", copy.results / "new")
    place.unlink()
    (copy.results / "new").rename(place)
    with pytest.raises(VerificationError, match=r"sums\.jsonl: other bytes"):
        folder.payloads(copy)
