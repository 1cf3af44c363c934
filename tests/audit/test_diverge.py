"""Two runs with one difference: `diverge` names the right step, tensor and cause."""

import io
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from audit_runs import LENGTH, PRETRAIN, TRAINING, graph_of, make_run

from benchmarks.plants import rewrite_file
from instella import cli
from instella.artifacts.identity import lock_hash
from instella.artifacts.store import Store
from instella.audit import difference
from instella.audit.diverge import diverge, lines
from instella.audit.rerun_step import _start, replay_step
from instella.audit.runs import open_run
from instella.audit.steps import StepDifference
from instella.canonical import json_bytes, sha256_bytes
from instella.progress import Reporter
from instella.prove.copies import PROJECT
from instella.recipe.graph import Stage
from instella.recipe.settings import Optimizer
from instella.training.order import epoch_order

HERE = Path(__file__).parent


def compared(left: Path, right: Path):
    runs = open_run("A", left, None, None), open_run("B", right, None, None)
    return diverge(*runs)


def test_equal_runs(toy_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = make_run(tmp_path / "same")
    assert cli.main(["diverge", str(toy_run), str(other)]) == 0
    assert capsys.readouterr().out == "equal: 3 stages\n"


def test_one_data_bit(toy_run: Path, tmp_path: Path) -> None:
    """The step is the one that takes the window with the token; nothing before it differs."""
    order = epoch_order(64, TRAINING.seed, 0)
    window = int(order[4 * TRAINING.global_batch + 1])
    token = window * LENGTH + 5
    other = make_run(tmp_path / "b", graph_of(marker="y"), flipped=token)
    found = compared(toy_run, other)
    first, training = found.trails
    assert found.origins == ("tokens",) and first.stage == "tokens"
    place = first.files["tokens.npy"].findings[0]
    assert place.place == f"[{token}]" and "1 of 2048 elements" in place.extent
    assert abs(int(place.left) - int(place.right)) == 1
    assert training.stage == "train" and training.inputs == ("tokens",)
    assert training.cause == "data"
    assert training.step is not None and training.step.step == 5
    assert training.step.fields == ("loss",)
    assert training.step.digested == 6 and "parameter.lm_head.weight" in training.step.tensors
    assert "loss" in [item.place for item in training.figures]
    assert "model.safetensors" in training.files


def test_one_learning_rate(toy_run: Path, tmp_path: Path) -> None:
    changed = replace(TRAINING, optimizer=Optimizer(learning_rate=0.011))
    other = make_run(tmp_path / "b", graph_of(replace(PRETRAIN, training=changed)))
    (trail,) = compared(toy_run, other).trails
    assert (trail.stage, trail.cause) == ("train", "setting")
    assert str(trail.evidence[0]) == (
        "setting pretrain.training.optimizer.learning_rate: 0.01 | 0.011"
    )
    assert trail.step is not None
    # Step 1 computes the same loss and gradients from the same weights, then moves further.
    assert (trail.step.step, trail.step.fields) == (1, ("rate",))
    assert trail.step.equal == ("cursor", "rng", "loss")
    names = {name.partition(".")[0] for name in trail.step.tensors}
    assert names == {"parameter"} and trail.step.total > len(trail.step.tensors)
    shown = "\n".join(lines(compared(toy_run, other)))
    assert "likely cause: setting" in shown and "step 1: rate differ" in shown


def test_one_seed(toy_run: Path, tmp_path: Path) -> None:
    changed = replace(PRETRAIN, training=replace(TRAINING, seed=12))
    (trail,) = compared(toy_run, make_run(tmp_path / "b", graph_of(changed))).trails
    assert (trail.stage, trail.cause) == ("train", "data order, by another seed")
    assert str(trail.evidence[0]) == "setting pretrain.training.seed: 11 | 12"
    assert trail.step is not None and trail.step.step == 1
    assert trail.step.fields[:2] == ("cursor", "rng")


def test_one_seed_of_the_weights(toy_run: Path, tmp_path: Path) -> None:
    (trail,) = compared(
        toy_run, make_run(tmp_path / "b", graph_of(replace(PRETRAIN, init_seed=4)))
    ).trails
    assert (trail.cause, trail.step and trail.step.fields) == ("seed", ("loss",))


def made_with(folder: Path, numerics_class: str, *variables: str) -> str:
    """A run of long sums made in a process of its own with these variables."""
    command = [sys.executable, str(HERE / "audit_runs.py"), str(folder), numerics_class, *variables]
    subprocess.run(
        command, check=True, timeout=300, cwd=PROJECT,
        env={"PYTHONPATH": str(PROJECT), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    return str(folder)


def test_one_thread_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The step is replayed in both settings, and the operation that differs is a product."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    folders = [
        made_with(tmp_path / count, "native-cpu", *(f"{name}={count}" for name in names))
        for count in ("1", "2")
    ]
    report = tmp_path / "report.json"
    code = cli.main(["diverge", *folders, "--json", str(report)])
    if code == 0:
        pytest.skip("this machine's library gives the same bits with one thread and with two")
    found = json.loads(report.read_bytes())
    assert code == 1 and report.read_bytes() == json_bytes(found)
    (trail,) = found["trails"]
    assert trail["cause"] == "thread setting"
    assert [item["name"] for item in trail["evidence"][:2]] == [
        "variable MKL_NUM_THREADS",
        "variable OMP_NUM_THREADS",
    ]
    assert trail["step"]["step"] == 1 and trail["step"]["fields"] == ["loss"]
    assert any(name.startswith("exp_avg.") for name in trail["step"]["tensors"])
    assert "mm.default" in trail["operation"] and "ULP max" in trail["operation"]
    assert "equal inputs, unequal outputs" in trail["operation"]
    assert "replay: operation" in capsys.readouterr().out


def test_one_vector_width(tmp_path: Path) -> None:
    """Sums over 8 lanes and over fewer: other bits on every x86-64 CPU with AVX2."""
    folders = [
        made_with(tmp_path / width, "native-cpu", f"ATEN_CPU_CAPABILITY={width}")
        for width in ("avx2", "default")
    ]
    report = tmp_path / "report.json"
    assert cli.main(["diverge", *folders, "--json", str(report)]) == 1
    (trail,) = json.loads(report.read_bytes())["trails"]
    assert trail["cause"] == "numerics class"
    assert trail["evidence"][0]["name"] == "variable ATEN_CPU_CAPABILITY"
    assert trail["operation"].startswith("operation ")
    assert "equal inputs, unequal outputs" in trail["operation"]
    assert "ULP max" in trail["operation"]


def test_a_difference_that_no_identity_tells_is_replayed(
    toy_copy: Path, toy_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """B's loss of step 3 is another one: this machine repeats A."""
    forge_step(toy_copy, 3)
    assert cli.main(["diverge", str(toy_run), str(toy_copy)]) == 1
    shown = capsys.readouterr().out
    assert "likely cause: not recorded" in shown
    assert "step 3: loss differ; equal: cursor, rng, rate" in shown
    assert "is that of A: B was made by something that its identity does not tell" in shown


def test_a_replay_starts_from_a_kept_checkpoint(
    kept_run: tuple[Path, dict[str, Stage]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results, _ = kept_run
    shutil.copytree(results, tmp_path / "b" / "results" / "toy")
    other = tmp_path / "b" / "results" / "toy"
    forge_step(other, 5)
    left, right = open_run("A", results, None, None), open_run("B", other, None, None)
    step = diverge(left, right).trails[0].step
    assert step is not None and step.step == 5
    report = Reporter("test", stream=io.StringIO())
    text = replay_step(left, right, "train", step, [], report)
    assert "step 5 made here" in text and "is that of A" in text
    start = _start(left, "train", 5)
    assert start is not None and start[1] == 3


def forge_step(results: Path, step: int) -> None:
    """Another loss in one line of the step ledger, with manifest and views that fit it."""
    path = results / "train" / "steps.ledger.jsonl"
    rows = path.read_bytes().splitlines(keepends=True)
    line = json.loads(rows[step - 1])
    line["loss"] = "0" * 64
    rows[step - 1] = json_bytes(line)
    rewrite_file(results, "train", "steps.ledger.jsonl", b"".join(rows))


def test_bytes_that_are_not_the_manifests_are_one_line(
    toy_copy: Path, toy_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forge_step(toy_copy, 3)
    path = toy_copy / "train" / "steps.ledger.jsonl"
    path.chmod(0o644)
    path.write_bytes(b"{}\n")
    assert cli.main(["diverge", str(toy_run), str(toy_copy), "--no-replay"]) == 4
    said = capsys.readouterr().err
    assert said.startswith("instella: B: train: steps.ledger.jsonl: expected sha256")
    assert said.count("\n") == 1


def test_a_stage_that_one_run_lacks(toy_copy: Path, toy_run: Path) -> None:
    (toy_copy / "train" / "manifest.json").unlink()
    found = compared(toy_run, toy_copy)
    assert found.differing == ("train",) and found.trails[0].missing == "B"
    assert list(lines(found)) == [
        "first difference: train has no result in B",
        "in one of the runs only, so not compared: train",
    ]
    assert found.origins == () and found.absent == ("train",)


@pytest.mark.parametrize(
    ("name", "code"), [("nothing here", 2), ("empty", 2), ("two", 2), ("broken", 4)]
)
def test_what_is_no_run_is_one_line(
    toy_run: Path, tmp_path: Path, name: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    for recipe in ("one", "other"):
        (tmp_path / "two" / "results" / recipe / "stage").mkdir(parents=True)
        (tmp_path / "two" / "results" / recipe / "stage" / "manifest.json").write_text("{}")
    (tmp_path / "broken" / "stage").mkdir(parents=True)
    (tmp_path / "broken" / "stage" / "manifest.json").write_bytes(b"[" * 100_000)
    assert cli.main(["diverge", str(toy_run), str(tmp_path / name)]) == code
    assert capsys.readouterr().err.count("\n") == 1


def test_side_by_side(toy_run: Path, tmp_path: Path) -> None:
    changed = replace(TRAINING, optimizer=Optimizer(learning_rate=0.011))
    other = make_run(tmp_path / "b", graph_of(replace(PRETRAIN, training=changed)), flipped=9)
    runs = open_run("A", toy_run, None, None), open_run("B", other, None, None)
    found = difference.difference(*runs)
    assert [str(item) for item in found["settings"]] == [
        "pretrain.training.optimizer.learning_rate: 0.01 | 0.011  (train)"
    ]
    assert found["code"] == found["lock"] == found["numerics"] == []
    shown = list(difference.lines(*runs, found))
    assert shown[1] == "stages: 3 | 3, 1 with equal content"
    assert "code: equal" in shown


def alter_identity(results: Path, **changes: object) -> None:
    """Another identity of ``train`` in its manifest; the content stays."""
    path = results / "train" / "manifest.json"
    value = json.loads(path.read_bytes())
    value["identity"] |= changes
    path.write_bytes(json_bytes(value))


def remember_code(results: Path, modules: object) -> str:
    """A code record in the store beside the results; returns its hash."""
    data = json_bytes(modules)
    folder = results.parent.parent / "store" / "code"
    folder.mkdir(exist_ok=True)
    (folder / sha256_bytes(data)).write_bytes(data)
    return sha256_bytes(data)


def cause_of(left: Path, right: Path) -> tuple[str, list[str]]:
    (trail,) = compared(left, right).trails
    return trail.cause, [str(item) for item in trail.evidence]


@pytest.mark.parametrize(
    ("fact", "cause"),
    [("cpu", "hardware"), ("torch", "library version"), ("ranks", "not recorded")],
)
def test_facts_of_the_journals(toy_copy: Path, toy_run: Path, fact: str, cause: str) -> None:
    forge_step(toy_copy, 3)
    journal = toy_copy / "journal" / "train.jsonl"
    line = json.loads(journal.read_bytes())
    manifest = json.loads((toy_copy / "train" / "manifest.json").read_bytes())
    line |= {"content": manifest["content"], fact: 77 if fact == "ranks" else "another"}
    journal.write_bytes(json_bytes(line))
    found, facts = cause_of(toy_run, toy_copy)
    assert found == cause
    assert len(facts) == 1 and facts[0].startswith(f"journal: {fact}: ")


def test_code_is_told_by_module(toy_copy: Path, toy_run: Path) -> None:
    forge_step(toy_copy, 3)
    one = json.loads((toy_run / "train" / "manifest.json").read_bytes())["identity"]["code"]
    known = json.loads((toy_copy.parent.parent / "store" / "code" / one).read_bytes())
    other = {**known, "instella.training.loop": "ab" * 32, "instella.new": "cd" * 32}
    alter_identity(toy_copy, code=remember_code(toy_copy, other))
    found, facts = cause_of(toy_run, toy_copy)
    assert found == "code" and facts[0] == f"code instella.new: no such module | {'cd' * 8}"
    assert facts[1].startswith("code instella.training.loop: ") and len(facts) == 2


def test_a_lock_is_told_by_package(toy_copy: Path, toy_run: Path) -> None:
    forge_step(toy_copy, 3)
    own = PROJECT / "requirements" / "run.lock"
    for results, old, new in ((toy_run, "", ""), (toy_copy, "numpy==2", "numpy==1")):
        lock = results.parent.parent / "requirements" / "run.lock"
        lock.parent.mkdir(exist_ok=True)
        lock.write_text(own.read_text().replace(old, new, 1) if old else own.read_text())
    alter_identity(toy_copy, lock=lock_hash(toy_copy.parent.parent / "requirements" / "run.lock"))
    found, facts = cause_of(toy_run, toy_copy)
    assert found == "library version"
    assert len(facts) == 1 and facts[0].startswith("package numpy: 2.")


def test_numerics_class_and_image(toy_copy: Path, toy_run: Path) -> None:
    forge_step(toy_copy, 3)
    alter_identity(toy_copy, numerics={"class": "native-cpu", "pins": {}}, image="sha256:aa")
    found, facts = cause_of(toy_run, toy_copy)
    assert found == "numerics class"
    assert facts[0] == "numerics class: 'portable-x86' | 'native-cpu'"
    assert facts[-1] == "image: None | 'sha256:aa'"


def replayed(left: Path, right: Path, **options: float) -> str:
    """What a replay of step 3 says."""
    runs = open_run("A", left, None, None), open_run("B", right, None, None)
    step, report = StepDifference(3, None, ("loss",)), Reporter("test", stream=io.StringIO())
    return replay_step(*runs, "train", step, [], report, **options)


def test_steps_of_a_container_are_not_replayed(toy_run: Path, tmp_path: Path) -> None:
    sides = [tmp_path / name / "results" / "toy" for name in ("a", "b")]
    for side in sides:
        shutil.copytree(toy_run, side)
        alter_identity(side, image="sha256:aa")
    forge_step(sides[1], 3)
    assert replayed(*sides) == (
        "not made: both were made in a container, and steps are run again on the host"
    )


def alter_settings(results: Path, **changes: int) -> None:
    """Another network in the manifest's settings; the files stay."""
    path = results / "train" / "manifest.json"
    settings = json.loads(path.read_bytes())["identity"]["settings"]
    settings["model"] |= changes
    alter_identity(results, settings=settings)


def test_a_replay_is_bounded_by_what_the_run_shows(toy_run: Path, tmp_path: Path) -> None:
    """Settings of a huge network over small weights, a step without figures, and CPU time."""
    sides = [tmp_path / name / "results" / "toy" for name in ("a", "b")]
    for side in sides:
        shutil.copytree(toy_run, side)
    forge_step(sides[1], 3)
    said = replayed(*sides, cpu_hours=1 / 3600)
    assert "not made" in said and "status -" in said and "(--cpu-hours)" in said
    for side in sides:
        lines = (side / "train" / "steps.jsonl").read_bytes().splitlines(keepends=True)[:2]
        rewrite_file(side, "train", "steps.jsonl", b"".join(lines))
    assert "step 3 has no line in steps.jsonl" in replayed(*sides)
    for side in sides:
        alter_settings(side, vocab_size=1 << 40)
    assert "parameters, and model.safetensors has" in replayed(*sides)


def test_a_code_record_that_holds_something_else(toy_copy: Path) -> None:
    """Its name is the hash of its bytes, and those are no modules."""
    store = Store(toy_copy.parent.parent / "store")
    for value in ([1], {"a": 1}, "text", {}):
        code = remember_code(toy_copy, value)
        assert store.code_modules(code) is None
        assert open_run("A", toy_copy, None, None).closure(code) is None
    path = store.root / "code" / sha256_bytes(b"[" * 100_000)
    path.write_bytes(b"[" * 100_000)
    assert store.code_modules(path.name) is None
    assert store.code_modules(remember_code(toy_copy, {"a": "b"})) == {"a": "b"}
