"""A proof that is stopped leaves no process and no folder behind."""

import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from instella.prove.copies import PROJECT
from instella.prove.processes import descendants, environment

SECONDS = 120.0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_proof_cleans_up(tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "instella", "prove", "--quick"],
        cwd=PROJECT,
        env=environment({"TMPDIR": str(tmp_path)}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # A shell that starts the tests in its background has them ignore SIGINT.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    try:
        below = _wait_for_snakemake(process)
        assert list(tmp_path.iterdir())
        process.send_signal(number)
        assert process.wait(SECONDS) == 130
    finally:
        process.kill()
        process.wait()
    assert list(tmp_path.iterdir()) == []
    assert psutil.wait_procs(below, timeout=10)[1] == []


def _wait_for_snakemake(process: "subprocess.Popen[bytes]") -> list[psutil.Process]:
    """All processes of the proof, once Snakemake is among them."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        below = descendants(process.pid)
        for item in below:
            try:
                if "snakemake" in item.cmdline():
                    return below
            except psutil.NoSuchProcess:
                continue
        time.sleep(0.05)
    raise AssertionError("Snakemake did not start")
