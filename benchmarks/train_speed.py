"""Tokens a second of training: the kit against transformers' Trainer and a bare loop.

    ./kit setup peers
    .venv/bin/python -m benchmarks.train_speed [--rounds N]

Stock numerics, one thread, fp32, the same network, tokens, micro-batches, AdamW and clipping;
each side a process of its own, all three in turn. What counts is CPU time from the finished
network to the weights in a file, of the second of two calls in a process, so without start-up:

- ours: the stage, with its log, journal and step ledger (tensors digested every 100 steps);
- Trainer: ``Trainer.train`` and ``save_model`` with its defaults, on ``InstellaForCausalLM``;
- bare: a loop in the manner of nanoGPT: batches from one array, ``cross_entropy``, fused AdamW,
  ``clip_grad_norm_``, a line every ten steps.
"""

import argparse
import math
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import record
from instella.prove.copies import PROJECT
from instella.prove.processes import run

NUMERICS = "native-cpu"
PEERS = PROJECT / ".venvs" / "peers" / "bin" / "python"
ONE_THREAD = {
    "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
}  # fmt: skip
TIMEOUT_SECONDS = 3600.0
SEED, LEARNING_RATE, CLIP = 7, 1e-3, 1.0
BETAS, EPSILON, WEIGHT_DECAY = (0.9, 0.95), 1e-8, 0.1
OURS, TRAINER, BARE = "ours", "trainer", "bare"
TARGETS = {TRAINER: 1.3, BARE: 0.95}


@dataclass(frozen=True)
class Shape:
    """A network, and batches of ``micro`` windows, ``accumulated`` of them a step."""

    hidden: int
    inner: int
    layers: int
    heads: int
    vocabulary: int
    length: int
    micro: int
    accumulated: int
    steps: int

    @property
    def windows(self) -> int:
        """Windows of the whole run."""
        return self.micro * self.accumulated * self.steps


# "tiny" is the model and the pretraining batch of recipes/tiny.yaml.
SHAPES = {
    "tiny": Shape(64, 176, 2, 2, 1024, 128, 2, 4, 200),
    "larger": Shape(256, 704, 4, 4, 4096, 256, 4, 1, 30),
}


def main() -> int:
    """Measure and record; 1 when a ratio is below its target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--side", nargs=2, metavar=("SIDE", "SHAPE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        side, name = args.side
        # the first time loads modules and fills caches
        for _ in range(2):
            with tempfile.TemporaryDirectory(prefix="train-speed-") as temporary:
                print(SIDES[side](SHAPES[name], Path(temporary)))
        return 0
    if not PEERS.is_file():
        raise SystemExit("the peers are not there; ./kit setup peers puts them there")
    lines = ["| shape | tokens a second of CPU time: ours | Trainer | bare | ours / Trainer | "
             "ours / bare |", "|---|---|---|---|---|---|"]  # fmt: skip
    good = True
    for name, shape in SHAPES.items():
        turns = [{side: seconds(side, name) for side in SIDES} for _ in range(args.rounds)]
        ratios = {
            peer: statistics.median(turn[peer] / turn[OURS] for turn in turns) for peer in TARGETS
        }
        good &= all(ratios[peer] >= target for peer, target in TARGETS.items())
        speeds = [
            shape.windows * shape.length / statistics.median(turn[side] for turn in turns)
            for side in SIDES
        ]
        spread = {
            peer: sorted(turn[peer] / turn[OURS] for turn in turns)[:: args.rounds - 1 or 1]
            for peer in TARGETS
        }
        lines.append(
            f"| {name} | {speeds[0]:,.0f} | {speeds[1]:,.0f} | {speeds[2]:,.0f} | "
            + " | ".join(
                f"{ratios[peer]:.2f} ({', '.join(f'{value:.2f}' for value in spread[peer])})"
                for peer in TARGETS
            )
            + " |"
        )
    lines += ["", f"- rounds: {args.rounds}; in brackets the lowest and the highest",
              f"- targets: {TARGETS[TRAINER]:g} and {TARGETS[BARE]:g}"]  # fmt: skip
    record("Training, stock numerics, against its peers", lines)
    return int(not good)


def seconds(side: str, shape: str) -> float:
    """CPU seconds of one side's training.

    Raises:
        SystemExit: it failed.
    """
    python = str(PEERS) if side == TRAINER else sys.executable
    command = [python, "-m", "benchmarks.train_speed", "--side", side, shape]
    done = run(command, PROJECT, TIMEOUT_SECONDS, ONE_THREAD)
    if done.code:
        raise SystemExit(f"{side}, {shape}: ended with {done.code}\n{done.err}")
    return float(done.out.split()[-1])


def random_tokens(shape: Shape) -> Any:
    """The same windows for each side, uint16 [windows, length]."""
    import numpy as np

    random = np.random.Generator(np.random.Philox(key=SEED))
    size = (shape.windows, shape.length)
    return random.integers(0, shape.vocabulary, size=size, dtype=np.uint16)


def model_of(shape: Shape) -> Any:
    """The network's settings."""
    from instella.recipe.settings import Model

    return Model(
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        vocab_size=shape.vocabulary,
        max_position_embeddings=shape.length,
    )


