"""A job survives the way to another process, and so does what went wrong there."""

import dataclasses
import io
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from instella.artifacts.handover import Handover, read_handover, run_handed_over, write_handover
from instella.artifacts.job import Job
from instella.errors import BadUse, Incomplete, KitError, Stopped, VerificationError
from instella.progress import Reporter
from instella.prove.copies import PROJECT
from instella.recipe.graph import build_graph
from instella.recipe.reader import read_recipe

RECIPE = PROJECT / "recipes" / "nano.yaml"


def _job(folder: Path) -> Job:
    recipe = read_recipe(RECIPE)
    stage = build_graph(recipe)["sft"]
    return Job(
        stage=stage.name,
        settings=stage.settings,
        inputs={role: folder / role for role in stage.inputs},
        output=folder / "output",
        scratch=folder / "a b,c:d",
        downloads=folder / "downloads",
        recipe_folder=RECIPE.parent,
        numerics=recipe.numerics,
        ranks=2,
        workers=3,
        units=(2, 5),
        report=Reporter(stage.name),
    )


def _run(script: str) -> str:
    stream = io.StringIO()
    run_handed_over([sys.executable, "-c", script], Reporter("toy", stream=stream))
    return stream.getvalue()


def test_round_trip(tmp_path: Path) -> None:
    job = _job(tmp_path)
    write_handover(tmp_path / "job.json", Handover(RECIPE, job))
    found, kind = read_handover(tmp_path / "job.json", job.report)
    assert kind == "finetune"
    assert found.recipe == RECIPE
    assert dataclasses.replace(found.job, settings=dict(job.settings)) == job
    assert dict(found.job.settings) == dict(job.settings)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "instella.job/1"}', "\0"])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "job.json"
    path.write_text(text)
    with pytest.raises(KitError, match=r"job\.json"):
        read_handover(path)
    with pytest.raises(BadUse, match=r"missing\.json"):
        read_handover(tmp_path / "missing.json")


def test_an_unknown_stage_is_refused(tmp_path: Path) -> None:
    job = dataclasses.replace(_job(tmp_path), stage="nothing")
    write_handover(tmp_path / "job.json", Handover(RECIPE, job))
    with pytest.raises(BadUse, match="has no stage 'nothing'"):
        read_handover(tmp_path / "job.json")


def test_lines_are_relayed() -> None:
    lines = "import sys; print('toy: one', file=sys.stderr); print('toy: two', file=sys.stderr)"
    assert _run(lines) == "toy: one\ntoy: two\n"


@pytest.mark.parametrize(
    ("code", "kind"), [(1, KitError), (2, BadUse), (3, Incomplete), (4, VerificationError)]
)
def test_errors_keep_their_class(code: int, kind: type[KitError]) -> None:
    script = f"import sys; print('instella: x: bad', file=sys.stderr); sys.exit({code})"
    with pytest.raises(KitError) as caught:
        _run(script)
    assert (type(caught.value), str(caught.value)) == (kind, "x: bad")


def test_a_death_is_told() -> None:
    memory = r"status -9 \(SIGKILL, most likely for lack of memory\) and no message"
    with pytest.raises(KitError, match=memory):
        _run("import os; os.kill(os.getpid(), 9)")
    with pytest.raises(KitError, match=r"status -15 \(SIGTERM\): last words"):
        _run(
            "import os, sys; print('last words', file=sys.stderr, flush=True); os.kill(os.getpid(), 15)"
        )
    with pytest.raises(KitError, match=r"status 137 \(SIGKILL"):
        _run("import sys; sys.exit(137)")
    with pytest.raises(KitError, match="status 3: last words"):
        _run("import sys; print('last words', file=sys.stderr); sys.exit(3)")


@pytest.mark.parametrize("code", [0, 1])
@pytest.mark.filterwarnings("error")
def test_no_pipe_stays_open(code: int) -> None:
    """Standard input is held open until the command ends, and closed then."""
    before = os.listdir("/proc/self/fd")
    script = f"import sys; sys.exit({code})"
    with pytest.raises(KitError) if code else nullcontext():
        run_handed_over([sys.executable, "-c", script], Reporter("toy"), stdin=subprocess.PIPE)
    assert len(os.listdir("/proc/self/fd")) == len(before)


def _run_ranks(folder: Path, script: str) -> str:
    """As ``_run``, for processes that write failures beside their job's file."""
    stream = io.StringIO()
    head = f"""
from pathlib import Path
from instella import errors
from instella.artifacts.handover import write_failure
job = Path({str(folder / "job.json")!r})
"""
    run_handed_over(
        [sys.executable, "-c", head + script],
        Reporter("toy", stream=stream),
        job_file=folder / "job.json",
    )
    return stream.getvalue()


def test_the_first_failure_of_several_processes_is_heard(tmp_path: Path) -> None:
    """Whatever status and last words the launcher has."""
    script = """
write_failure(job, errors.Stopped("toy: kept a checkpoint"))
write_failure(job, errors.VerificationError("a rank is gone"))
raise SystemExit("srun: error: n1: task 0: Exited with exit code 75")
"""
    with pytest.raises(Stopped, match=r"^toy: kept a checkpoint$"):
        _run_ranks(tmp_path, script)
    with pytest.raises(KitError, match=r"ended with status 1: srun: error: n2$"):
        _run_ranks(tmp_path, 'raise SystemExit("srun: error: n2")')


def test_a_full_disk_of_another_process_stays_one(tmp_path: Path) -> None:
    script = 'write_failure(job, OSError(28, "full", "/store/x")); raise SystemExit(1)'
    with pytest.raises(OSError, match="/store/x") as caught:
        _run_ranks(tmp_path, script)
    assert caught.value.errno == 28


def test_an_error_that_no_class_foresees_is_named(tmp_path: Path) -> None:
    script = 'write_failure(job, ValueError("odd")); raise SystemExit(1)'
    with pytest.raises(KitError, match=r"^ValueError: odd$"):
        _run_ranks(tmp_path, script)


def test_a_command_line_error_is_heard_behind_a_launchers_words(tmp_path: Path) -> None:
    """As when the disk was too full to write the failure."""
    script = """
import sys
print("instella: the disk is full", file=sys.stderr)
raise SystemExit("srun: error: n1: task 0: Exited with exit code 1")
"""
    with pytest.raises(KitError, match=r"^the disk is full$"):
        _run_ranks(tmp_path, script)
