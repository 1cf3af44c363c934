"""Generated rows and files beside the recipe."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from instella.canonical import sha256_bytes, sha256_file
from instella.data.sources import fetch
from instella.errors import BadUse, VerificationError
from instella.recipe.settings import Source

SUMS = Source(
    kind="generated", licence="Apache-2.0", generator="reasoning_gym.chain_sum",
    version=metadata.version("reasoning_gym"), seed=7, size=20,
    options={"min_terms": 2, "max_terms": 3, "min_digits": 1, "max_digits": 1},
)  # fmt: skip

SCRIPT = """
import json, sys
from pathlib import Path
from instella.data.sources import fetch
from instella.recipe.settings import Source
out = Path(sys.argv[1])
out.mkdir()
fetch(Source(**json.loads(sys.argv[2])), out, out, out, print)
"""


def get(source: Source, tmp_path: Path) -> None:
    fetch(source, tmp_path, tmp_path, tmp_path, lambda text: None)


def test_rows_are_canonical_and_follow_seed_and_options(tmp_path: Path) -> None:
    get(SUMS, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_bytes().splitlines()]
    assert len(rows) == 20
    for row in rows:
        assert set(row) == {"question", "answer", "metadata"}
        assert str(eval_sum(row["metadata"]["expression"])) == row["answer"]
        assert row["metadata"]["num_terms"] in (2, 3)


def eval_sum(expression: str) -> int:
    return sum(int(term) for term in expression.replace("- ", "-").replace("+ ", "").split())


def test_bytes_do_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    hashes = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        source = asdict(replace(SUMS, generator="reasoning_gym.gsm_symbolic", options=None))
        command = [sys.executable, "-c", SCRIPT, str(tmp_path / seed), json.dumps(source)]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        hashes.add(sha256_file(tmp_path / seed / "rows.jsonl"))
    assert len(hashes) == 1


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"generator": "reasoning_gym.polynomial_multiplication"}, "hash seed"),
        ({"generator": "reasoning_gym.intermediate_integration"}, "hash seed"),
        ({"generator": "reasoning_gym.propositional_logic"}, "no answer"),
        ({"generator": "os.system"}, "need reasoning_gym.NAME"),
        ({"version": "0.0.1"}, "the recipe expects 0.0.1"),
        ({"options": {"seed": 3}}, "beside options"),
        ({"options": {"no_such_option": 3}}, "no_such_option"),
        ({"options": {"min_terms": 9, "max_terms": 2}}, "max_terms must be >= min_terms"),
    ],
)
def test_refused(changes: dict[str, Any], text: str, tmp_path: Path) -> None:
    with pytest.raises(BadUse) as caught:
        get(replace(SUMS, **changes), tmp_path)
    assert text in str(caught.value) and "\n" not in str(caught.value)


def file_source(path: str, data: bytes) -> Source:
    return Source(kind="file", licence="MIT", path=path, sha256=sha256_bytes(data))


def test_a_file_is_copied_when_its_hash_is_right(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_bytes(b"hello")
    out = tmp_path / "out"
    out.mkdir()
    fetch(file_source("data/a.txt", b"hello"), out, tmp_path, tmp_path, print)
    assert (out / "a.txt").read_bytes() == b"hello"
    with pytest.raises(VerificationError, match="the recipe expects"):
        fetch(file_source("data/a.txt", b"hellO"), out, tmp_path, tmp_path, print)
    assert (tmp_path / "data" / "a.txt").read_bytes() == b"hello"


@pytest.mark.parametrize("path", ["missing.txt", "/etc/hostname", "."])
def test_a_file_that_is_not_there(path: str, tmp_path: Path) -> None:
    with pytest.raises(BadUse):
        fetch(file_source(path, b""), tmp_path, tmp_path, tmp_path, print)
