"""What a condition changes is really changed, and what cannot be changed is said."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from instella.commands.prove import chosen
from instella.errors import BadUse
from instella.prove import conditions
from instella.prove.conditions import (
    CLOCK_LIBRARY,
    NOBODY,
    PLAIN,
    QUICK,
    SHIMS,
    SINGLE,
    Condition,
    possible,
)
from instella.prove.emulation import CPUS
from instella.prove.processes import SHARED_MEMORY, run

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root changes user and host name")
needs_clock = pytest.mark.skipif(not CLOCK_LIBRARY.is_file(), reason="faketime is not installed")


def _python(code: str, condition: Condition) -> str:
    """What a Python under a condition prints."""
    variables = {**condition.environment(), **condition.python_variables()}
    done = subprocess.run(
        [*condition.prefix(), sys.executable, "-c", code],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@needs_root
def test_user_and_host_change() -> None:
    condition = Condition("x", user=NOBODY, host="elsewhere")
    code = (
        "import os, socket; print(os.getuid(), os.getgid(), os.getgroups(), socket.gethostname())"
    )
    before = os.uname().nodename
    assert _python(code, condition) == f"{NOBODY} {NOBODY} [] elsewhere"
    assert os.uname().nodename == before


@needs_clock
def test_clock_is_shifted_and_waits_last_as_long() -> None:
    code = (
        "import threading, time; start = time.monotonic(); time.sleep(0.2); "
        "threading.Event().wait(0.2); print(time.time(), time.monotonic() - start)"
    )
    now, waited = map(float, _python(code, Condition("x", clock="+400d")).split())
    here = float(_python("import time; print(time.time())", PLAIN))
    assert abs(now - here - 400 * 86400) < 300
    assert 0.4 <= waited < 30


@needs_clock
@pytest.mark.parametrize("end", ["true", "kill -9 $$"])
def test_a_shifted_clock_leaves_nothing_in_shared_memory(tmp_path: Path, end: str) -> None:
    """Also where another program took the place of the first one, as Snakemake does of kit."""
    shifted = [*Condition("x", clock="+400d").prefix(), "sh", "-c"]
    before = set(SHARED_MEMORY.iterdir())
    made = f"ls {SHARED_MEMORY} | grep -c faketime; exec sh -c '{end}'"
    done = run([*shifted, made], tmp_path, 60.0)
    assert int(done.out) >= 2, "the library keeps its state there"
    assert {
        path for path in set(SHARED_MEMORY.iterdir()) - before if "faketime" in path.name
    } == set()


def test_folders_are_listed_in_reversed_order(tmp_path: Path) -> None:
    for name in ("b", "c", "a"):
        (tmp_path / name).touch()
    code = (
        f"import os, pathlib; f = pathlib.Path({str(tmp_path)!r}); print(os.listdir(f), "
        "[x.name for x in os.scandir(f)], list(os.walk(f))[0][2], [x.name for x in f.iterdir()])"
    )
    listed = _python(code, Condition("x", reversed_listing=True))
    assert listed == " ".join(["['c', 'b', 'a']"] * 4)
    assert SHIMS.is_dir()


def test_hash_seed_reaches_python() -> None:
    code = "print(hash('instella'))"
    first = _python(code, Condition("x", hash_seed="1"))
    assert first == _python(code, Condition("x", hash_seed="1"))
    assert first != _python(code, Condition("x", hash_seed="2"))


@pytest.mark.parametrize("condition", SINGLE, ids=lambda condition: condition.name)
def test_each_row_varies_one_thing(condition: Condition) -> None:
    changed = [
        name
        for name in vars(PLAIN)
        if name != "name" and getattr(condition, name) != getattr(PLAIN, name)
    ]
    assert len(changed) == 1
    assert str(condition) != str(PLAIN)


def test_quick_varies_all_that_the_rows_vary() -> None:
    for name in vars(PLAIN):
        if any(getattr(item, name) != getattr(PLAIN, name) for item in SINGLE):
            assert any(getattr(item, name) != getattr(PLAIN, name) for item in QUICK), name
    variables = {name for item in QUICK for name in item.variables}
    assert variables == {name for item in SINGLE for name in item.variables}


def test_what_cannot_be_made_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(conditions, "CLOCK_LIBRARY", tmp_path / "libfaketime.so.1")
    wanted = Condition("x", clock="+1d", ranks=2)
    left, reasons = possible(wanted)
    assert left == replace(wanted, clock=None)
    assert reasons == {"clock": "libfaketime.so.1 is missing: apt install faketime"}
    assert possible(Condition("x", ranks=2)) == (Condition("x", ranks=2), {})


def test_rows_are_chosen_by_name() -> None:
    everything, cpus = chosen(False, None)
    assert everything == [PLAIN, *SINGLE]
    assert cpus == list(CPUS)
    some, cpus = chosen(False, "ranks 4, emulated EPYC")
    assert [item.name for item in some] == ["plain", "ranks 4"]
    assert cpus == ["EPYC"]
    some, cpus = chosen(True, "warm store")
    assert [item.name for item in some] == ["one way", "warm store"]
    assert cpus == []
    with pytest.raises(BadUse, match="'ranks 3'"):
        chosen(False, "ranks 3")
