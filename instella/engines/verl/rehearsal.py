"""A few steps of a rendered stage through verl's own trainer, on CPUs.

The configuration is the production one, word by word, but for an overlay: two ranks without
accelerators, float32 throughout, the kit's rollout in vLLM's place, a checkpoint each step. What
the overlay does not name is as on the accelerators: data, order, reward, loss, optimizer,
checkpoints, resume and export.
"""

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from instella.canonical import read_jsonl, sha256_file
from instella.engines.verl.ask import PYTHON
from instella.engines.verl.configuration import CHECKPOINTS, METRICS, Place, overrides, policy
from instella.engines.verl.exported import ACTOR, COPY
from instella.engines.verl.launch import ROOT, environment
from instella.engines.verl.options import Options
from instella.engines.verl.words import as_words
from instella.engines.vllm.registration import python_path
from instella.errors import BadUse, KitError, VerificationError
from instella.recipe.settings import Recipe

RANKS = 2
LOG = "verl.log"
SECONDS = 3600.0
# Of a token's probability by rollout and by actor, in float32. On the trained network of tiny each
# of the two is up to 2.5e-6 from what float64 gives, so the largest may be a few times that; a
# wrong weight, position or temperature is far beyond.
MOST_MEAN, MOST = 1e-6, 1e-5
PREFIX = "training/rollout_probs_diff"
REWARD = "critic/score/mean"
MODULES = tuple(
    f"instella.engines.verl.{name}" for name in ("model", "cpu_platform", "cpu_rollout")
)
OBJECT_STORE_BYTES = 256 << 20
# Ray gives its own processes 30 s to start, written out in its code, which a busy machine may take.
RAY_WAS_LATE = b"The current node timed out during startup"
STARTS = 5


@dataclass(frozen=True)
class Rehearsal:
    """One run of verl's trainer in a folder that holds the stage's data.

    Attributes:
        recipe, stage: what is rehearsed.
        folder: absolute; gets checkpoints, metrics and verl's own output (``verl.log``).
        start: folder of the starting checkpoint.
        python: of an environment with verl.
        changes: further overrides, over the overlay.
        modules: further modules that verl imports in every process.
        paths: folders that hold them.
    """

    recipe: Recipe
    stage: str
    folder: Path
    start: Path
    python: Path = PYTHON
    changes: Mapping[str, Any] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    paths: tuple[Path, ...] = ()

    def run(self, seconds: float = SECONDS) -> None:
        """Train; started again in the same folder it goes on from the last checkpoint.

        Where Ray itself was too slow to start, before anything of verl ran, it is started anew.

        Args:
            seconds: limit of a start, after which everything that was started is ended.

        Raises:
            BadUse: there is no environment with verl.
            KitError: verl failed, with its last error, or did not end.
        """
        if not self.python.is_file():
            raise BadUse(f"{self.python}: no such file; make it with ./kit setup verl")
        for left in reversed(range(STARTS)):
            code, said = self._started(seconds)
            if not (code and left and RAY_WAS_LATE in said):
                break
        log = self.folder / LOG
        if code is None:
            raise KitError(f"{log}: verl did not end within {seconds:.0f} s")
        if code:
            raise KitError(f"verl ended with status {code}: {last_error(log)}")

    def _started(self, seconds: float) -> tuple[int | None, bytes]:
        """Status of one start, None where it did not end, and what it added to the log."""
        place = Place(self.folder, self.start, 1, RANKS)
        options = Options(attention="sdpa")
        with tempfile.TemporaryDirectory(prefix="ray-") as ray:
            chosen = {**overrides(self.recipe, self.stage, options, place), **overlay(ray)}
            words = as_words({**chosen, **self.changes})
            command = [str(self.python), "-P", "-m", "verl.trainer.main_ppo", *words]
            with (self.folder / LOG).open("a+b") as log:
                before = log.seek(0, os.SEEK_END)
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    env=self._environment(options, place, ray), cwd=self.folder, start_new_session=True,
                )  # fmt: skip
                with _ended(process):
                    code = _wait(process, seconds)
                log.seek(before)
                return code, log.read()

    def _environment(self, options: Options, place: Place, ray: str) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            # Ray writes a token of its own there.
            "HOME": ray,
            **environment(options, place, ROOT),
            "PYTHONPATH": ":".join((python_path(ROOT), *map(str, self.paths))),
            "VERL_PLATFORM": "cpu",
            "VERL_USE_EXTERNAL_MODULES": ",".join((*MODULES, *self.modules)),
            "OMP_NUM_THREADS": "1",
            # Ray would end workers where other programs take most of the memory.
            "RAY_memory_monitor_refresh_ms": "0",
        }

    def figures(self) -> list[dict[str, Any]]:
        """What verl logged of each step, in order: ``step`` and ``data``."""
        path = self.folder / METRICS
        rows = {row["step"]: row for row in read_jsonl(path) if REWARD in row["data"]}
        return [rows[step] for step in sorted(rows)]

    def weights(self, step: int) -> dict[str, str]:
        """SHA-256 of each file of weights of a step's checkpoint."""
        folder = self.folder / CHECKPOINTS / f"global_step_{step}" / ACTOR / COPY
        found = {path.name: sha256_file(path) for path in sorted(folder.glob("*.safetensors"))}
        if not found:
            raise VerificationError(f"{folder}: no weights; verl did not write this checkpoint")
        return found

    def check(self, steps: int) -> None:
        """Every step was made, and the rollout sampled from what the trainer computes.

        Raises:
            VerificationError: a step is missing, or the probabilities of a step's tokens
                differ by ``MOST_MEAN`` or more in the mean, or one by ``MOST``.
        """
        rows = self.figures()
        if [row["step"] for row in rows] != list(range(1, steps + 1)):
            raise VerificationError(f"{self.folder / METRICS}: not the steps 1 to {steps}")
        for row in rows:
            data = row["data"]
            mean, largest = data[f"{PREFIX}_mean"], data[f"{PREFIX}_max"]
            # NaN fails too.
            if data[f"{PREFIX}_valid"] != 1 or not (mean < MOST_MEAN and largest < MOST):
                raise VerificationError(
                    f"step {row['step']}: the probabilities of rollout and actor differ by {mean} "
                    f"in the mean and {largest} at most; below {MOST_MEAN:g} and {MOST:g} is wanted"
                )


