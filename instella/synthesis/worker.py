"""The process that runs programs: one confined fork for each, so that nothing outlives it.

Started by ``sandbox`` with an empty environment, without site packages, and with nothing
open but its two pipes. Reads one JSON object a line (``program``, ``arguments``,
``function``), writes one JSON object a line (``outcome``, ``value``, ``reason``). Outcomes:

``value``    the program's result
``failed``   the program's own error, by type
``refused``  beyond the language, its limits, or a system call the filter does not allow
``died``     stopped by a guard that may act differently elsewhere: memory, processor time
"""

import gc
import json
import os
import platform
import select
import signal
import sys
import time
import warnings
from contextlib import suppress
from typing import Any

from instella.synthesis.confinement import CPU_SECONDS, confine, die_with_parent, leave_network
from instella.synthesis.interpreter import FAILURES, MAX_ANSWER, run
from instella.synthesis.language import Refused

# Pure Python frames; the language's own limits are reached long before.
RECURSION_LIMIT = 20_000
MAX_REPLY_BYTES = 4096
# Ten times the processor time, for a machine that is shared.
CLOCK_SECONDS = 10 * CPU_SECONDS

Reply = dict[str, Any]


def judge(program: str, arguments: dict[str, Any], function: str) -> Reply:
    """The reply for one program, in whatever process this is."""
    try:
        return _reply("value", run(program, arguments, function))
    except Refused as error:
        return _reply("refused", reason=str(error))
    except RecursionError:
        return _reply("refused", reason="nested too deeply")
    except MemoryError:
        return _reply("died", reason="out of memory")
    except FAILURES as error:
        return _reply("failed", reason=type(error).__name__)


def _reply(outcome: str, value: int | float | None = None, reason: str = "") -> Reply:
    return {"outcome": outcome, "value": value, "reason": reason}


def in_fork(work: Any) -> Reply:
    """The reply of ``work()`` in a confined fork; its death is a reply as well."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            confine(writing)
            os.write(writing, json.dumps(work()).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    data, in_time = _read_all(reading)
    os.close(reading)
    # It is over or has had its time; a process that is gone already is as good.
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    _, state = os.waitpid(child, 0)
    return _told(data, in_time, os.waitstatus_to_exitcode(state))


def _read_all(reading: int) -> tuple[bytes, bool]:
    """What comes out of a pipe, at most the longest reply; False when the clock ended it."""
    data = b""
    deadline = time.monotonic() + CLOCK_SECONDS
    while len(data) <= MAX_REPLY_BYTES:
        ready, _, _ = select.select([reading], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return data, False
        piece = os.read(reading, MAX_REPLY_BYTES)
        if not piece:
            break
        data += piece
    return data, True


def _told(data: bytes, in_time: bool, status: int) -> Reply:
    if not in_time:
        return _reply("died", reason=f"no end within {CLOCK_SECONDS} s")
    if status == -signal.SIGSYS:
        return _reply("refused", reason="a system call that is not allowed")
    if len(data) > MAX_REPLY_BYTES:
        return _reply("refused", reason="more output than one result")
    with suppress(ValueError):
        reply = json.loads(data)
        if status == 0 and _is_reply(reply):
            return reply
    return _reply("died", reason=f"no result, exit status {status}")


def _is_reply(reply: Any) -> bool:
    """Whether it has the form of one; whatever took over a fork may have written it."""
    if not isinstance(reply, dict) or reply.keys() != _reply("").keys():
        return False
    outcome, value, reason = reply["outcome"], reply["value"], reply["reason"]
    if not isinstance(reason, str) or not reason.isprintable():
        return False
    if outcome == "value":
        return type(value) in (int, float) and abs(value) <= MAX_ANSWER  # no NaN is
    return outcome in ("failed", "refused", "died") and value is None


def _is_confined() -> Reply:
    # Reached only while nothing has ended the fork; the next line must.
    os.getppid()
    return _reply("failed", reason="no filter")


def main() -> None:
    """Serve until the input ends."""
    die_with_parent()
    warnings.simplefilter("ignore")
    sys.setrecursionlimit(RECURSION_LIMIT)
    platform.machine()
    leave_network()
    judge("def solve():\n    return 1 + 1", {}, "solve")
    gc.freeze()
    print(json.dumps(in_fork(_is_confined)), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        wanted = (asked["program"], asked["arguments"], asked["function"])
        print(json.dumps(in_fork(lambda wanted=wanted: judge(*wanted))), flush=True)


if __name__ == "__main__":
    main()
