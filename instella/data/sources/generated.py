"""Source kind ``generated``: problems from a generator of the library reasoning_gym.

The generator runs in a process of its own with a fixed hash seed, so that an order of
sets or dicts inside it can never differ between two runs.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import instella
from instella.canonical import parse_json, write_jsonl
from instella.data.sources.checks import require
from instella.errors import BadUse, VerificationError
from instella.recipe.settings import Source

LIBRARY = "reasoning_gym"

# Imported by the library on every start, used by zebra_puzzles alone, and only to be had
# as C source: the lock leaves it out, and an empty module stands in its place.
ABSENT = "pycosat"

UNUSABLE = {
    "zebra_puzzles": f"it needs {ABSENT}, which has no wheel",
    "intermediate_integration": "its rows depend on the hash seed",
    "polynomial_multiplication": "its rows depend on the hash seed",
    "propositional_logic": "its rows have no answer",
}


def fetch(source: Source, folder: Path, say: Callable[[str], None]) -> None:
    """Write ``rows.jsonl``: one object a line with question, answer and metadata.

    Raises:
        BadUse: unknown generator or options, or another version than the installed one.
        VerificationError: a row without an answer, or one that JSON cannot hold.
    """
    require(source, "generator", "version", "seed", "size")
    library, _, name = str(source.generator).partition(".")
    if library != LIBRARY or not name.isidentifier():
        raise BadUse(f"generator {source.generator!r}: need {LIBRARY}.NAME")
    if name in UNUSABLE:
        raise BadUse(f"generator {source.generator}: {UNUSABLE[name]}; choose another")
    _check_version(str(source.version))
    options = dict(source.options or {})
    if {"seed", "size"} & set(options):
        raise BadUse(f"generator {source.generator}: seed and size stand beside options")
    say(f"generating {source.size} rows of {source.generator}")
    wanted = {**options, "seed": source.seed, "size": source.size}
    rows = write_jsonl(folder / "rows.jsonl", _rows(name, wanted))
    if rows != source.size:
        raise VerificationError(f"{source.generator}: made {rows} rows instead of {source.size}")


def _check_version(expected: str) -> None:
    try:
        installed = metadata.version(LIBRARY)
    except metadata.PackageNotFoundError:
        raise BadUse(f"{LIBRARY} is not installed; install {LIBRARY}=={expected}") from None
    if installed != expected:
        raise BadUse(
            f"{LIBRARY} {installed} is installed, the recipe expects {expected}; "
            f"install {LIBRARY}=={expected}"
        )


def _rows(name: str, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    root = str(Path(instella.__file__).resolve().parent.parent)
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": root}
    done = subprocess.run(
        [sys.executable, "-m", __name__, name],
        input=json.dumps(options).encode(), env=environment, capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"]
        raise BadUse(f"{LIBRARY}.{name} with {json.dumps(options)}: {lines[-1]}")
    for number, line in enumerate(done.stdout.splitlines(), 1):
        row = parse_json(line, f"{LIBRARY}.{name} row {number}")
        if not isinstance(row["answer"], str):
            raise VerificationError(f"{LIBRARY}.{name} row {number}: the answer is not text")
        yield row


def main(name: str, options: dict[str, Any]) -> None:
    """Print the generator's rows; runs in the process of its own."""
    sys.modules[ABSENT] = ModuleType(ABSENT)
    import reasoning_gym

    for row in reasoning_gym.create_dataset(name, **options):
        fields = {key: row[key] for key in ("question", "answer", "metadata")}
        print(json.dumps(fields, allow_nan=False))


if __name__ == "__main__":
    main(sys.argv[1], json.load(sys.stdin))
