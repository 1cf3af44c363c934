"""How a training stage begins and what it publishes."""

import shutil
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from instella import canonical
from instella.artifacts.job import Job
from instella.errors import BadUse
from instella.network.device import device_of
from instella.network.folder import load_folder, save_folder
from instella.network.known_answer import check_network
from instella.network.network import Instella
from instella.recipe import settings
from instella.step_files import LEDGER, STEPS
from instella.training.checkpoint import OPTIMIZER, load_tensors
from instella.training.loop import CHECKPOINTS, KEPT, Trained

TRAINER = "trainer.json"


def start_network(
    folder: Path, numerics: str, length: int, rows: int, training: settings.Training
) -> Instella:
    """The network of a published folder in float32, able to take ``length`` tokens.

    In portable-x86 the machine's products are checked first.

    Args:
        folder: a Hugging Face folder.
        numerics: numerics class.
        length: tokens of a row; the position limit is raised to it if it is lower.
        rows: rows of a forward pass.
        training: base of the rotary embedding, and kernel of attention.

    Raises:
        BadUse: the kernel is not there.
    """
    network = load_folder(folder, numerics).float()
    check_network(network, rows * length)
    shape = network.settings
    wanted = replace(
        shape,
        max_position_embeddings=max(length, shape.max_position_embeddings),
        rope_theta=training.rope_theta or shape.rope_theta,
    )
    if wanted != shape:
        state = network.state_dict()
        network = Instella(wanted, numerics).to(device_of(numerics))
        network.load_state_dict(state)
    network.attend_by(training.attention)
    return network


def start_moments(
    folder: Path | None, training: settings.Training
) -> tuple[dict[str, Tensor], Path] | None:
    """Moments of the starting stage, or None where the stage begins without.

    Raises:
        BadUse: they are wanted and were not published.
    """
    if training.reset_optimizer:
        return None
    if folder is None:
        raise BadUse("reset_optimizer: false needs a stage to start from; init is scratch")
    path = folder / OPTIMIZER
    if not path.is_file():
        raise BadUse(
            f"{path}: no moments to continue: set keep_optimizer: true in the stage to start "
            "from, or reset_optimizer: true in this one"
        )
    return load_tensors(path), path


def publish(
    job: Job, trained: Trained, network: Instella, training: settings.Training, tokenizer: Path
) -> None:
    """Write the stage's artifact: the model folder, step lines, step ledger and a summary.

    With ``keep_checkpoints_every`` also ``checkpoints/step-NNNNNNNN``, weights and moments.

    Args:
        job: its output folder is filled.
        trained: the end of the run.
        network: its shape is published.
        training: decides whether the moments are published.
        tokenizer: folder with the tokenizer's files.
    """
    limit = network.settings.max_position_embeddings
    save_folder(job.output, network, tokenizer, limit, state=trained.weights)
    lines = trained.lines
    canonical.write_jsonl(job.output / STEPS, lines)
    canonical.write_bytes(job.output / LEDGER, b"".join(trained.ledger.lines))
    summary = {
        "steps": len(lines),
        "epochs": lines[-1]["epoch"] + 1,
        "tokens": sum(line["tokens"] for line in lines),
        "first_loss": lines[0]["loss"],
        "final_loss": lines[-1]["loss"],
    }
    canonical.write_json(job.output / TRAINER, summary)
    if training.keep_checkpoints_every is not None:
        # copied: a kill on the way leaves the next attempt all of them
        shutil.copytree(job.scratch / KEPT, job.output / CHECKPOINTS)
    if training.keep_optimizer:
        canonical.write_safetensors(job.output / OPTIMIZER, trained.moments)
