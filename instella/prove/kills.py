"""SIGKILL at a random moment of a stage, and whether the next run makes up for it.

One kill: the stage is forgotten, ``./kit run`` starts to compute it, a victim is killed,
``./kit run`` goes on, and then everything must be as in the undisturbed run.
"""

import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

from instella.errors import KitError
from instella.prove.finished import RecipeRun, computed, damaged_objects, partial_files
from instella.prove.processes import descendants, kill_tree, kit, start
from instella.recipe.graph import Stage

STAGE, RANK, SNAKEMAKE, ALL = "the stage", "one rank", "Snakemake", "all"
VICTIMS = (STAGE, RANK, SNAKEMAKE, ALL)
# A stage that does not train is one process.
OTHER_VICTIMS = (STAGE, SNAKEMAKE, ALL)
CORES = "2"
START_SECONDS = 300.0
END_SECONDS = 900.0
POLL_SECONDS = 0.001
# About as long as writing a small checkpoint takes.
WRITING_SECONDS = 0.02
# How the multiprocessing module marks the processes that it starts.
RANK_MARK = "--multiprocessing-fork"

Found = TypeVar("Found")


@dataclass(frozen=True)
class Plan:
    """One kill.

    Attributes:
        stage: which is at work.
        victim: what is killed.
        fraction: moment, as a part of the stage's measured duration.
        writing: the moment is in the writing of a checkpoint instead.
        ranks: processes of the stage that is killed; the next run has one.
    """

    stage: str
    victim: str
    fraction: float
    writing: bool
    ranks: int


@dataclass(frozen=True)
class Killed:
    """What a kill hit.

    Attributes:
        at_work: the stage was still computing.
        found: the victim was alive.
        writing: a checkpoint was being written.
    """

    at_work: bool
    found: bool
    writing: bool


def plans(graph: Mapping[str, Stage], count: int, seed: int) -> list[Plan]:
    """Kills spread evenly over all stages of a graph, in random order, from a seed.

    Victims take turns; only stages that train have ranks to kill. About half of
    the kills of such stages aim at the writing of a checkpoint. What is left of a whole
    round is drawn.
    """
    chance = random.Random(seed)
    made = []
    # The last round may be a part of the graph, which then is drawn.
    whole = count - count % len(graph)
    rest = range(whole, whole + len(graph))
    places = [*range(whole), *chance.sample(rest, count - whole)]
    for number in places:
        turn, place = divmod(number, len(graph))
        stage = list(graph)[place]
        trained = graph[stage].trains
        victims = VICTIMS if trained else OTHER_VICTIMS
        victim = victims[(place + turn) % len(victims)]
        ranks = 2 if victim == RANK else chance.choice((1, 2))
        writing = trained and chance.random() < 0.5
        made.append(Plan(stage, victim, chance.random(), writing, ranks))
    chance.shuffle(made)
    return made


def kill(run: RecipeRun, plan: Plan, seconds: float) -> Killed:
    """Forget a stage, start the run, and kill the victim; nothing is left running but
    what outlives a killed Snakemake.

    Args:
        run: a finished run; it is altered.
        plan: what to kill when.
        seconds: measured duration of the stage.

    Raises:
        KitError: the stage did not start.
    """
    run.forget(plan.stage)
    with tempfile.TemporaryFile("w+b") as log:
        options = ["--cores", CORES, "--config", f"ranks={plan.ranks}"]
        process = start(["./kit", "run", *options], run.folder, log, log)
        try:
            work = _wait_for_work(run, process)
            moment = time.monotonic() + plan.fraction * seconds
            # Looked up beforehand: it takes longer than writing a small checkpoint.
            victims = _wait_for_victims(process, plan, work)
            if plan.writing:
                _until(lambda: _unfinished(work) or not work.exists(), process, END_SECONDS)
                moment = time.monotonic() + plan.fraction * WRITING_SECONDS
            time.sleep(max(0.0, moment - time.monotonic()))
            at_work, writing = work.exists(), bool(_unfinished(work))
            found = _kill(process, plan, victims)
        except BaseException:
            kill_tree(process)
            raise
    return Killed(at_work, found, writing or bool(_unfinished(work)))


