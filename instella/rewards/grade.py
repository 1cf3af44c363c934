"""Grading: is an answer the gold answer? Never by running its text.

Most pairs are decided by ``normalize`` in microseconds. The rest goes to a worker
process that can be killed; limits that count (``limits``) decide there before any clock
does. The worker's 30 s of processor time and the parent's clock are the last guards: a
verdict that needed them is ``timed out``, counts as wrong, and is told apart, because it
may differ on another machine.
"""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import instella
from instella.errors import KitError
from instella.rewards.extract import last_boxed
from instella.rewards.limits import refuse_text
from instella.rewards.normalize import decide, tidy, without_units

CORRECT = "correct"
WRONG = "wrong"
NO_ANSWER = "no answer"
TIMED_OUT = "timed out"

# Ten times the processor time that the worker allows, for a machine that is shared.
CLOCK_SECONDS = 300.0
START_SECONDS = 300.0


@dataclass(frozen=True)
class Verdict:
    """One of ``correct``, ``wrong``, ``no answer``, ``timed out``.

    ``reason`` tells why a wrong answer was refused without algebra, or why the worker
    was stopped; empty otherwise.
    """

    label: str
    reason: str = ""

    def __str__(self) -> str:
        return self.label

    @property
    def refused(self) -> bool:
        """Wrong because it is beyond the limits; the same on every machine."""
        return self.label == WRONG and bool(self.reason)


def answer_of(text: str) -> str | None:
    r"""The answer in ``text``: its last box if it has a ``\boxed`` or ``\fbox``, else all of it.

    None when the last box does not close.
    """
    if "\\boxed" in text or "\\fbox" in text:
        return last_boxed(text)
    return text


def refuse_clock(verdicts: Sequence[Verdict], where: str) -> None:
    """Fail when a verdict needed the clock, for stages whose bytes must reproduce.

    Raises:
        KitError: names ``where`` and how many verdicts.
    """
    count = sum(verdict.label == TIMED_OUT for verdict in verdicts)
    if count:
        reason = next(item.reason for item in verdicts if item.label == TIMED_OUT)
        raise KitError(
            f"{where}: {count} of {len(verdicts)} verdicts were stopped by a guard that may act "
            f"differently elsewhere ({reason}), so the result would not reproduce: rerun on a "
            "less loaded machine, or report the answer so that a limit can decide it"
        )


class Grader:
    """Grades pairs of gold and answer; a context manager that owns one worker process.

    The worker starts with the first pair that needs it. Equal pairs are judged once.
    """

    def __init__(self, clock_seconds: float = CLOCK_SECONDS) -> None:
        self._clock_seconds = clock_seconds
        self._worker: subprocess.Popen[bytes] | None = None
        self._cache: dict[tuple[str, str | None], Verdict] = {}

    def __enter__(self) -> "Grader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            _end(self._worker)
            self._worker = None

    def verdicts(self, pairs: Sequence[tuple[str, str | None]]) -> list[Verdict]:
        """One verdict a pair (gold, answer), in their order; None is no answer.

        The answers are bare: extract them with ``last_boxed`` or ``answer_of``.
        """
        return [self.verdict(gold, answer) for gold, answer in pairs]

    def verdict(self, gold: str, answer: str | None) -> Verdict:
        """The verdict on one pair."""
        key = (gold, answer)
        found = self._cache.get(key)
        if found is None:
            found = self._cache[key] = self._judge(gold, answer)
        return found

    def _judge(self, gold: str, answer: str | None) -> Verdict:
        if answer is None or not answer.strip():
            return Verdict(NO_ANSWER)
        if gold == answer:
            return Verdict(CORRECT)
        for text in (gold, answer):
            reason = refuse_text(text)
            if reason is not None:
                return Verdict(WRONG, f"refused: {reason}")
        gold, answer = tidy(gold), tidy(answer)
        equal = decide(gold, answer)
        if equal is not None:
            return Verdict(CORRECT if equal else WRONG)
        return self._ask(*without_units(gold, answer))

    def _ask(self, gold: str, answer: str) -> Verdict:
        if self._worker is None:
            self._worker = _start()
        reply = _exchange(self._worker, {"gold": gold, "answer": answer}, self._clock_seconds)
        if reply is None:
            gone = self._worker.poll() is not None
            self.close()
            reason = "the worker ended" if gone else f"no verdict within {self._clock_seconds:g} s"
            return Verdict(TIMED_OUT, reason)
        if reply["outcome"] == "died":
            return Verdict(TIMED_OUT, reply["reason"])
        if reply["outcome"] == "refused":
            return Verdict(WRONG, f"refused: {reply['reason']}")
        return Verdict(CORRECT if reply["outcome"] == "correct" else WRONG)


def _start() -> "subprocess.Popen[bytes]":
    # A fixed, small environment: the hash seed orders sets inside SymPy, and the ground
    # types decide which integers and floats it computes with.
    environment = {
        **{name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ},
        "PYTHONPATH": str(Path(instella.__file__).resolve().parent.parent),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONWARNINGS": "ignore",
        "SYMPY_GROUND_TYPES": "python",
        "MPMATH_NOGMPY": "1",
        "LC_ALL": "C.UTF-8",
    }
    worker = subprocess.Popen(
        [sys.executable, "-P", "-m", "instella.rewards.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    if _reply(worker, START_SECONDS) is None:
        _end(worker)
        raise KitError(
            "instella.rewards.worker: the grading process does not start: "
            "check that math-verify is installed, with python -m instella.rewards.worker"
        )
    return worker


def _exchange(
    worker: "subprocess.Popen[bytes]", request: dict[str, str], seconds: float
) -> dict[str, Any] | None:
    assert worker.stdin is not None
    try:
        worker.stdin.write(json.dumps(request).encode("ascii") + b"\n")
        worker.stdin.flush()
    except BrokenPipeError:
        worker.wait()
        return None
    return _reply(worker, seconds)


def _reply(worker: "subprocess.Popen[bytes]", seconds: float) -> dict[str, Any] | None:
    stream: IO[bytes] | None = worker.stdout
    assert stream is not None
    ready, _, _ = select.select([stream], [], [], seconds)
    if not ready:
        return None
    line = stream.readline()
    if not line:
        worker.wait()
        return None
    reply: dict[str, Any] = json.loads(line)
    return reply


def _end(worker: "subprocess.Popen[bytes]") -> None:
    # The session holds the worker and the fork that may still compute.
    with suppress(ProcessLookupError):  # both have ended by themselves
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
    for stream in (worker.stdin, worker.stdout):
        if stream is not None:
            with suppress(BrokenPipeError):  # what was written and never read
                stream.close()
