"""Questions to a Python of another environment: one JSON object there, one back."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from instella.errors import KitError

SECONDS = 1800.0
LONGEST = 400


def answered(
    python: Path,
    words: Sequence[str],
    request: Mapping[str, Any],
    environment: Mapping[str, str],
    silent: str,
    failed: str,
) -> Any:
    """What a module of ours prints last, in the other environment.

    Args:
        python: of the environment.
        words: the module and its arguments.
        request: its standard input, as JSON.
        environment: all of its variables.
        silent, failed: how an error begins that comes in ``SECONDS`` without an answer, and one
            that ends with the last line the module wrote.

    Raises:
        KitError: it does not answer, or fails.
    """
    try:
        done = subprocess.run(
            [str(python), "-P", "-m", *words], input=json.dumps(request), capture_output=True,
            text=True, env=dict(environment), timeout=SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise KitError(f"{silent} in {SECONDS:.0f} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise KitError(f"{failed}: {lines[-1][:LONGEST] if lines else 'without a word'}")
    return json.loads(done.stdout.rstrip("\n").rsplit("\n", 1)[-1])