def ours(shape: Shape, folder: Path) -> float:
    """The pretraining stage, as ``instella stage`` calls it."""
    from benchmarks.stage_jobs import job_of, pretrain_inputs
    from instella.recipe import settings
    from instella.stages import pretrain

    training = settings.Training(
        global_batch=shape.micro * shape.accumulated,
        micro_batch=shape.micro,
        optimizer=settings.Optimizer(
            learning_rate=LEARNING_RATE, beta1=BETAS[0], beta2=BETAS[1], epsilon=EPSILON,
            weight_decay=WEIGHT_DECAY, max_grad_norm=CLIP,
        ),
        schedule=settings.Schedule(kind="linear"),
        seed=SEED,
        ledger_every=100,
        # the peers keep none either
        save_every=shape.steps,
    )  # fmt: skip
    data = settings.PretrainData(shape.length, ())
    chosen = settings.Pretrain(data, training)
    inputs = pretrain_inputs(folder, random_tokens(shape).ravel())
    wanted = {"model": model_of(shape), "pretrain": chosen}
    job = job_of("measured", wanted, inputs, folder, NUMERICS)
    before = time.process_time()
    pretrain.run(job)
    return time.process_time() - before


def trainer(shape: Shape, folder: Path) -> float:
    """transformers' Trainer; in ``.venvs/peers``."""
    import torch
    from transformers import Trainer, TrainingArguments

    from instella.model.configuration import InstellaConfig
    from instella.model.modeling import InstellaForCausalLM

    model = InstellaForCausalLM(
        InstellaConfig(
            vocab_size=shape.vocabulary,
            hidden_size=shape.hidden,
            intermediate_size=shape.inner,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            max_position_embeddings=shape.length,
        )
    )
    tokens = torch.from_numpy(random_tokens(shape).astype("int64"))
    rows = [{"input_ids": row, "labels": row} for row in tokens]
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=shape.micro,
        gradient_accumulation_steps=shape.accumulated,
        num_train_epochs=1,
        learning_rate=LEARNING_RATE,
        adam_beta1=BETAS[0],
        adam_beta2=BETAS[1],
        adam_epsilon=EPSILON,
        weight_decay=WEIGHT_DECAY,
        max_grad_norm=CLIP,
        lr_scheduler_type="linear",
        use_cpu=True,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        seed=SEED,
    )
    before = time.process_time()
    side = Trainer(model=model, args=arguments, train_dataset=rows)
    side.train()
    side.save_model(str(folder / "saved"))
    spent = time.process_time() - before
    assert side.state.global_step == shape.steps, side.state.global_step
    return spent


def bare(shape: Shape, folder: Path) -> float:
    """A loop with nothing around it."""
    import numpy as np
    import torch
    from safetensors.torch import save_model
    from torch.nn.functional import cross_entropy

    from instella.network.init import initialize
    from instella.network.network import Instella

    network = Instella(model_of(shape), NUMERICS)
    initialize(network, SEED)
    tokens = random_tokens(shape)
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=LEARNING_RATE, betas=BETAS, eps=EPSILON,
        weight_decay=WEIGHT_DECAY, fused=True,
    )  # fmt: skip
    before = time.process_time()
    order = np.random.Generator(np.random.Philox(key=SEED)).permutation(len(tokens))
    place = 0
    for step in range(shape.steps):
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * (1 - step / shape.steps)
        for _ in range(shape.accumulated):
            ids = torch.from_numpy(tokens[order[place : place + shape.micro]].astype(np.int64))
            place += shape.micro
            logits = network(ids[:, :-1])
            loss = cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()) / shape.accumulated
            loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 10 == 0:
            value = loss.item() * shape.accumulated
            assert math.isfinite(value)
            print(f"step {step}: loss {value:.4f}", file=sys.stderr)
    save_model(network, str(folder / "model.safetensors"))
    return time.process_time() - before


SIDES = {OURS: ours, TRAINER: trainer, BARE: bare}


if __name__ == "__main__":
    sys.exit(main())