def go_on(run: RecipeRun, undisturbed: RecipeRun, plan: Plan, *targets: str) -> list[str]:
    """``./kit run`` after a kill; every way in which the end is not the undisturbed one.

    Args:
        run: what was killed.
        undisturbed: the run it was copied from.
        plan: the kill.
        targets: files to make, instead of the whole recipe.
    """
    faults = [f"damaged object {name} after the kill" for name in damaged_objects(run.store)]
    faults += [f"partial file {path} after the kill" for path in partial_files(run)]
    before = run.journal()
    done = kit(run.folder, "--cores", CORES, *targets, timeout=END_SECONDS)
    if done.code:
        return [*faults, f"status {done.code}: {done.err[-500:]}"]
    others = computed(run.outcomes_since(before)) - {plan.stage}
    faults += [f"{stage} was computed again" for stage in sorted(others)]
    if run.root() != undisturbed.root():
        faults.append(f"root {run.root()}, undisturbed {undisturbed.root()}")
    if run.manifest_bytes() != undisturbed.manifest_bytes():
        faults.append("manifests are not those of the undisturbed run")
    faults += [f"damaged object {name}" for name in damaged_objects(run.store)]
    faults += [f"partial file {path}" for path in partial_files(run)]
    faults += [f"left over: {path.name}" for path in (run.store / "work").glob("*")]
    return faults


def _wait_for_work(run: RecipeRun, process: "subprocess.Popen[bytes]") -> Path:
    """The folder of the stage at work, as soon as it is there."""
    found = _until(
        lambda: next((run.store / "work").glob("*/output"), None), process, START_SECONDS
    )
    if found is None:
        raise KitError(f"{run.folder}: no stage began to compute within {START_SECONDS:.0f} s")
    return found.parent


def _wait_for_victims(
    process: "subprocess.Popen[bytes]", plan: Plan, work: Path
) -> list[psutil.Process]:
    """The processes of which one is to be killed, as soon as they are there."""
    found: list[psutil.Process] = []

    def look() -> bool:
        if plan.victim in (SNAKEMAKE, ALL):
            with suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(process.pid))
        else:
            found.extend(item for item in descendants(process.pid) if _is_victim(item, plan))
        return bool(found) or not work.exists()

    _until(look, process, START_SECONDS)
    return found


def _until(
    look: Callable[[], Found], process: "subprocess.Popen[bytes]", seconds: float
) -> Found | None:
    """What ``look`` finds, asked again and again; None when the process or the time ends."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = look()
        if found or process.poll() is not None:
            return found or None
        time.sleep(POLL_SECONDS)
    return None


def _unfinished(work: Path) -> list[Path]:
    """Checkpoints of a stage that are being written, or were when it was killed."""
    return list((work / "scratch").rglob("unfinished-*"))


def _kill(process: "subprocess.Popen[bytes]", plan: Plan, victims: list[psutil.Process]) -> bool:
    """Kill the victim; whether it lived. Waits until Snakemake has ended."""
    alive = False
    for item in victims[:1]:
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            if plan.victim == ALL:
                os.killpg(item.pid, signal.SIGKILL)
            else:
                item.kill()
            alive = True
    if plan.victim == ALL:
        kill_tree(process)
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        kill_tree(process)
        raise KitError(f"Snakemake did not end after {plan.victim} of {plan.stage} died") from None
    return alive


def _is_victim(process: psutil.Process, plan: Plan) -> bool:
    """The process that runs the stage, or one that it started to share the work."""
    with suppress(psutil.NoSuchProcess):
        words = process.cmdline()
        if plan.victim == RANK:
            return RANK_MARK in words
        return {"instella", plan.stage} <= set(words)
    return False