def overlay(ray_folder: str) -> dict[str, Any]:
    """What differs from production, in verl's words; ``+`` where production has it too."""
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    found: dict[str, Any] = {
        "trainer.device": "cpu",
        "trainer.save_freq": 1,
        f"{rollout}.dtype": "float32",
        f"{rollout}.agent.num_workers": 1,
        "reward.num_workers": 1,
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
        # Pretended, see ``cpu_platform``; CPUs are booked by name only.
        "++ray_kwargs.ray_init.num_gpus": RANKS,
        "ray_kwargs.ray_init.num_cpus": 16,
        "++ray_kwargs.ray_init.address": "local",
        "++ray_kwargs.ray_init.include_dashboard": False,
        "++ray_kwargs.ray_init.object_store_memory": OBJECT_STORE_BYTES,
        "++ray_kwargs.ray_init._temp_dir": ray_folder,
    }
    for engine in (f"{actor}.fsdp_config", "actor_rollout_ref.ref.fsdp_config"):
        found[f"{engine}.dtype"] = "float32"
        found[f"+{engine}.mixed_precision.param_dtype"] = "fp32"
    return found


def shortened(recipe: Recipe, stage: str, steps: int) -> Recipe:
    """The recipe with a GRPO stage that ends after so many steps.

    Raises:
        BadUse: not a GRPO stage.
    """
    chosen = policy(recipe, stage)
    limit = min(steps, chosen.training.max_steps or steps)
    training = replace(chosen.training, max_steps=limit)
    changed: dict[str, Any] = {stage: replace(chosen, training=training)}
    return replace(recipe, stages=replace(recipe.stages, **changed))


def last_error(log: Path) -> str:
    """The last line of a log that names an exception; else the last line."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    told = [line.strip() for line in lines if re.search("Error|^Exception:", line.split("(")[0])]
    return (told or lines or ["without a word"])[-1][:400]


def _wait(process: "subprocess.Popen[bytes]", seconds: float) -> int | None:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


@contextmanager
def _ended(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Ends what was started. Ray's own processes end with the one that started them."""
    try:
        yield
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
