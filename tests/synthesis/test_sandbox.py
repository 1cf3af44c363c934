"""All layers together: every program ends in a verdict, and nothing is left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hostile_programs import OUTSIDE, WITHIN

from instella.errors import KitError
from instella.synthesis import sandbox as sandbox_module
from instella.synthesis.sandbox import Sandbox, Verdict

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as made:
        yield made


def worker_of(sandbox: Sandbox) -> int:
    assert sandbox._worker is not None
    return sandbox._worker.pid


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


@pytest.mark.parametrize("name", [*OUTSIDE, *WITHIN])
def test_every_hostile_program_is_refused(sandbox: Sandbox, name: str) -> None:
    started = time.monotonic()
    verdict = sandbox.run({**OUTSIDE, **WITHIN}[name], {}, name)
    assert verdict.outcome == "refused" and verdict.value is None and verdict.reason
    assert time.monotonic() - started < 30
    assert children(worker_of(sandbox)) == []
    assert not Path("/tmp/left_behind").exists()


def test_verdicts(sandbox: Sandbox) -> None:
    program = "def solve(n, rate):\n    return n * rate"
    assert sandbox.run(program, {"n": 4, "rate": 2.5}, "row") == Verdict("value", 10.0)
    assert sandbox.run(program, {"n": 4}, "row") == Verdict("failed", None, "TypeError")
    failed = sandbox.run("def solve():\n    return 1 / 0", {}, "row")
    assert failed == Verdict("failed", None, "ZeroDivisionError")


def test_the_worker_has_no_environment_and_a_network_of_its_own(sandbox: Sandbox) -> None:
    proc = Path(f"/proc/{worker_of(sandbox)}")
    names = {item.partition(b"=")[0] for item in (proc / "environ").read_bytes().split(b"\0")}
    assert names <= {b"", b"LD_LIBRARY_PATH", b"LC_CTYPE"}
    assert os.readlink(proc / "cwd") == "/"


def test_programs_do_not_see_each_other(sandbox: Sandbox) -> None:
    """Each runs in a fork; the second would find what the first left."""
    first = "SEEN = [1]\ndef solve():\n    SEEN.append(1)\n    return len(SEEN)"
    assert [sandbox.run(first, {}, "row").value for _ in range(3)] == [2, 2, 2]


def test_threads_take_turns(sandbox: Sandbox) -> None:
    def run(n: int) -> int | float | None:
        return sandbox.run("def solve(n):\n    return n * n", {"n": n}, f"row {n}").value

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(run, range(100))) == [n * n for n in range(100)]


def test_a_death_is_an_error_and_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """What only the clock or the memory could end would be another verdict elsewhere."""
    cut = "import instella.synthesis.confinement as c; c.MEMORY_BYTES = 1 << 20; "
    monkeypatch.setattr(sandbox_module, "_START", sandbox_module._START.replace(
        "runpy.run_module", cut + "runpy.run_module"))  # fmt: skip
    wanted = r"^row 7: its program was ended by a guard"
    with Sandbox(filter_required=False) as small, pytest.raises(KitError, match=wanted):
        small.run("def solve():\n    return len([0] * 150000)", {}, "row 7")


def test_a_missing_filter_is_refused_unless_it_is_not_required(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cut = "import instella.synthesis.confinement as c; c._SECCOMP_MODE_FILTER = 99; "
    monkeypatch.setattr(sandbox_module, "_START", sandbox_module._START.replace(
        "runpy.run_module", cut + "runpy.run_module"))  # fmt: skip
    with pytest.raises(KitError, match="seccomp"), Sandbox():
        pass
    with Sandbox(filter_required=False) as weaker:
        assert weaker.run("def solve():\n    return 1", {}, "row").value == 1
        assert weaker.run(OUTSIDE["reads a file"], {}, "row").outcome == "refused"


def test_a_dead_worker_is_an_error() -> None:
    with Sandbox() as broken:
        os.kill(worker_of(broken), signal.SIGKILL)
        with pytest.raises(KitError, match="run the stage again"):
            broken.run("def solve():\n    return 1", {}, "row")


def test_a_stopped_worker_is_an_error_in_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the program does not fit into the pipe that nobody reads."""
    monkeypatch.setattr(sandbox_module, "CLOCK_SECONDS", 0.5)
    for program in ("def solve():\n    return 1", "\U0001f600" * (1 << 20)):
        with Sandbox() as broken:
            worker = worker_of(broken)
            os.kill(worker, signal.SIGSTOP)
            with pytest.raises(KitError, match=r"does not answer within 0.5 s; run the stage"):
                broken.run(program, {}, "row")
            assert not is_running(worker)
            with pytest.raises(KitError, match="is gone; run the stage again"):
                broken.run(program, {}, "row")


def test_a_reply_cut_in_the_middle_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = "import os; os.write(1, b'{\"outcome\":'); os._exit(0); "
    monkeypatch.setattr(sandbox_module, "_START", cut)
    with pytest.raises(KitError, match="process ended; run the stage again"), Sandbox():
        pass


def test_a_killed_caller_leaves_no_process() -> None:
    """Neither the worker nor the fork that a program keeps busy."""
    script = (
        "from instella.synthesis import sandbox\n"
        "more = 'import instella.synthesis.operations as o; o.Budget.__init__.__defaults__ = '\n"
        "more += '(1 << 40,); runpy.run_module'\n"
        "sandbox._START = sandbox._START.replace('runpy.run_module', more)\n"
        "with sandbox.Sandbox() as s:\n    print(s._worker.pid, flush=True)\n"
        "    s.run('def solve():\\n    while True:\\n        pass', {}, 'row')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE,
                          env=environment) as caller:  # fmt: skip
        assert caller.stdout is not None
        worker = int(caller.stdout.readline())
        while not (forks := children(worker)):
            time.sleep(0.01)
        caller.kill()
    left = [worker, *map(int, forks)]
    for _ in range(50):
        left = [process for process in left if is_running(process)]
        time.sleep(0.1 if left else 0)
    assert left == []


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
