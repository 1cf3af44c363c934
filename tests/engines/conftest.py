"""verl in an environment of its own, a small model, and what verl says about both, asked once."""

import json
import os
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import GRADED, GROUPS, LENGTHS, loss_cases, random_ids, rewards_of
from safetensors.torch import load_file, save_file

from instella.canonical import write_jsonl
from instella.data.chat import CHAT_TEMPLATE, prompt_ids, with_suffix
from instella.data.tokenizer import Encoder, load, train_bpe, write_folder
from instella.engines.verl.configuration import Place, overrides
from instella.engines.verl.launch import VARIABLES
from instella.engines.verl.options import Options
from instella.engines.verl.prompts import (
    order_of,
    read_questions,
    template_of,
    write_training,
    write_validation,
)
from instella.engines.verl.words import as_words
from instella.network.folder import save_folder
from instella.network.network import Instella
from instella.recipe.reader import read_recipe
from instella.recipe.settings import Model, Recipe, Tokenizer

ROOT = Path(__file__).parents[2]
STAGES = ("grpo1", "grpo2", "grpo3")
SOAK = bool(os.environ.get("INSTELLA_SOAK"))
SETUP_SECONDS = 1800
CHECK_SECONDS = 900
SUFFIX = r"Let's think step by step and output the final answer within \boxed{}."
QUESTIONS = [f"What is {n} + {n * n}?\n\nShow {'it' if n % 2 else 'café ∑'}." for n in range(10)]
MODEL = Model(
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=2,
    vocab_size=512,
    max_position_embeddings=256,
)

# Heads as wide as those of the 3B; vLLM's CPU build has no attention for heads of 16.
HEADS_OF_80 = replace(MODEL, hidden_size=160, intermediate_size=96)


@dataclass(frozen=True)
class Answers:
    """What verl said: plain values and tensors, and what it was asked about."""

    said: dict[str, Any]
    tensors: dict[str, torch.Tensor]
    cases: dict[str, torch.Tensor]


@pytest.fixture(scope="session")
def full() -> Recipe:
    return read_recipe(ROOT / "recipes" / "instella-3b.yaml")


@pytest.fixture(scope="session")
def small(full: Recipe) -> Recipe:
    """The published recipe with a small GRPO 1: three epochs of three steps, and one prompt over."""
    chosen = full.stages.grpo1
    training = replace(chosen.training, global_batch=12, epochs=3, max_steps=None, seed=5)
    chosen = replace(
        chosen, prompts_per_step=3, samples_per_prompt=4, max_response_tokens=64,
        data=replace(chosen.data, max_prompt_tokens=128), training=training,
    )  # fmt: skip
    return replace(full, stages=replace(full.stages, grpo1=chosen))


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint in float32 with tokenizer and chat template."""
    folder = tmp_path_factory.mktemp("start")
    texts = [with_suffix(question, SUFFIX) for question in QUESTIONS]
    learned = train_bpe(texts, Tokenizer(kind="bpe", vocab_size=400))
    tokenizer = folder / "tokenizer"
    tokenizer.mkdir()
    write_folder(tokenizer, learned, 0, 1, CHAT_TEMPLATE)
    torch.manual_seed(3)
    network = Instella(MODEL, "native-cpu")
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn(parameter.shape) * 0.1)
    model = folder / "model"
    model.mkdir()
    save_folder(model, network, tokenizer, MODEL.max_position_embeddings)
    return model


@pytest.fixture(scope="session")
def encoder(start: Path) -> Encoder:
    return load(start)


@pytest.fixture(scope="session")
def tokens(encoder: Encoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a tokens stage makes of the questions."""
    folder = tmp_path_factory.mktemp("tokens")
    rows = [
        {
            "key": f"q{n}",
            "ids": prompt_ids(with_suffix(question, SUFFIX), encoder),
            "question": question,
            "answer": str(n + n * n),
        }
        for n, question in enumerate(QUESTIONS)
    ]
    write_jsonl(folder / "prompts.jsonl", rows)
    ledger = [{"source": f"s{n % 2}", "key": row["key"], "row": n} for n, row in enumerate(rows)]
    write_jsonl(folder / "documents.jsonl", ledger)
    return folder


@pytest.fixture(scope="session")
def rendered(
    small: Recipe, start: Path, tokens: Path, encoder: Encoder,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:  # fmt: skip
    """The two parquet files of the small stage."""
    folder = tmp_path_factory.mktemp("rendered")
    questions = read_questions(tokens, encoder, template_of(start))
    order = order_of(small.stages.grpo1, len(questions))
    assert write_training(folder / "train.parquet", questions, order) == 27
    held = {"set": [{"key": "h", "question": " 1+1? ", "answer": "2"}]}
    assert write_validation(folder / "validation.parquet", held, SUFFIX) == 1
    return folder


@pytest.fixture(scope="session")
def verl_python() -> Path:
    """Python of verl's environment, which is made where it is not there."""
    done = subprocess.run(
        [str(ROOT / "kit"), "setup", "verl"], capture_output=True, text=True, timeout=SETUP_SECONDS
    )
    assert done.returncode == 0, done.stderr
    return ROOT / ".venvs/verl/bin/python"


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """Of vLLM's environment, which is made where it is not there."""
    done = subprocess.run(
        [str(ROOT / "kit"), "setup", "vllm"], capture_output=True, text=True, timeout=SETUP_SECONDS
    )
    assert done.returncode == 0, done.stderr
    return ROOT / ".venvs/vllm/bin/python"


@pytest.fixture(scope="session")
def answers(
    verl_python: Path, full: Recipe, small: Recipe, start: Path, rendered: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Answers:  # fmt: skip
    folder = tmp_path_factory.mktemp("verl")
    place = Place(Path("/rendered"), start, 4, 8)
    words = {name: as_words(overrides(full, name, Options(), place)) for name in STAGES}
    words["small"] = as_words(overrides(small, "grpo1", Options(), Place(rendered, start, 1, 2)))
    cases = {**loss_cases(), "ids": random_ids()}
    cases |= {f"rewards.{name}": rewards_of(name) for name in GROUPS}
    names = sorted({name.split(".")[0] for name in loss_cases()})
    request = {
        "words": words, "start": str(start), "resume_at": [2, 3, 4, 6], "graded": GRADED,
        "cases": names, "groups": list(GROUPS), "lengths": LENGTHS,
    }  # fmt: skip
    (folder / "request.json").write_text(json.dumps(request))
    save_file(cases, folder / "cases.safetensors")
    script = str(Path(__file__).with_name("verl_checks.py"))
    done = subprocess.run(
        [str(verl_python), "-P", script, str(folder)], capture_output=True, text=True,
        timeout=CHECK_SECONDS, env=quiet_environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    said = json.loads((folder / "answers.json").read_bytes())
    return Answers(said, load_file(folder / "answers.safetensors"), cases)


def quiet_environment() -> dict[str, str]:
    """Of a process of verl on this machine."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # As rendered: importing verl then tells transformers of the model.
        "VERL_USE_EXTERNAL_MODULES": VARIABLES["VERL_USE_EXTERNAL_MODULES"],
    }


def checkpoint(folder: Path, shape: Model, seed: int, tokenizer: Path) -> Path:
    """A network whose logits have some spread, so that no two are nearly equal."""
    torch.manual_seed(seed)
    network = Instella(shape, "native-cpu")
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.1)
    folder.mkdir()
    save_folder(folder, network, tokenizer, shape.max_position_embeddings)
    return folder
