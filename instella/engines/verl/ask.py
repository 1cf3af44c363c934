"""Questions to verl, which lives in an environment of its own."""

import os
from pathlib import Path
from typing import Any

from instella.engines.elsewhere import answered
from instella.engines.verl.launch import ROOT
from instella.errors import BadUse

PYTHON = ROOT / ".venvs/verl/bin/python"


def ask(action: str, request: dict[str, Any], python: Path = PYTHON) -> dict[str, Any]:
    """What ``instella.engines.verl.inside`` answers.

    Args:
        action: ``check`` or ``merge``.
        request: its words.
        python: of an environment with verl.

    Raises:
        BadUse: there is no such environment.
        KitError: verl refuses, with the last line that it wrote, or does not answer.
    """
    if not python.is_file():
        raise BadUse(f"{python}: verl's environment is not there; make it with ./kit setup verl")
    # A small environment: what a user set for the kit's Python must not reach this one.
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    environment = {
        **kept,
        "PYTHONPATH": str(ROOT),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "TOKENIZERS_PARALLELISM": "false",
    }
    reply: dict[str, Any] = answered(
        python, ["instella.engines.verl.inside", action], request, environment,
        silent=f"verl gave no answer to '{action}'", failed="verl refuses",
    )  # fmt: skip
    return reply
