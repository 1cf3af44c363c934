"""The replay buffer over a real TransferQueue and Ray on this machine; with ``INSTELLA_SOAK=1``."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from conftest import CHECK_SECONDS, SOAK, quiet_environment


@pytest.mark.skipif(not SOAK, reason="starts Ray, which takes a minute: INSTELLA_SOAK=1")
def test_a_step_stands_in_the_order_of_the_data(verl_python: Path, tmp_path: Path) -> None:
    """Responses of one prompt beside each other; one that is missing ends the run."""
    script = str(Path(__file__).with_name("verl_order.py"))
    environment = {
        **quiet_environment(),
        # Ray starts its own command by name, and keeps what it writes in a short path.
        "PATH": f"{verl_python.parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    done = subprocess.run(
        [str(verl_python), "-P", script], capture_output=True, text=True, timeout=CHECK_SECONDS,
        env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    said = json.loads(lines[-1])
    assert said["rows"] == [
        [0, [4, 6]],
        [0, [5]],
        [1, [3]],
        [1, [9, 9]],
        [2, [7, 1]],
        [2, [7, 1, 2]],
    ]
    assert said["lengths"] == [2, 1, 1, 2, 2, 3]
    assert said["lacking"].startswith("a step has 5 of 6 responses")
