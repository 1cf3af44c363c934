"""Questions to a Python of another environment: one JSON object there, one back."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from instella.artifacts.identity import PACKAGE_FOLDER, environment_lock
from instella.canonical import sha256_file
from instella.errors import BadUse, KitError

PROJECT = PACKAGE_FOLDER.parent
SECONDS = 1800.0
LONGEST = 400


def python_of(name: str, project: Path = PROJECT) -> Path:
    """Python of an environment that was set up from the lock of this tree.

    Args:
        name: as in ``requirements/environments``.
        project: folder of the kit.

    Raises:
        BadUse: it is not there, or was set up from another lock.
    """
    folder = project / ".venvs" / name
    stamp, lock = folder / f"{name}.stamp", environment_lock(name, project / PACKAGE_FOLDER.name)
    # As ``kit`` writes it, with sha256sum of its standard input.
    if not stamp.is_file() or stamp.read_text("utf-8") != f"{sha256_file(lock)}  -\n":
        raise BadUse(f"{folder}: is not set up from {lock}; make it with ./kit setup {name}")
    return folder / "bin" / "python"


def answered(
    python: Path,
    words: Sequence[str],
    request: Mapping[str, Any],
    environment: Mapping[str, str],
    silent: str,
    failed: str,
    seconds: float | None = SECONDS,
) -> Any:
    """What a module of ours prints last, in the other environment.

    Args:
        python: of the environment.
        words: the module and its arguments.
        request: its standard input, as JSON.
        environment: all of its variables.
        silent, failed: how an error begins that comes in ``seconds`` without an answer, and one
            that ends with the last line the module wrote.
        seconds: to wait; None waits for ever.

    Raises:
        KitError: it does not answer, or fails.
    """
    try:
        done = subprocess.run(
            [str(python), "-P", "-m", *words], input=json.dumps(request), capture_output=True,
            text=True, env=dict(environment), timeout=seconds,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise KitError(f"{silent} in {seconds:.0f} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise KitError(f"{failed}: {lines[-1][:LONGEST] if lines else 'without a word'}")
    return json.loads(done.stdout.rstrip("\n").rsplit("\n", 1)[-1])
