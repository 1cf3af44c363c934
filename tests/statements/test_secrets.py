"""Secrets and traces of the machine: what is looked for, and where it is found."""

import os
import shutil
from pathlib import Path

import pytest

from instella.artifacts.manifest import NAME
from instella.errors import BadUse
from instella.statements.folder import Finished, payloads
from instella.statements.search import search, stated, words_of
from instella.statements.secrets import BLOCK, in_file, secrets_of

HOME = Path("/home/planted-person")


def environment(folder: Path) -> dict[str, str]:
    """Variables and files with tokens, as tools have them."""
    home = folder / "home"
    (home / ".cache" / "huggingface").mkdir(parents=True)
    (home / ".cache" / "huggingface" / "token").write_text("hf_planted_in_a_file\n")
    (home / ".aws").mkdir()
    (home / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = AKIAPLANTED0000\naws_secret_access_key = planted/secret\n"
    )
    return {
        "HOME": str(home),
        "HF_TOKEN": "hf_planted_in_a_variable",
        "AWS_SESSION_TOKEN": 'planted "session"',
        "TEACHER_API_KEY": "planted-api-key",
        "PIP_INDEX_URL": "https://someone:planted%2Bpassword@packages.example/simple",
        "DATA_URL": "https://data.example/a?name=b&X-Amz-Signature=planted-signature",
        "TOKENIZERS_PARALLELISM": "disabled, rather",
        "GIT_AUTHOR_NAME": "planted author",
        "SSH_AUTH_SOCK": str(home),
    }


SECRETS = (
    "hf_planted_in_a_file", "AKIAPLANTED0000", "planted/secret", "hf_planted_in_a_variable",
    'planted "session"', "planted-api-key", "planted+password", "planted-signature",
)  # fmt: skip


def test_secrets_are_those_of_variables_files_and_addresses(tmp_path: Path) -> None:
    words = secrets_of(environment(tmp_path), b"-----BEGIN\nMIGHAgEAMBMGByqGSM\n-----END")
    assert {word.texts[0].decode() for word in words} == {*SECRETS, "MIGHAgEAMBMGByqGSM"}
    assert not any(text in word.what for word in words for text in SECRETS)


def test_a_clean_run_holds_none(toy: Finished, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("name: toy\n")
    words = words_of(toy, recipe, environment(tmp_path), ("planted-user", "planted-host"))
    assert len([word for word in words if word.is_secret]) == len(SECRETS)
    assert search(toy, words, payloads(toy), []) == []


@pytest.mark.parametrize("secret", [*SECRETS, 'planted \\"session\\"', "planted%2Bpassword"])
def test_each_is_found_wherever_it_stands(copy: Finished, tmp_path: Path, secret: str) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("name: toy\n")
    words = words_of(copy, recipe, environment(tmp_path), ("planted-user", "planted-host"))
    places = {
        "sft/model.safetensors": copy.store.object_path(
            copy.manifests["sft"].files["model.safetensors"].sha256
        ),
        f"tokenizer/{NAME}": copy.results / "tokenizer" / NAME,
        "statements/models/sft.sig": copy.folder / "models" / "sft.sig",
        str(tmp_path / "crate" / "a.json"): tmp_path / "crate" / "a.json",
    }
    for place in places.values():
        place.parent.mkdir(exist_ok=True)
        before = place.read_bytes() if place.exists() else b""
        shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
        place.write_bytes(before + secret.encode())
    found = search(copy, words, stated(copy.folder), [tmp_path / "crate"])
    assert {item.file for item in found} == set(places)
    assert not any(secret in str(item) for item in found)


def test_traces_count_unless_everybody_has_them(copy: Finished, tmp_path: Path) -> None:
    """Here "source" stands in the bytes of a source, and "someone" is a name and no part of one."""
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("name: toy\n")
    scores = copy.manifests["evaluate_sft"].files["scores.json"]
    place = copy.store.object_path(scores.sha256)
    place.chmod(0o644)
    place.write_text(f"a source of zqxv and zqxvs, in {HOME}/work, zqx-node")
    words = words_of(copy, recipe, {"HOME": str(HOME)}, ("zqxv", "zqx-node"))
    found = search(copy, words, {}, [])
    assert {item.word.what for item in found} == {
        "the path of the home folder", "the name of the user", "the name of the machine",
    }  # fmt: skip
    words = words_of(copy, recipe, {}, ("source", "zqx"))
    assert {item.word.what for item in search(copy, words, {}, [])} == {"the name of the machine"}


def test_a_word_over_the_edge_of_two_blocks(tmp_path: Path) -> None:
    (word,) = secrets_of({"A_TOKEN": "planted-token"})
    for start in (BLOCK - 13, BLOCK - 7, BLOCK - 1, BLOCK):
        (tmp_path / "a").write_bytes(b"\0" * start + b"planted-token" + b"\0" * 9)
        assert in_file(tmp_path / "a", [word], is_binary=True) == [word]


def test_what_is_not_there_cannot_be_looked_through(toy: Finished, tmp_path: Path) -> None:
    with pytest.raises(BadUse, match="there is no such file"):
        search(toy, [], {}, [tmp_path / "absent"])
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadUse, match="neither a file nor a folder"):
        search(toy, [], {}, [tmp_path / "pipe"])
