"""The third layer alone: raw Python, with every check of the language left out."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hostile_programs import OUTSIDE

from instella.synthesis.confinement import ALLOWED, WITHOUT_BITS

ROOT = Path(__file__).resolve().parents[2]

# Runs each program with ``exec`` in a confined fork of its own, with a second of processor time.
RAW = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
import ctypes, importlib, math, mmap, pickle, resource, signal, socket, subprocess, time
from instella.synthesis import confinement, worker
confinement.CPU_SECONDS = 1
worker.CLOCK_SECONDS = 3
sys.setrecursionlimit(5000)
def work(source, pipe):
    names = {"PIPE": pipe, "ctypes": ctypes, "libc": confinement._LIBC, "os": os}
    exec(source, names)
    return {"outcome": "value", "value": names["solve"](), "reason": ""}
def reply(source):
    pipe = os.pipe()
    for end in pipe:
        os.close(end)  # the fork's pipe has the same numbers
    return worker.in_fork(lambda: work(source, pipe[1]))
print(json.dumps({name: reply(source) for name, source in json.load(sys.stdin).items()}))
"""

# These end by themselves, by an error, a signal or a limit; the filter ends all others.
BY_THEMSELVES = {
    "leaves", "exits", "crashes", "prints a gigabyte", "takes memory", "holds a NUL",
}  # fmt: skip

CALLS = {
    "fork": 57, "vfork": 58, "clone": 56, "execve": 59, "socket": 41, "openat": 257, "ptrace": 101,
    "kill": 62, "clone3": 435, "io_uring_setup": 425, "memfd_create": 319, "getpid": 39,
    "rt_sigaction": 13, "seccomp": 317, "setns": 308, "process_vm_writev": 311, "bpf": 321,
    "pidfd_open": 434, "pkey_mprotect": 329, "fork in the x32 way": 0x40000039,
}  # fmt: skip

TOO_MUCH = {
    "time": "def solve():\n    while True:\n        pass",
    "time in one operation": "def solve():\n    return 10**10**10",
    "memory at once": "def solve():\n    return len([0] * 10**9)",
    "memory by and by": "def solve():\n    a = []\n    while True:\n        a.append('x' * 10**6)",
    "waits": "def solve():\n    zero = ctypes.c_int(0)\n"
    "    libc.syscall(202, ctypes.byref(zero), 0, 0, 0, 0, 0)\n    return 1",
    "unmaps itself": "def solve():\n"
    "    libc.munmap(ctypes.c_void_p(4096), ctypes.c_size_t(0x7FFFFFFFE000))\n    return 1",
    "writes elsewhere": "def solve():\n    return os.write(1 if PIPE != 1 else 2, b'x')",
}

# A page of its own, what is done with it, and the reply's outcome.
MEMORY = {
    "maps for execution": ("page(7)", "refused"),
    "maps for execution, high bits": ("page(5 | 1 << 32)", "refused"),
    "makes executable": ("libc.mprotect(page(3), SIZE, 5)", "refused"),
    "poisons the machine's memory": ("libc.madvise(page(3), SIZE, 100)", "refused"),
    "takes the machine's memory away": ("libc.madvise(page(3), SIZE, 101)", "refused"),
    "gives its page back": ("libc.madvise(page(3), SIZE, 4)", "value"),
    "maps its pipe": ("libc.syscall(9, 0, SIZE, 3, 1, PIPE, 0)", "value"),
}
PAGE = (
    "SIZE = ctypes.c_size_t(4096)\n"
    "libc.syscall.restype = ctypes.c_long\n"
    "def page(protection):\n"
    "    place = libc.syscall(9, 0, SIZE, ctypes.c_long(protection), 0x22, -1, 0)\n"
    "    return ctypes.c_void_p(place)\n"
    "def solve():\n    {}\n    return 1"
)


def lie(data: bytes, end: str = "os._exit(0)") -> str:
    return f"def solve():\n    os.write(PIPE, {data!r})\n    {end}"


