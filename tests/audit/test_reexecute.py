"""Stages and segments computed again: equal bytes, forged steps, kept checkpoints."""

import errno
import io
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from audit_runs import PRETRAIN, TRAINING, graph_of, make_run, write_tokenizer, write_tokens

from benchmarks.plants import rewrite_file
from instella.artifacts.handover import run_handed_over
from instella.artifacts.job import Job
from instella.artifacts.lineage import sound_manifests
from instella.artifacts.store import Store
from instella.audit.reexecute import Outcome, Reexecution, kept_steps, ledgers_of
from instella.audit.sample import Unit, units
from instella.audit.steps import read_ledger
from instella.canonical import json_bytes
from instella.errors import BadUse, KitError, MachineError, Stopped, VerificationError
from instella.progress import Reporter
from instella.recipe.graph import Stage
from instella.stages import pretrain

LEDGER = "steps.ledger.jsonl"


def again(
    results: Path, graph: dict[str, Stage] | None = None, flipped: int | None = None
) -> Reexecution:
    """A re-execution; whole stages are the small functions that made the run."""
    graph = graph or graph_of()
    functions: dict[str, Callable[[Job], None]] = {
        "tokens": lambda job: write_tokens(job.output, 64, flipped),
        "tokenizer": lambda job: write_tokenizer(job.output),
        "train": pretrain.run,
    }
    return Reexecution(
        recipe_file=results / "recipe.yaml", graph=graph,
        manifests=sound_manifests(results, graph), store=Store(results.parent.parent / "store"),
        numerics="portable-x86", downloads=results, bad=frozenset(),
        report=Reporter("audit", stream=io.StringIO()), contained=functions.get,
    )  # fmt: skip


def ran(job: Reexecution, *chosen: Unit) -> list[tuple[Unit, str]]:
    ledgers, odd = ledgers_of(job.store, job.graph, job.manifests, ())
    assert odd == []
    outcomes: list[Outcome] = job.run(chosen, ledgers)
    return [(outcome.unit, outcome.state) for outcome in outcomes]


def test_units_are_stages_and_segments(toy_run: Path) -> None:
    job = again(toy_run)
    ledgers, _ = ledgers_of(job.store, job.graph, job.manifests, ())
    found = units(job.graph, job.manifests, ledgers)
    ends = [Unit("train", 0, 1), Unit("train", 1, 3), Unit("train", 3, 6), Unit("train", 6, 8)]
    assert found == [Unit("tokens"), Unit("tokenizer"), *ends]


def test_sound_units_are_equal(toy_run: Path) -> None:
    chosen = (Unit("tokens"), Unit("train", 0, 1), Unit("train", 3, 6))
    job = again(toy_run)
    assert ran(job, *chosen) == [(unit, "equal") for unit in chosen]
    assert job.faults == []


def test_a_stage_that_makes_other_bytes(toy_run: Path) -> None:
    job = again(toy_run, flipped=5)
    assert ran(job, Unit("tokens"), Unit("tokenizer")) == [
        (Unit("tokens"), "differs"),
        (Unit("tokenizer"), "equal"),
    ]
    (fault,) = job.faults
    assert (fault.stage, fault.kind, fault.file) == ("tokens", "re-execution", "tokens.npy")
    assert fault.dependants == ("train",)


def test_a_forged_step_is_found_in_its_segment(toy_copy: Path) -> None:
    """Bytes, manifest and content fit each other; only the numbers are not what they should be."""
    path = toy_copy / "train" / LEDGER
    rows = path.read_bytes().splitlines(keepends=True)
    line = json.loads(rows[4])
    line["loss"] = "ab" * 32
    rows[4] = json_bytes(line)
    rewrite_file(toy_copy, "train", LEDGER, b"".join(rows), Store(toy_copy.parent.parent / "store"))
    job = again(toy_copy)
    early = Unit("train", 1, 3)
    assert ran(job, early) == [(early, "equal")] and job.faults == []
    states = ran(job, early, Unit("train", 3, 6), Unit("train", 6, 8))
    assert [state for _, state in states] == ["equal", "differs", "not run"]
    # The last segment is the whole stage, so the file is named too.
    whole, fault = job.faults
    assert (whole.file, fault.file) == (LEDGER, f"{LEDGER}, step 5")
    assert fault.expected.startswith("loss ") and fault.found == "ab" * 8


