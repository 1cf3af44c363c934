"""Our rollouts against vLLM's on one core, start-up counted.

    ./kit setup vllm
    ./kit run
    .venv/bin/python -m benchmarks.rollout_vllm [--rounds N] [--only trained,random]

fp32, temperature 1, log-probabilities of the chosen tokens, 256 rows at once, problems and tokenizer
of a finished `tiny` run. Each side is a process of its own, in turn, tied to one core; CPU and wall
time of the whole process. vLLM runs the kit's model in vLLM's layers, without compiling, its samples
of a problem asked in one request without seeds, in the process that asks.

- trained: tiny's `math_sft2`, whose answers mostly end by themselves: 700 problems x 8 answers;
- random: the same shape with random weights, whose answers nearly all run to 128 tokens: 64 x 8.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

SAMPLES, ANSWER, ROWS, SEED = 8, 128, 256, 7
PROBLEMS = {"trained": 700, "random": 64}
OURS, THEIRS = "ours", "theirs"
LEAST_TOKENS, TARGET = 50_000, 1.0


def main() -> int:
    """Measure and record; 1 when a ratio is below its target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(PROBLEMS), help="what to measure")
    parser.add_argument("--side", nargs=4, metavar=("SIDE", "PROMPTS", "NUMBER", "FOLDER"),
                        help=argparse.SUPPRESS)  # fmt: skip
    args = parser.parse_args()
    if args.side:
        side, prompts, number, folder = args.side
        print(json.dumps(SIDES[side](first_prompts(Path(prompts), int(number)), Path(folder))))
        return 0
    return measure(args.rounds, args.only.split(","))


def measure(rounds: int, wanted: list[str]) -> int:
    """All sides in turn; 1 when a ratio is below its target."""
    from benchmarks.harness import record
    from instella.engines.elsewhere import python_of
    from instella.prove.copies import PROJECT

    python_of("vllm")
    run = PROJECT / "results" / "tiny"
    if not (run / "root").exists():
        raise SystemExit(f"{run} is not finished; ./kit run makes it")
    # Inherited by every process that is started.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    lines = ["| | tokens, ours | tokens, vLLM | ours, s | vLLM, s | times as fast by CPU time "
             "| lowest, highest | by wall time |", "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    good = True
    with tempfile.TemporaryDirectory(prefix="rollout-") as temporary:
        for what in wanted:
            start = run / "math_sft2"
            if what == "random":
                start = random_start(run, Path(temporary))
            prompts = run / "tokens_grpo1" / "prompts.jsonl"
            turns = [(spent(OURS, prompts, PROBLEMS[what], start),
                      spent(THEIRS, prompts, PROBLEMS[what], start))
                     for _ in range(rounds)]  # fmt: skip
            line, ratio = row(what, turns)
            lines.append(line)
            good &= ratio >= TARGET
    lines += [
        "",
        f"- rounds: {rounds}; CPU time of whole processes on one core; target: {TARGET:g}",
    ]
    record("Rollouts against vLLM on one core, start-up counted", lines)
    return int(not good)


def row(what: str, turns: list[tuple[dict[str, float], dict[str, float]]]) -> tuple[str, float]:
    """One line of the table, and the median ratio of the CPU times for a token.

    Raises:
        SystemExit: a side made fewer tokens than the measurement is about.
    """
    if min(side["tokens"] for turn in turns for side in turn) <= LEAST_TOKENS:
        raise SystemExit(f"{what}: not more than {LEAST_TOKENS:,} tokens; ask for more problems")

    def ratios(clock: str) -> list[float]:
        return sorted(
            (theirs[clock] / theirs["tokens"]) / (own[clock] / own["tokens"])
            for own, theirs in turns
        )

    cpu = ratios("cpu")
    tokens, seconds = (
        [statistics.median(turn[side][name] for turn in turns) for side in (0, 1)]
        for name in ("tokens", "cpu")
    )
    line = (
        f"| {what} | {tokens[0]:,.0f} | {tokens[1]:,.0f} | {seconds[0]:.1f} | {seconds[1]:.1f} "
        f"| {statistics.median(cpu):.2f} | {cpu[0]:.2f}, {cpu[-1]:.2f} "
        f"| {statistics.median(ratios('wall')):.2f} |"
    )
    return line, statistics.median(cpu)


