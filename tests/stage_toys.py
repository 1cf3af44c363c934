"""The four training stages on a toy network whose every token is a word or a boxed answer.

Each makes six steps in two epochs, saves after each second one, and has fewer micro-batches
than four ranks.
"""

import hashlib
import io
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from instella.artifacts.job import Job
from instella.canonical import write_jsonl, write_npy
from instella.data.tokenizer import END_OF_TEXT, PADDING, write_folder
from instella.network.folder import save_folder
from instella.network.network import Instella
from instella.progress import Reporter
from instella.recipe.settings import (
    ChatData,
    Finetune,
    Model,
    Optimizer,
    Policy,
    Preference,
    Pretrain,
    PretrainData,
    PromptData,
    Schedule,
    Training,
)
from instella.stages import finetune, policy, preference, pretrain
from instella.training.reduction import Group

NUMERICS = "portable-x86"
SHAPE = Model(
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    vocab_size=16,
    max_position_embeddings=8,
)
QUESTIONS = ("1+1=", "1+2=", "2+2=", "3+2=")
ANSWERS = ("2", "3", "4", "5")
STEPS = 6
EXAMPLES = 13
TRAINING = Training(
    global_batch=4,
    micro_batch=2,
    optimizer=Optimizer(learning_rate=0.02),
    schedule=Schedule("linear"),
    seed=11,
    epochs=2,
    save_every=2,
    ledger_every=4,
)
STAGES: dict[str, ModuleType] = {
    "pretrain": pretrain,
    "finetune": finetune,
    "preference": preference,
    "policy": policy,
}
UPDATES_PER_STEP = {"pretrain": 1, "finetune": 1, "preference": 1, "policy": 2}
SETTINGS: dict[str, Any] = {
    "pretrain": Pretrain(PretrainData(8, ()), replace(TRAINING, keep_optimizer=True), init_seed=3),
    "finetune": Finetune(ChatData(12, ()), TRAINING, "start"),
    "preference": Preference(ChatData(12, ()), TRAINING, "start"),
    "policy": Policy(
        data=PromptData(max_prompt_tokens=3, parts=()),
        training=replace(TRAINING, global_batch=8, micro_batch=4),
        init="start",
        prompts_per_step=2,
        samples_per_prompt=8,
        max_response_tokens=3,
    ),
}


def write_start(folder: Path, tokenizer: Path) -> None:
    """A folder with a random network; ids 14 and 15 are padding rows of the embedding."""
    words = [END_OF_TEXT, PADDING, *QUESTIONS, *(f"\\boxed{{{n}}}" for n in range(8))]
    backend = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, END_OF_TEXT))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens([AddedToken(word, special=True) for word in words[:2]])
    write_folder(tokenizer, backend.to_str().encode(), 0, 1, "")
    network = Instella(SHAPE, NUMERICS)
    generator = np.random.Generator(np.random.PCG64(3))
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() == 2:
                values = generator.integers(-128, 128, parameter.shape) / 512.0
                parameter.copy_(torch.from_numpy(values.astype(np.float32)))
    save_folder(folder, network, tokenizer, SHAPE.max_position_embeddings)


def write_prompts(folder: Path, answers: tuple[str, ...] = ANSWERS, count: int = 4) -> None:
    """``count`` prompts that ask the questions in turn."""
    rows = [
        {
            "key": f"q{n}",
            "ids": [0, 2 + n % 4],
            "question": QUESTIONS[n % 4],
            "answer": answers[n % 4],
        }
        for n in range(count)
    ]
    write_jsonl(folder / "prompts.jsonl", rows)


def write_inputs(folder: Path) -> Path:
    """Start, tokenizer and tokens of every kind, in folders of their names."""
    for name in ("start", "tokenizer", *STAGES):
        (folder / name).mkdir(parents=True)
    write_start(folder / "start", folder / "tokenizer")
    random = np.random.default_rng(0)
    tokens = random.integers(2, 14, 8 * EXAMPLES + 3)
    write_npy(folder / "pretrain" / "tokens.npy", tokens.astype(np.uint16))
    write_rows(folder / "finetune", "", random)
    write_rows(folder / "preference", "chosen_", random)
    write_rows(folder / "preference", "rejected_", random)
    write_prompts(folder / "policy", count=6)
    return folder


def write_rows(folder: Path, prefix: str, random: np.random.Generator) -> None:
    """Rows of 12 tokens with labels from the fourth to a random one."""
    ids = random.integers(2, 14, (EXAMPLES, 12)).astype(np.uint16)
    mask = np.zeros(ids.shape, dtype=bool)
    for row, end in enumerate(random.integers(5, 12, EXAMPLES)):
        mask[row, 3:end] = True
        ids[row, end:] = 1
    write_npy(folder / f"{prefix}input_ids.npy", ids)
    write_npy(folder / f"{prefix}label_mask.npy", mask)


def toy_job(kind: str, inputs: Path, folder: Path, chosen: Any = None, **changes: Any) -> Job:
    """A job in ``folder``: an empty output, and the scratch as an earlier one left it."""
    shutil.rmtree(folder / "output", ignore_errors=True)
    roles = {"tokens": inputs / kind, "tokenizer": inputs / "tokenizer"}
    if kind != "pretrain":
        roles["init"] = inputs / "start"
    settings = {"model": SHAPE, kind: chosen or SETTINGS[kind]}
    return job_in(folder, kind, settings, roles, **changes)


def job_in(
    folder: Path,
    stage: str,
    settings: Mapping[str, Any],
    inputs: Mapping[str, Path],
    **changes: Any,
) -> Job:
    """A job with ``output`` and ``scratch`` in a folder, made if they are missing."""
    for name in ("output", "scratch"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    values: dict[str, Any] = {
        "stage": stage,
        "settings": settings,
        "inputs": inputs,
        "output": folder / "output",
        "scratch": folder / "scratch",
        "downloads": folder,
        "recipe_folder": folder,
        "numerics": NUMERICS,
        "ranks": 1,
        "report": Reporter(stage, stream=io.StringIO()),
    }
    return Job(**{**values, **changes})


def run_toy(kind: str, inputs: Path, folder: Path, chosen: Any = None, **changes: Any) -> Path:
    """Run a stage; its output."""
    job = toy_job(kind, inputs, folder, chosen, **changes)
    STAGES[kind].run(job)
    return job.output


def run_all(
    group: Group,
    inputs: Path,
    folder: Path,
    numerics: str = NUMERICS,
    kinds: Iterable[str] = tuple(STAGES),
) -> None:
    """Several kinds in the processes of one group."""
    for kind in kinds:
        place = folder / kind if group.rank == 0 else folder / f"{kind}-{group.rank}"
        job = toy_job(kind, inputs, place, numerics=numerics, ranks=group.ranks)
        STAGES[kind]._run(group, replace(job, scratch=folder / kind / "scratch"))


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of each file of a folder."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