GOOD = b'{"outcome":"value","value":7,"reason":""}'
FORGED = {
    "text": lie(GOOD.replace(b"7", b'"7"')),
    "true": lie(GOOD.replace(b"7", b"true")),
    "nothing": lie(GOOD.replace(b"7", b"null")),
    "a list": lie(GOOD.replace(b"7", b"[7]")),
    "NaN": lie(GOOD.replace(b"7", b"NaN")),
    "infinite": lie(GOOD.replace(b"7", b"1e999")),
    "too large": lie(GOOD.replace(b"7", b"9" * 400)),
    "another outcome": lie(GOOD.replace(b'"value",', b'"accepted",')),
    "an outcome that is no text": lie(GOOD.replace(b'"value",', b"[],")),
    "a value that failed": lie(GOOD.replace(b'"value",', b'"failed",')),
    "a reason with lines": lie(GOOD.replace(b'""', b'"a\\nb"')),
    "a reason that is no text": lie(GOOD.replace(b'""', b"{}")),
    "another key": lie(GOOD.replace(b"{", b'{"more":1,')),
    "two replies": lie(GOOD + b"\n" + GOOD),
    "half a reply": lie(GOOD[:20]),
    "deep": lie(b"[" * 4000),
    "no UTF-8": lie(b"\xff" + GOOD),
    "before a crash": lie(GOOD, "ctypes.string_at(0)"),
    "before an endless loop": lie(GOOD, "while True: pass"),
}


@pytest.fixture(scope="module")
def replies() -> dict[str, dict]:
    """What became of each program; nothing has checked one, and one process runs them all."""
    programs = {
        "good": "def solve():\n    return sum(i * i for i in range(1000))",
        **OUTSIDE,
        **{name: f"def solve():\n    libc.syscall({number}, 0, 0, 0)\n    return 1"
           for name, number in CALLS.items()},
        **TOO_MUCH,
        **{name: PAGE.format(act) for name, (act, _) in MEMORY.items()},
        **FORGED,
        "flood": "def solve():\n    while True:\n        os.write(PIPE, b' ' * 65536)",
        "before a call": lie(GOOD, "os.getpid()"),
        "good lie": lie(GOOD),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", RAW, str(ROOT)],
        input=json.dumps(programs).encode(), capture_output=True, timeout=120, env={}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()[-500:]
    return json.loads(done.stdout)


def test_a_good_program_has_its_result(replies: dict[str, dict]) -> None:
    assert replies["good"] == {"outcome": "value", "value": 332833500, "reason": ""}


@pytest.mark.parametrize("name", OUTSIDE)
def test_hostile_python_gets_nothing_done(replies: dict[str, dict], name: str) -> None:
    reply = replies[name]
    assert reply["outcome"] == ("died" if name in BY_THEMSELVES else "refused"), reply
    assert not Path("/tmp/left_behind").exists()
    assert sleepers() == 0


@pytest.mark.parametrize("name", CALLS)
def test_a_system_call_that_is_not_listed_ends_the_process(
    replies: dict[str, dict], name: str
) -> None:
    assert CALLS[name] not in {*ALLOWED.values(), *(number for number, _ in WITHOUT_BITS.values())}
    reply = replies[name]
    assert reply["outcome"] == "refused" and "system call" in reply["reason"]


@pytest.mark.parametrize("name", MEMORY)
def test_memory_is_the_process_s_own_and_never_executable(
    replies: dict[str, dict], name: str
) -> None:
    assert replies[name]["outcome"] == MEMORY[name][1]


@pytest.mark.parametrize("name", TOO_MUCH)
def test_time_and_memory_end(replies: dict[str, dict], name: str) -> None:
    assert replies[name]["outcome"] == "died"


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_reply_of_another_form_is_none(replies: dict[str, dict], name: str) -> None:
    """Code that took over a fork may write to the pipe; it can lie about its own row only."""
    assert replies[name]["outcome"] == "died" and replies[name]["value"] is None
    assert replies["good lie"]["value"] == 7
    assert replies["flood"]["outcome"] == replies["before a call"]["outcome"] == "refused"


def sleepers() -> int:
    """Processes that a hostile program would have left behind."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += b"sleep\0100" in path.read_bytes()
        except OSError:
            continue
    return found