def test_inputs_at_fault_are_not_built_on(toy_run: Path) -> None:
    job = replace(again(toy_run), bad=frozenset({"tokens"}))
    assert ran(job, Unit("train", 0, 1)) == [(Unit("train", 0, 1), "not run")]


def test_kept_checkpoints_change_no_other_byte(
    kept_run: tuple[Path, dict[str, Stage]], toy_run: Path
) -> None:
    results, graph = kept_run
    kept, plain = (sound_manifests(run, graph)["train"] for run in (results, toy_run))
    assert kept_steps(kept) == [3, 6] and kept_steps(plain) == []
    others = {path: entry for path, entry in kept.files.items() if "checkpoints/" not in path}
    assert others == dict(plain.files)


def test_a_run_that_was_broken_off_keeps_the_same_checkpoints(
    kept_run: tuple[Path, dict[str, Stage]], tmp_path: Path
) -> None:
    """Resumed from step 4: the first kept one is older, the second is made after it."""
    results, graph = kept_run
    often = replace(TRAINING, keep_checkpoints_every=3, save_every=2)
    changed = graph_of(replace(PRETRAIN, training=often))
    other = make_run(tmp_path / "run", changed, dies_after=5)
    one, two = sound_manifests(results, graph)["train"], sound_manifests(other, changed)["train"]
    assert one.files == two.files


def test_a_segment_starts_from_a_kept_checkpoint(kept_run: tuple[Path, dict[str, Stage]]) -> None:
    """Also the last one, whose weights are then compared."""
    results, graph = kept_run
    job = again(results, graph)
    ledgers, _ = ledgers_of(job.store, job.graph, job.manifests, ())
    chosen = [Unit("train", 3, 6), Unit("train", 6, 8)]
    outcomes = job.run(chosen, ledgers)
    assert [(one.first, one.state) for one in outcomes] == [(3, "equal"), (6, "equal")]


def test_a_forged_kept_checkpoint_is_found(
    kept_run: tuple[Path, dict[str, Stage]], tmp_path: Path
) -> None:
    results, graph = kept_run
    base = tmp_path / "run"
    shutil.copytree(results.parent.parent, base)
    results = base / "results" / "toy"
    file = "checkpoints/step-00000003/model.safetensors"
    data = bytearray((results / "train" / file).read_bytes())
    data[-2] ^= 1
    rewrite_file(results, "train", file, bytes(data), Store(base / "store"))
    job = again(results, graph)
    assert ran(job, Unit("train", 3, 6)) == [(Unit("train", 3, 6), "differs")]
    assert "kept checkpoint of step 3 is not what the step ledger says" in job.faults[0].found


def killed(job: Job) -> None:
    """As when the kernel ends the process for lack of memory."""
    run_handed_over([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], job.report)


def raising(error: Exception) -> Callable[[Job], None]:
    def function(job: Job) -> None:
        raise error

    return function


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (raising(BadUse("no engine answers")), "no engine answers"),
        (raising(MachineError("docker ended")), "docker ended"),
        (raising(Stopped("asked to stop")), "asked to stop"),
        (raising(OSError(errno.ENOSPC, "full", "/x")), "/x: No space left on device"),
        (killed, "status -9"),
    ],
)
def test_the_auditors_own_reasons_are_no_faults(
    toy_run: Path, function: Callable[[Job], None], reason: str
) -> None:
    job = replace(again(toy_run), contained=lambda name: function)
    ledgers, _ = ledgers_of(job.store, job.graph, job.manifests, ())
    (outcome,) = job.run([Unit("tokens")], ledgers)
    assert outcome.state == "not run" and reason in outcome.detail
    assert job.faults == []


@pytest.mark.parametrize("error", [KitError("odd"), VerificationError("tokens: bad row")])
def test_a_stage_that_fails_on_its_inputs_is_at_fault(toy_run: Path, error: Exception) -> None:
    job = replace(again(toy_run), contained=lambda name: raising(error))
    assert ran(job, Unit("tokens")) == [(Unit("tokens"), "differs")]
    assert [fault.found for fault in job.faults] == [str(error)]


