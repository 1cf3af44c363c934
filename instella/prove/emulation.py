"""Stages of a recipe on another CPU, emulated by Debian's qemu-user.

The emulator does exact arithmetic under another CPU's CPUID: it shows which kernels the
libraries choose there, not what that CPU's silicon does. Two things stay the host's:
``/proc/cpuinfo``, so the check for AVX2 and FMA at a stage's start looks at the host (what
torch chose is checked by CPUID, so the emulated CPU decides there), and every further
program that a stage starts, such as the worker that grades answers.
"""

import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from instella.prove.processes import Finished, run
from instella.prove.recorded import first_different_file
from instella.prove.rows import DIFFERS, EQUAL, FAILED, NOT_RUN, Row, Task, copy_of
from instella.recipe.graph import Stage

EMULATOR = "qemu-x86_64"
CPUS = ("Haswell", "EPYC")


def row_name(cpu: str) -> str:
    """Name of the row of an emulated CPU."""
    return f"emulated {cpu}"


def first_of_kinds(graph: Mapping[str, Stage]) -> Iterator[str]:
    """The first stage of each kind, in the graph's order."""
    seen = set()
    for name, stage in graph.items():
        if stage.kind not in seen:
            seen.add(stage.kind)
            yield name


def emulated_row(task: Task, cpu: str, native: Row) -> Row:
    """One stage of each kind, made again under an emulated CPU from native inputs.

    Args:
        task: of the native run.
        cpu: CPU model that the emulator knows.
        native: a finished run of the recipe.
    """
    name, varied = row_name(cpu), f"CPU {cpu} by qemu-user, one stage of each kind"
    if shutil.which(EMULATOR) is None:
        return Row(name, varied, NOT_RUN, f"{EMULATOR} is missing: apt install qemu-user")
    if native.folder is None or not native.manifests:
        return Row(name, varied, NOT_RUN, "the native run did not come to its end")
    copy = copy_of(task.place / name / "project", task.recipe_file)
    shutil.copytree(native.folder, copy.folder, symlinks=True)
    started = time.monotonic()
    status, why = EQUAL, ""
    for stage in first_of_kinds(copy.graph()):
        task.say(f"{name}: {stage}")
        copy.forget(stage)
        left = task.timeout - (time.monotonic() - started)
        done = _emulate(copy.folder, cpu, stage, left)
        if done is None or done.code:
            words = f"not done after {task.timeout:.0f} s" if done is None else done.err
            status, why = FAILED, f"{stage}: {(words.strip().splitlines() or ['?'])[-1]}"
            break
    manifests = copy.manifests() if status == EQUAL else {}
    difference = first_different_file(native.manifests, manifests) if manifests else None
    if difference:
        status, why = DIFFERS, difference
    return Row(name, varied, status, why, time.monotonic() - started, copy.folder, manifests)


def _emulate(folder: Path, cpu: str, stage: str, seconds: float) -> Finished | None:
    """Run one stage under the emulator; None if it took too long."""
    command = [EMULATOR, "-cpu", cpu, sys.executable, "-m", "instella", "stage", stage]
    try:
        return run(command, folder, seconds)
    except TimeoutError:
        return None
