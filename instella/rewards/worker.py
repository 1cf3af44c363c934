"""The process that runs computer algebra on untrusted answers.

    python -P -m instella.rewards.worker

reads one JSON object a line (``gold``, ``answer``) and writes one JSON object a line
(``outcome``, ``reason``). Each pair is judged in a fork of the warmed process, so no
verdict depends on what was asked before. A fork stops after a fixed number of Python
function calls, which is the same on every machine, and may neither write files nor
start anything. Its processor time and memory are limited too, far above what those calls
take; a fork that ends there has *died* and gives no verdict.
"""

import gc
import json
import logging
import os
import resource
import signal
import sys
from types import FrameType
from typing import Any

from instella.rewards.limits import MAX_CALLS
from instella.rewards.symbolic import Refused, install_guards, judge

CPU_SECONDS = 30
MEMORY_BYTES = 2 << 30
RECURSION_LIMIT = 3000
CORRECT, WRONG, REFUSED, TOO_MANY_CALLS, FAILED, OUT_OF_MEMORY = 10, 11, 12, 13, 14, 15
_OUTCOMES = {
    CORRECT: ("correct", ""),
    WRONG: ("wrong", ""),
    REFUSED: ("refused", "an expression beyond the limits"),
    TOO_MANY_CALLS: ("refused", f"more than {MAX_CALLS} function calls"),
    FAILED: ("refused", "an error inside the computer algebra"),
    OUT_OF_MEMORY: ("died", "out of memory"),
}
_WARM_UP = (
    (r"\frac{\sqrt{3}}{2}+x^2", r"x^2+\sin(x)^3"),
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix} 1 \\ \pi \end{pmatrix}"),
    (r"(-\infty, 2) \cup (3, 5]", r"x < 2"),
    (r"x=5,y=\log_2 8", r"\{1,2\}"),
    (r"1\pm\sqrt{2}", r"1.5, 2!"),
    (r"y = 2x+3", r"2x-y=-3"),
)
_READ_ONLY_ROOTS = tuple(
    os.path.join(os.path.realpath(path), "") for path in (sys.prefix, sys.base_prefix)
)
_FORBIDDEN = ("os.", "shutil.", "subprocess.", "socket.", "ctypes.", "pty.", "tempfile.")
_ALLOWED = ("os.listdir", "os.scandir")


class _TooManyCalls(BaseException):
    """Not an Exception, so that nothing between here and ``judge_here`` swallows it."""


def _count_calls() -> None:
    left = MAX_CALLS

    def trace(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise _TooManyCalls

    sys.settrace(trace)


def _deny(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open":
        path, _, flags = arguments
        writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)
        inside = isinstance(path, str) and os.path.realpath(path).startswith(_READ_ONLY_ROOTS)
        if writes or not inside:
            raise PermissionError("grading opens no file")
    elif event.startswith(_FORBIDDEN) and event not in _ALLOWED:
        raise PermissionError("grading starts nothing")


def judge_here(gold: str, answer: str) -> int:
    """The exit status that tells the verdict on one pair, in a process that then ends."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.addaudithook(_deny)
    _count_calls()
    try:
        return CORRECT if judge(gold, answer) else WRONG
    except Refused:
        return REFUSED
    except (_TooManyCalls, RecursionError):
        return TOO_MANY_CALLS
    except MemoryError:
        return OUT_OF_MEMORY
    except Exception:
        # The same on every machine, so it is told as a reason and not as a crash.
        return FAILED
    finally:
        sys.settrace(None)


def _judge_in_fork(gold: str, answer: str) -> dict[str, str]:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = judge_here(gold, answer)
        finally:
            os._exit(status)
    _, code = os.waitpid(child, 0)
    status = os.waitstatus_to_exitcode(code)
    outcome, reason = _OUTCOMES.get(status, ("died", f"exit status {status}"))
    if status in (-signal.SIGXCPU, -signal.SIGKILL):
        reason = f"stopped after {CPU_SECONDS} s of processor time, or by the system"
    return {"outcome": outcome, "reason": reason}


def main() -> None:
    """Serve until the input ends."""
    logging.disable(logging.CRITICAL)
    sys.setrecursionlimit(RECURSION_LIMIT)
    install_guards()
    for gold, answer in _WARM_UP:
        judge(gold, answer)
    gc.freeze()
    print(json.dumps({"outcome": "ready", "reason": ""}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(_judge_in_fork(request["gold"], request["answer"])), flush=True)


if __name__ == "__main__":
    main()