def test_an_object_that_cannot_be_copied_is_no_fault(toy_copy: Path) -> None:
    """The store's folder went away behind the audit's back."""
    shutil.rmtree(toy_copy.parent.parent / "store" / "sha256")
    job = again(toy_copy)
    (outcome,) = job.run([Unit("train", 0, 1)], {})
    assert outcome.state == "not run" and "No such file" in outcome.detail and job.faults == []


def test_a_stage_cannot_reach_the_store_through_its_inputs(toy_copy: Path) -> None:
    """Neither a byte nor a time of an object changes, whatever is done to the inputs."""
    store = toy_copy.parent.parent / "store"

    def state() -> dict[Path, tuple[int, int, int]]:
        found = {path: path.stat() for path in store.rglob("*") if path.is_file()}
        return {p: (s.st_ctime_ns, s.st_mtime_ns, s.st_nlink) for p, s in found.items()}

    def spoil(job: Job) -> None:
        path = job.inputs["tokens"] / "tokens.npy"
        path.chmod(0o644)
        path.write_bytes(b"spoilt")

    before = state()
    job = replace(again(toy_copy), contained=lambda name: spoil)
    assert ran(job, Unit("train", 6, 8)) == [(Unit("train", 6, 8), "differs")]
    assert ran(job, Unit("train", 0, 1)) == [(Unit("train", 0, 1), "equal")]
    assert state() == before


@pytest.mark.parametrize(
    ("numerics", "state"), [("portable-x86", "equal"), ("native-cpu", "not run")]
)
def test_segments_of_a_container_are_run_on_the_host_where_that_has_its_bytes(
    toy_run: Path, numerics: str, state: str
) -> None:
    job = again(toy_run)
    train = job.manifests["train"]
    inside = replace(train, identity={**train.identity, "image": "sha256:aa"})
    job = replace(job, manifests={**job.manifests, "train": inside}, numerics=numerics)
    ledgers, _ = ledgers_of(job.store, job.graph, job.manifests, ())
    (outcome,) = job.run([Unit("train", 0, 1)], ledgers)
    assert outcome.state == state
    assert ("made in a container" in outcome.detail) == (state == "not run")
    assert job.faults == []


def test_a_training_artifact_without_its_step_lines(toy_run: Path) -> None:
    job = again(toy_run)
    train = job.manifests["train"]
    files = {path: entry for path, entry in train.files.items() if path != "steps.jsonl"}
    job = replace(job, manifests={**job.manifests, "train": replace(train, files=files)})
    assert ran(job, Unit("train", 0, 1)) == [(Unit("train", 0, 1), "differs")]
    assert [(fault.file, fault.found) for fault in job.faults] == [
        ("steps.jsonl", "no such file in the artifact")
    ]


def test_a_ledger_of_more_steps_than_training_has(toy_copy: Path) -> None:
    """Step 9 is invented: the replay of its segment ends before it."""
    path = toy_copy / "train" / LEDGER
    rows = path.read_bytes().splitlines(keepends=True)
    rows.append(json_bytes(json.loads(rows[-1]) | {"step": 9}))
    rows.append(json_bytes(json.loads(rows[-1]) | {"step": 10}))
    data = b"".join(rows)
    rewrite_file(toy_copy, "train", LEDGER, data, Store(toy_copy.parent.parent / "store"))
    job = again(toy_copy)
    assert ran(job, Unit("train", 8, 9)) == [(Unit("train", 8, 9), "differs")]
    assert [fault.found for fault in job.faults] == ["train: training ends before step 9"]


def test_a_replay_with_fewer_lines_than_asked(toy_run: Path, tmp_path: Path) -> None:
    job = again(toy_run)
    path = toy_run / "train" / LEDGER
    short = tmp_path / "short"
    short.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:3]))
    assert job._compare_ledger("train", short, read_ledger(path), 6) == 4
    assert (job.faults[0].expected, job.faults[0].found) == ("3 lines as computed", "6 lines")
