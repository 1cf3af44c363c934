"""DPO and GRPO steps against TRL's trainers, rollouts against transformers' ``generate``.

    ./kit setup peers
    ./kit run --config recipe=recipes/nano.yaml
    .venv/bin/python -m benchmarks.trl_speed [--rounds N] [--only dpo,grpo,rollout] [--trained]

Stock numerics, one thread, fp32. A network of tiny's shape with random weights, whose answers
nearly all run to the limit, and the tokenizer, pairs and problems of a finished `nano` run; or,
with `--trained`, for GRPO and rollouts `math_sft2` of a finished `tiny` run, whose answers mostly
end by themselves.
Each side a process of its own, in turn. CPU time of the second of two calls in a process, so
without start-up:

- dpo: steps of 8 pairs (micro-batches of 4); TRL's DPOTrainer with its defaults, ours with its
  reference pass, which is made once;
- grpo: steps of 8 problems x 8 answers of at most 128 tokens, one update of micro-batches of 16,
  with a KL term; TRL's GRPOTrainer samples by transformers' ``generate``; ours grades with
  math-verify in its worker, TRL's reward is a comparison of strings;
- rollout: 64 problems x 8 answers of 128 tokens, sampled at temperature 1, in batches of 256.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import record
from benchmarks.train_speed import NUMERICS, ONE_THREAD, PEERS, TIMEOUT_SECONDS
from instella.prove import processes
from instella.prove.copies import PROJECT

HIDDEN, INNER, LAYERS, HEADS, POSITIONS = 64, 176, 2, 2, 512
SEED, LEARNING_RATE = 7, 1e-4
PAIRS, PAIR_MICRO, DPO_STEPS = 8, 4, 60
PROBLEMS, SAMPLES, ANSWER, POLICY_MICRO, GRPO_STEPS, KL = 8, 8, 128, 16, 6, 0.001
ROLLOUT_PROBLEMS, ROWS = 64, 256
TARGETS = {"dpo": 1.5, "grpo": 2.0, "rollout": 3.0}
OURS, THEIRS = "ours", "theirs"


@dataclass(frozen=True)
class Place:
    """A finished run, whose data is used, and the folder of the network to start from."""

    run: Path
    start: Path


def main() -> int:
    """Measure and record; 1 when a ratio is below its target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="what to measure; all by default")
    parser.add_argument(
        "--trained", action="store_true", help="tiny's math_sft2, not random weights"
    )
    parser.add_argument("--side", nargs=4, metavar=("WHAT", "SIDE", "RUN", "FOLDER"),
                        help=argparse.SUPPRESS)  # fmt: skip
    args = parser.parse_args()
    if args.side:
        what, side, *folders = args.side
        place = Place(*map(Path, folders))
        # the first time loads modules and fills caches
        for _ in range(2):
            with tempfile.TemporaryDirectory(prefix="trl-speed-") as temporary:
                print(SIDES[what, side](place, Path(temporary)))
        return 0
    name = "tiny" if args.trained else "nano"
    run = PROJECT / "results" / name
    for path, cure in ((PEERS, "./kit setup peers"), (run / "root", f"./kit run with {name}")):
        if not path.exists():
            raise SystemExit(f"{path} is not there; {cure} makes it")
    lines = ["| | ours, s | theirs, s | times as fast | lowest, highest | at least |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    good = True
    with tempfile.TemporaryDirectory(prefix="trl-start-") as temporary:
        start = run / "math_sft2" if args.trained else make_start(run, Path(temporary))
        place = Place(run, start)
        usual = ["grpo", "rollout"] if args.trained else list(TARGETS)
        for what in args.only.split(",") if args.only else usual:
            turns = [(seconds(what, OURS, place), seconds(what, THEIRS, place))
                     for _ in range(args.rounds)]  # fmt: skip
            ratios = sorted(theirs / own for own, theirs in turns)
            ratio = statistics.median(ratios)
            good &= ratio >= TARGETS[what]
            own, theirs = (statistics.median(side) for side in zip(*turns, strict=True))
            lines.append(f"| {what} | {own:.1f} | {theirs:.1f} | {ratio:.2f} | {ratios[0]:.2f}, "
                         f"{ratios[-1]:.2f} | {TARGETS[what]:g} |")  # fmt: skip
    weights = "tiny's math_sft2" if args.trained else "random weights"
    record(f"DPO, GRPO and rollouts against TRL and transformers, {weights}", lines)
    return int(not good)


def seconds(what: str, side: str, place: Place) -> float:
    """CPU seconds of one side.

    Raises:
        SystemExit: it failed.
    """
    python = sys.executable if side == OURS else str(PEERS)
    command = [python, "-m", "benchmarks.trl_speed", "--side", what, side]
    command += [str(place.run), str(place.start)]
    done = processes.run(command, PROJECT, TIMEOUT_SECONDS, ONE_THREAD)
    if done.code:
        raise SystemExit(f"{what}, {side}: ended with {done.code}\n{done.err}")
    return float(done.out.split()[-1])


def make_start(run: Path, folder: Path) -> Path:
    """A network with random weights in a folder, with the run's tokenizer."""
    from instella.network.folder import save_folder
    from instella.network.init import initialize
    from instella.network.network import Instella
    from instella.recipe.settings import Model

    vocabulary = json.loads((run / "math_sft2" / "config.json").read_bytes())["vocab_size"]
    network = Instella(Model(HIDDEN, INNER, LAYERS, HEADS, vocabulary, POSITIONS), NUMERICS)
    initialize(network, SEED)
    save_folder(folder, network, run / "tokenizer", POSITIONS)
    return folder


def training_of(batch: int, micro: int, steps: int) -> Any:
    """Settings of a stage that trains ``steps`` steps."""
    from instella.recipe import settings

    return settings.Training(
        global_batch=batch,
        micro_batch=micro,
        optimizer=settings.Optimizer(learning_rate=LEARNING_RATE, weight_decay=0.0),
        schedule=settings.Schedule(kind="linear"),
        seed=SEED,
        epochs=1000,
        max_steps=steps,
        save_every=steps,
        ledger_every=100,
    )


def our_dpo(place: Place, folder: Path) -> float:
    """The preference stage."""
    from benchmarks.stage_jobs import job_of
    from instella.recipe import settings
    from instella.stages import preference

    chosen = settings.Preference(
        settings.ChatData(96, ()), training_of(PAIRS, PAIR_MICRO, DPO_STEPS), "start"
    )
    inputs = {"tokens": place.run / "tokens_dpo", "init": place.start}
    job = job_of("dpo", {"preference": chosen}, inputs, folder, NUMERICS)
    return timed(lambda: preference.run(job))


def our_grpo(place: Place, folder: Path) -> float:
    """The policy stage."""
    from benchmarks.stage_jobs import job_of
    from instella.recipe import settings
    from instella.stages import policy

    chosen = settings.Policy(
        settings.PromptData(40, ()),
        training_of(PROBLEMS * SAMPLES, POLICY_MICRO, GRPO_STEPS),
        "start",
        prompts_per_step=PROBLEMS,
        samples_per_prompt=SAMPLES,
        max_response_tokens=ANSWER,
        kl_coefficient=KL,
    )
    inputs = {"tokens": place.run / "tokens_grpo1", "init": place.start}
    job = job_of("grpo1", {"policy": chosen}, inputs, folder, NUMERICS)
    return timed(lambda: policy.run(job))


def our_rollout(place: Place, _: Path) -> float:
    """``rollout.generate``."""
    from instella.network.folder import load_folder
    from instella.rollout.generate import generate

    network, prompts = load_folder(place.start, NUMERICS), prompt_ids(place.run)
    longest = max(map(len, prompts))
    return timed(
        lambda: generate(
            network, prompts, samples=SAMPLES, max_new_tokens=ANSWER, temperature=1.0, top_p=1.0,
            eos_id=0, vocabulary=network.settings.vocab_size, max_prompt_tokens=longest,
            stream=[["measured", number] for number in range(len(prompts))], rows_per_batch=ROWS,
        )
    )  # fmt: skip


def prompt_ids(run: Path) -> list[list[int]]:
    """Token ids of the first problems."""
    lines = (run / "tokens_grpo1" / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["ids"] for line in lines[:ROLLOUT_PROBLEMS]]


def timed(action: Callable[[], Any]) -> float:
    """CPU seconds of an action, those of processes that ended in it included."""

    def spent() -> float:
        found = os.times()
        return found.user + found.system + found.children_user + found.children_system

    before = spent()
    action()
    return spent() - before


def hf_model(start: Path) -> Any:
    """The same network as a transformers model."""
    from instella.model import InstellaConfig, InstellaForCausalLM

    # TRL asks every configuration for it
    InstellaConfig.auto_map = {}
    return InstellaForCausalLM.from_pretrained(start, dtype="float32")


def hf_tokenizer(start: Path) -> Any:
    """The run's tokenizer."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast.from_pretrained(start)


def their_dpo(place: Place, folder: Path) -> float:
    """TRL's DPOTrainer on the text of the same pairs."""
    import numpy as np
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    tokenizer = hf_tokenizer(place.start)
    sides = {
        side: [np.load(place.run / "tokens_dpo" / f"{side}_{name}.npy")
               for name in ("input_ids", "label_mask")]
        for side in ("chosen", "rejected")
    }  # fmt: skip
    rows: dict[str, list[str]] = {"prompt": [], "chosen": [], "rejected": []}
    for number in range(len(sides["chosen"][0])):
        ids, mask = (part[number] for part in sides["chosen"])
        rows["prompt"].append(tokenizer.decode(ids[: int(mask.argmax())].tolist()))
        for side, (all_ids, all_masks) in sides.items():
            answer = all_ids[number][all_masks[number]].tolist()
            rows[side].append(tokenizer.decode(answer[:-1] if answer[-1] == 0 else answer))
    arguments = DPOConfig(
        per_device_train_batch_size=PAIR_MICRO,
        gradient_accumulation_steps=PAIRS // PAIR_MICRO,
        max_steps=DPO_STEPS,
        max_length=96,
        beta=5.0,
        gradient_checkpointing=False,
        **common(folder),
    )
    model, data = hf_model(place.start), Dataset.from_dict(rows)
    trainer = DPOTrainer(
        model=model, args=arguments, train_dataset=data, processing_class=tokenizer
    )
    return timed(trainer.train)


def their_grpo(place: Place, folder: Path) -> float:
    """TRL's GRPOTrainer on the same problems."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    tokenizer = hf_tokenizer(place.start)
    lines = (place.run / "tokens_grpo1" / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
    problems = [json.loads(line) for line in lines]
    rows = [{"prompt": tokenizer.decode(item["ids"]), "gold": item["answer"]} for item in problems]

    def reward(completions: list[str], gold: list[str], **_: Any) -> list[float]:
        return [float(f"\\boxed{{{answer}}}" in text)
                for text, answer in zip(completions, gold, strict=True)]  # fmt: skip

    arguments = GRPOConfig(
        per_device_train_batch_size=POLICY_MICRO,
        gradient_accumulation_steps=PROBLEMS * SAMPLES // POLICY_MICRO,
        num_generations=SAMPLES,
        max_completion_length=ANSWER,
        max_steps=GRPO_STEPS,
        beta=KL,
        gradient_checkpointing=False,
        **common(folder),
    )
    trainer = GRPOTrainer(
        model=hf_model(place.start), reward_funcs=reward, args=arguments,
        train_dataset=Dataset.from_list(rows), processing_class=tokenizer,
    )  # fmt: skip
    return timed(trainer.train)


def common(folder: Path) -> dict[str, Any]:
    """What both of TRL's trainers get."""
    return {
        "output_dir": str(folder), "learning_rate": LEARNING_RATE, "use_cpu": True, "bf16": False,
        "save_strategy": "no", "report_to": [], "disable_tqdm": True, "seed": SEED,
        "lr_scheduler_type": "linear",
    }  # fmt: skip


def their_rollout(place: Place, _: Path) -> float:
    """``generate`` of transformers, prompts padded on the left."""
    import torch

    model, prompts = hf_model(place.start).eval(), prompt_ids(place.run)
    longest = max(map(len, prompts))
    ids = torch.tensor([[1] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])

    def sample() -> None:
        at_once = ROWS // SAMPLES
        for first in range(0, len(ids), at_once):
            rows = slice(first, first + at_once)
            model.generate(
                ids[rows], attention_mask=mask[rows], do_sample=True, temperature=1.0, top_k=0,
                top_p=1.0, max_new_tokens=ANSWER, num_return_sequences=SAMPLES, pad_token_id=1,
            )  # fmt: skip

    return timed(sample)


SIDES = {
    ("dpo", OURS): our_dpo, ("dpo", THEIRS): their_dpo,
    ("grpo", OURS): our_grpo, ("grpo", THEIRS): their_grpo,
    ("rollout", OURS): our_rollout, ("rollout", THEIRS): their_rollout,
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
