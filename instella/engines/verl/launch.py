"""The folder from which a stage is run by verl: overrides, environment, launch line, data."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from instella.canonical import write_bytes
from instella.engines.verl.configuration import (
    METRICS,
    MODEL_MODULE,
    Place,
    overrides,
)
from instella.engines.verl.options import Options
from instella.engines.verl.words import as_words
from instella.engines.vllm.registration import python_path
from instella.errors import BadUse
from instella.recipe.settings import Recipe

OVERRIDES, ENVIRONMENT, SCRIPT = "overrides.txt", "environment.sh", "run.sh"
FINISHED = "finished"
PORT = 6379
ROOT = Path(__file__).resolve().parents[3]

# A worker of verl ends when it finds ROCR_VISIBLE_DEVICES beside one of the others, and Ray
# gives each worker its accelerators itself.
UNSET = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
VARIABLES: Mapping[str, str] = {
    "HF_HUB_OFFLINE": "1",
    "HYDRA_FULL_ERROR": "1",
    "PYTHONHASHSEED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TOKENIZERS_PARALLELISM": "false",
    "WANDB_MODE": "offline",
    # Ray would hide the accelerators from actors that book none, as vLLM's server is one.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Ray waits 30 s for the other nodes; a file system of many readers is slower.
    "RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT": "600",
    # Every process of Ray that imports verl then knows the model.
    "VERL_USE_EXTERNAL_MODULES": MODEL_MODULE,
    "VERL_PLATFORM": "amd",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    # As in the published environment, and as verl's own ROCm image has it.
    "HIP_FORCE_DEV_KERNARG": "1",
    "HSA_NO_SCRATCH_RECLAIM": "1",
    "NCCL_MIN_NCHANNELS": "112",
    "TORCH_BLAS_PREFER_HIPBLASLT": "1",
}


@dataclass(frozen=True)
class Rendered:
    """The text files of a stage, by name."""

    files: Mapping[str, str]

    def write(self, folder: Path) -> None:
        """Write them into an existing folder; the script can be executed."""
        for name, text in self.files.items():
            write_bytes(folder / name, text.encode("utf-8"))
        (folder / SCRIPT).chmod(0o755)


def render(
    recipe: Recipe, stage: str, options: Options, place: Place, root: Path = ROOT
) -> Rendered:
    """The configuration, environment and launch line of one stage.

    Args:
        recipe: of the stage.
        stage: ``grpo1``, ``grpo2`` or ``grpo3``.
        options: what the settings leave open.
        place: where it runs.
        root: folder that holds the kit's package, seen by every node.

    Raises:
        BadUse: not a GRPO stage, or one that verl cannot do as the settings say.
    """
    words = as_words(overrides(recipe, stage, options, place))
    variables = environment(options, place, root)
    exports = [f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()]
    return Rendered(
        {
            OVERRIDES: "".join(f"{word}\n" for word in words),
            ENVIRONMENT: f"unset {' '.join(UNSET)}\n{''.join(exports)}",
            SCRIPT: _script(recipe, stage, place),
        }
    )


def environment(options: Options, place: Place, root: Path) -> dict[str, str]:
    """Variables of every process, by name."""
    found = {
        **VARIABLES,
        "PYTHONPATH": python_path(root),
        "VERL_FILE_LOGGER_PATH": str(place.folder / METRICS),
        **(options.environment or {}),
    }
    for name in UNSET:
        if name in found:
            raise BadUse(
                f"environment.{name}: Ray gives each worker its accelerators; leave it out"
            )
    return dict(sorted(found.items()))


def _script(recipe: Recipe, stage: str, place: Place) -> str:
    head = (
        f"#!/bin/bash\n"
        f"# Stage {stage} of {recipe.name} by verl; made by `instella engines render`.\n"
        f"# PYTHON: a Python that has verl, on every node; by default the first in PATH.\n"
        f"set -euo pipefail\n"
        f'cd "$(dirname -- "$(readlink -f -- "$0")")"\n'
        f". ./{ENVIRONMENT}\n"
        f'python=$(command -v "${{PYTHON:-python3}}")\n'
        # Ray starts its own command by name.
        f'export PATH="$(dirname -- "$python"):$PATH"\n'
        f"mapfile -t overrides <{OVERRIDES}\n"
        f'train=("$python" -m verl.trainer.main_ppo "${{overrides[@]}}")\n'
    )
    if place.nodes == 1:
        return head + 'exec "${train[@]}"\n'
    return head + (
        f': "${{SLURM_JOB_NODELIST:?start this inside a SLURM job of {place.nodes} nodes}}"\n'
        'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n'
        # Ray's command ends with status 0 also where Ray did not start.
        f"rm -f {FINISHED}\n"
        f"srun --nodes={place.nodes} --ntasks={place.nodes} --ntasks-per-node=1 "
        "--kill-on-bad-exit=1 --export=ALL \\\n"
        '    "$python" -m ray.scripts.scripts symmetric-run '
        f'--address "$head:{PORT}" --min-nodes {place.nodes} '
        f"--num-gpus={place.accelerators} --include-dashboard=false -- \\\n"
        f'    bash -c \'"$@" && touch {FINISHED}\' train "${{train[@]}}"\n'
        f"[ -e {FINISHED} ] || {{ echo 'verl did not run to its end' >&2; exit 1; }}\n"
    )