def spent(side: str, prompts: Path, number: int, folder: Path) -> dict[str, float]:
    """Tokens that one side made, and its CPU and wall seconds.

    Raises:
        SystemExit: it failed.
    """
    from benchmarks.train_speed import ONE_THREAD, TIMEOUT_SECONDS
    from instella.engines.elsewhere import python_of
    from instella.engines.vllm.ask import environment
    from instella.prove import processes
    from instella.prove.copies import PROJECT

    with tempfile.TemporaryDirectory(prefix="vllm-home-") as home:
        theirs = side == THEIRS
        python = str(python_of("vllm")) if theirs else sys.executable
        extra = environment(home, own_process=False) if theirs else {}
        command = [python, "-m", "benchmarks.rollout_vllm", "--side", side]
        command += [str(prompts), str(number), str(folder)]
        done = processes.run(command, PROJECT, TIMEOUT_SECONDS, {**extra, **ONE_THREAD})
    if done.code:
        raise SystemExit(f"{side}: ended with {done.code}\n{done.err}")
    tokens = float(done.out.split()[-1])
    print(f"{side}: {tokens:,.0f} tokens, CPU {done.cpu:.1f} s, wall {done.wall:.1f} s", flush=True)
    return {"tokens": tokens, "cpu": done.cpu, "wall": done.wall}


def first_prompts(path: Path, number: int) -> list[list[int]]:
    """Token ids of the first problems."""
    with path.open(encoding="utf-8") as file:
        return [json.loads(line)["ids"] for line, _ in zip(file, range(number), strict=False)]


def random_start(run: Path, folder: Path) -> Path:
    """A checkpoint of the shape of the run's, with random weights."""
    from instella.network.folder import load_folder, save_folder
    from instella.network.init import initialize

    network = load_folder(run / "math_sft2", "native-cpu")
    initialize(network, SEED)
    save_folder(folder, network, run / "tokenizer", network.settings.max_position_embeddings)
    return folder


def our_tokens(prompts: list[list[int]], folder: Path) -> int:
    """Tokens of ``rollout.generate``."""
    from instella.network.folder import load_folder
    from instella.rollout.generate import generate

    network = load_folder(folder, "native-cpu").eval()
    groups = generate(
        network, prompts, samples=SAMPLES, max_new_tokens=ANSWER, temperature=1.0, top_p=1.0,
        eos_id=0, vocabulary=network.settings.vocab_size,
        max_prompt_tokens=max(map(len, prompts)), rows_per_batch=ROWS,
        stream=[["measured", number] for number in range(len(prompts))],
    )  # fmt: skip
    return sum(len(response.ids) for group in groups for response in group)


def their_tokens(prompts: list[list[int]], folder: Path) -> int:
    """Tokens of vLLM; in ``.venvs/vllm``."""
    # It writes to standard output.
    own = os.dup(1)
    os.dup2(2, 1)
    from vllm import LLM, SamplingParams, TokensPrompt

    chosen = SamplingParams(
        n=SAMPLES, temperature=1.0, max_tokens=ANSWER, logprobs=0, stop_token_ids=[0],
        ignore_eos=True, detokenize=False,
    )  # fmt: skip
    engine = LLM(
        str(folder), dtype="float32", max_model_len=max(map(len, prompts)) + ANSWER,
        enforce_eager=True, skip_tokenizer_init=True, max_num_seqs=ROWS, seed=SEED,
    )  # fmt: skip
    asked: list[Any] = [TokensPrompt(prompt_token_ids=ids) for ids in prompts]
    found = engine.generate(asked, chosen, use_tqdm=False)
    os.dup2(own, 1)
    return sum(len(output.token_ids) for item in found for output in item.outputs)


SIDES = {OURS: our_tokens, THEIRS: their_tokens}


if __name__ == "__main__":
    sys.exit(main())
