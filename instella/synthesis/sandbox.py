"""Runs programs that nobody has read, and tells what became of them.

    with Sandbox() as sandbox:
        sandbox.run("def solve(a):\\n    return a + 1", {"a": 1}, "row 1").value  # 2

A verdict is decided by counting, never by a clock; where memory, processor time or the
clock had to end a program, the verdict might differ elsewhere and an error is raised
instead.
"""

import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

import instella
from instella.errors import KitError
from instella.synthesis.language import MAX_CHARACTERS

WORKER = "instella.synthesis.worker"
_START = (
    "import runpy, sys; sys.path.append(sys.argv[2]); "
    "runpy.run_module(sys.argv[1], run_name='__main__')"
)
# The worker's own clock ends a program first; then something is wrong with the worker.
CLOCK_SECONDS = 300.0


@dataclass(frozen=True)
class Verdict:
    """``outcome`` is ``value``, ``failed`` or ``refused``; ``reason`` tells why no value."""

    outcome: str
    value: int | float | None = None
    reason: str = ""


class Sandbox:
    """One worker process; calls from several threads wait for each other. A context manager.

    Args:
        filter_required: refuse to work where the system offers no filter of system calls.
    """

    def __init__(self, filter_required: bool = True) -> None:
        self._filter_required = filter_required
        self._lock = threading.Lock()
        self._worker: subprocess.Popen[bytes] | None = None

    def run(
        self,
        program: str,
        arguments: Mapping[str, int | float],
        where: str,
        function: str = "solve",
    ) -> Verdict:
        """Run ``function(**arguments)`` of a program.

        Args:
            program: source, untrusted.
            arguments: numbers by parameter.
            where: names the row in an error.
            function: its name.

        Raises:
            KitError: a guard ended the program that may act differently elsewhere, or this
                system cannot confine a process.
        """
        # One character too many is refused like more, and keeps the line within a pipe.
        source = program[: MAX_CHARACTERS + 1]
        asked = {"program": source, "arguments": dict(arguments), "function": function}
        with self._lock:
            reply = self._ask(json.dumps(asked).encode() + b"\n")
        if reply["outcome"] == "died":
            raise KitError(
                f"{where}: its program was ended by a guard that may act differently elsewhere "
                f"({reply['reason']}), so the result would not reproduce; rerun on a machine "
                "with free memory and processor time"
            )
        return Verdict(reply["outcome"], reply["value"], reply["reason"])

    def _ask(self, line: bytes) -> dict[str, Any]:
        if self._worker is None:
            raise KitError("the sandbox's process is gone; run the stage again")
        try:
            _pipe(self._worker.stdin).write(line)
            _pipe(self._worker.stdin).flush()
        except BrokenPipeError:
            raise self._broken("ended") from None
        return self._reply(self._worker)

    def _reply(self, worker: "subprocess.Popen[bytes]") -> dict[str, Any]:
        pipe = _pipe(worker.stdout)
        ready, _, _ = select.select([pipe], [], [], CLOCK_SECONDS)
        # The worker writes a line at once: less than a line is its end.
        line = pipe.readline() if ready else b""
        if not line.endswith(b"\n"):
            raise self._broken("ended" if ready else f"does not answer within {CLOCK_SECONDS} s")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _start(self) -> "subprocess.Popen[bytes]":
        root = str(Path(instella.__file__).resolve().parent.parent)
        command = [sys.executable, "-I", "-S", "-X", "utf8", "-c", _START, WORKER, root]
        # Only what finds Python's own shared library on systems that keep it elsewhere.
        kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        self._worker = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            cwd="/", env=kept,
        )  # fmt: skip
        first = self._reply(self._worker)
        # The first fork makes a call that the filter ends.
        if self._filter_required and first["outcome"] != "refused":
            self.close()
            raise KitError(
                "the sandbox for programs needs Linux on x86-64 with seccomp filters; use such "
                "a machine, or a container that allows them"
            )
        return self._worker

    def _broken(self, what: str) -> KitError:
        self.close()
        return KitError(f"the sandbox's process {what}; run the stage again")

    def close(self) -> None:
        """End the process."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
            worker.wait()
            _pipe(worker.stdout).close()
            # What was written to a process that had ended already cannot be flushed.
            with suppress(BrokenPipeError):
                _pipe(worker.stdin).close()

    def __enter__(self) -> Self:
        # Here and not at the first program: the worker ends with the thread that started it.
        self._worker = self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
