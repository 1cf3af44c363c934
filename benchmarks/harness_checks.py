"""Our model class for lm-evaluation-harness against the harness's own, on a run's held-out sets.

Needs ``./kit setup harness`` and a finished run. One call tells, and ends with 1 if it is not so:
log-likelihoods of both classes agree as float32 can and scores are equal; records are the same
for batch 1 shuffled and batch 64; models that know nothing, or everything, score what they must;
and how much CPU time each class takes for the same requests of mixed lengths. Ours computes in
portable-x86, the harness's with stock torch on all vector units; each has one thread.
"""

import argparse
import hashlib
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import record
from instella.canonical import json_bytes, read_jsonl
from instella.prove.copies import PROJECT

# Sums of log-probabilities are made of float32 numbers: 16 units in the last place of a sum.
RELATIVE = 16 * 2.0**-24
BATCH, TURNS, MOST_ITEMS = 64, 5, 120
# Width, of the MLP, layers, heads, rows of the vocabulary.
SHAPES = {
    "tiny": (64, 176, 2, 2, 1024),
    "11 million weights": (256, 704, 8, 8, 8192),
    "published vocabulary": (256, 704, 4, 8, 50304),
}
# The network of tiny is mostly the cost of calls and of encoding, which both classes pay.
FASTER = {"11 million weights": 3.0, "published vocabulary": 3.0}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


def main() -> int:
    """Check and measure, or be one of the processes that do."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", default="recipes/tiny.yaml", help="of the finished run")
    parser.add_argument("--checkpoint", default="sft", help="a stage of it")
    parser.add_argument("--child", nargs=2, metavar=("ROLE", "FOLDER"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        role, folder = args.child
        print(json.dumps(CHILDREN[role](Path(folder), args.recipe)))
        return 0
    results = PROJECT / "results" / Path(args.recipe).stem
    told = child("agreement", results / args.checkpoint, args.recipe)
    rows = {name: speed(shape, results, args.recipe) for name, shape in SHAPES.items()}
    failures = told["failures"] + [
        f"{name}: {rows[name][2]:.2f} times as fast, wanted {wanted}"
        for name, wanted in FASTER.items()
        if rows[name][2] < wanted
    ]
    lines = [
        f"- {told['requests']} requests of {told['tasks']} sets of {Path(args.recipe).stem}, "
        f"{told['items']} items, checkpoint {args.checkpoint}",
        f"- log-likelihoods, largest difference: {told['largest']:.2e} of the sum "
        f"({told['absolute']:.1e}); bound {RELATIVE:.1e}",
        f"- unlike what is asked: {'; '.join(failures) or 'nothing'}",
        "",
        f"| network, batch {BATCH} | ours, s | the harness's own, s | times as fast | turns |",
        "|---|---|---|---|---|",
        *(f"| {name} | {ours:.2f} | {own:.2f} | {ratio:.2f} | {low:.2f} to {high:.2f} |"
          for name, (ours, own, ratio, (low, high)) in rows.items()),
    ]  # fmt: skip
    record("lm-evaluation-harness, our model class against its own", lines)
    return 1 if failures else 0


def child(role: str, folder: Path, recipe: str) -> Any:
    """What one process says, in the environment of the harness."""
    from instella.commands.evaluation_harness import ENVIRONMENT, LOCK, OFFLINE, environment_python

    python = environment_python(ENVIRONMENT, LOCK)
    command = [python, "-m", "benchmarks.harness_checks", "--recipe", recipe]
    done = subprocess.run(
        [*command, "--child", role, folder], cwd=PROJECT, stdout=subprocess.PIPE, text=True,
        env={"PATH": "/usr/bin:/bin", "HOME": tempfile.gettempdir(), **OFFLINE, **ONE_THREAD},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{role}: ended with {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def speed(
    shape: tuple[int, ...], results: Path, recipe: str
) -> tuple[float, float, float, tuple[float, float]]:
    """Median CPU seconds of both, their ratio in turn (median), and the ratio's range."""
    with tempfile.TemporaryDirectory(prefix="harness-") as temporary:
        folder = Path(temporary)
        write_network(shape, results / "tokenizer", folder)
        (folder / "heldout").symlink_to((results / "heldout").resolve())
        pairs = [(child("ours", folder, recipe), child("own", folder, recipe))
                 for _ in range(TURNS)]  # fmt: skip
    ratios = sorted(own / ours for ours, own in pairs)
    ours, own = (median(side) for side in zip(*pairs, strict=True))
    return ours, own, median(ratios), (ratios[0], ratios[-1])


def write_network(shape: tuple[int, ...], tokenizer: Path, folder: Path) -> None:
    """A checkpoint with random weights; how long it takes does not depend on them."""
    import torch

    from instella.network.folder import save_folder
    from instella.network.network import Instella
    from instella.recipe.settings import Model

    width, inner, layers, heads, rows = shape
    torch.manual_seed(0)
    network = Instella(Model(width, inner, layers, heads, rows, 512), "native-cpu")
    save_folder(folder, network, tokenizer, 512)


def sets_of(heldout: Path, recipe: str) -> dict[str, tuple[str, int, list[dict[str, Any]]]]:
    """Kind, longest answer and rows of each held-out set, the first items of each."""
    from instella.evaluation.harness.rows import rows_of
    from instella.recipe.reader import read_recipe

    read = read_recipe(Path(recipe))
    return {
        name: (item.kind, item.max_new_tokens, rows_of(
            item.kind, read_jsonl(heldout / f"{name}.jsonl")[:MOST_ITEMS], read.prompt_suffix
        ))
        for name, item in read.evaluation.sets.items()
    }  # fmt: skip


def ours_of(folder: Path, batch: int) -> Any:
    """Our class over a checkpoint, in portable-x86."""
    from instella.data.tokenizer import load
    from instella.evaluation.harness.model import InstellaLM
    from instella.network.folder import load_folder

    return InstellaLM(load_folder(folder, "portable-x86").float().eval(), load(folder), batch)


def own_of(folder: Path) -> Any:
    """The harness's class for Hugging Face folders."""
    from lm_eval.models.huggingface import HFLM

    import instella.model  # noqa: F401, tells transformers what an Instella is

    return HFLM(pretrained=str(folder), backend="causal", device="cpu", dtype="float32",
                batch_size=BATCH)  # fmt: skip


def timed(folder: Path, recipe: str, is_ours: bool) -> float:
    """CPU seconds for the log-likelihoods of all choices, whose lengths are mixed."""
    from instella import numerics

    if is_ours:
        numerics.apply_environment("portable-x86")
    from lm_eval.api.instance import Instance

    arguments = [
        (row["context"], " " + choice)
        for kind, _, rows in sets_of(folder / "heldout", recipe).values() if kind == "choice"
        for row in rows for choice in row["choices"]
    ]  # fmt: skip
    requests = [Instance("loglikelihood", {}, pair, 0) for pair in arguments]
    model = ours_of(folder, BATCH) if is_ours else own_of(folder)
    model.loglikelihood(requests[:BATCH], disable_tqdm=True)
    started = time.process_time()
    model.loglikelihood(requests, disable_tqdm=True)
    return time.process_time() - started


def agreement(folder: Path, recipe: str) -> dict[str, Any]:
    """Both classes on all sets; what is not as it must be."""
    from instella import numerics

    numerics.apply_environment("portable-x86")
    import numpy as np

    sets = sets_of(folder.parent / "heldout", recipe)
    found, scores = evaluated(ours_of(folder, BATCH), sets)
    own, own_scores = evaluated(own_of(folder), sets)
    random = np.random.Generator(np.random.PCG64(7))
    shuffled = {
        name: (kind, most, [rows[n] for n in random.permutation(len(rows))])
        for name, (kind, most, rows) in sets.items()
    }
    single, _ = evaluated(ours_of(folder, 1), shuffled)
    failures, largest, absolute, requests = [], 0.0, 0.0, 0
    for name, records in found.items():
        if sorted(map(json_bytes, records)) != sorted(map(json_bytes, single[name])):
            failures.append(f"{name}: other records for batch 1, shuffled")
        for one, other in zip(records, own[name], strict=True):
            if one.get("samples") != other.get("samples"):
                failures.append(f"{name}: {one['key']}: other answers")
            pairs = zip(one.get("loglikelihoods", []), other.get("loglikelihoods", []), strict=True)
            for a, b in pairs:
                requests += 1
                absolute = max(absolute, abs(a - b))
                largest = max(largest, abs(a - b) / max(1.0, abs(b)))
        failures += unequal(name, scores[name], own_scores[name])
    if largest > RELATIVE:
        failures.append("log-likelihoods differ by more than rounding")
    failures += degenerate(sets)
    return {
        "failures": failures, "largest": largest, "absolute": absolute, "requests": requests,
        "tasks": len(sets), "items": sum(map(len, found.values())),
    }  # fmt: skip


def evaluated(model: Any, sets: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Records and the harness's own figures of each set."""
    from lm_eval import evaluator

    from instella.evaluation.harness.rows import record_of
    from instella.evaluation.harness.tasks import task_of

    tasks = {name: task_of(name, kind, rows, most) for name, (kind, most, rows) in sets.items()}
    told = evaluator.evaluate(model, {"tasks": tasks}, bootstrap_iters=0, log_samples=True)
    records = {name: [record_of(one) for one in told["samples"][name]] for name in tasks}
    figures = {
        name: {key.partition(",")[0]: float(value) for key, value in told["results"][name].items()
               if isinstance(value, float) and "stderr" not in key}
        for name in tasks
    }  # fmt: skip
    return records, figures


def unequal(name: str, ours: dict[str, float], wanted: dict[str, float]) -> list[str]:
    """Figures that differ: shares of right items must be equal, losses as rounding allows."""
    if set(ours) != set(wanted) or not ours:
        return [f"{name}: figures {sorted(ours)}, wanted {sorted(wanted)}"]
    return [
        f"{name}: {metric} is {value}, not {wanted[metric]}"
        for metric, value in ours.items()
        if abs(_loss(metric, value) - _loss(metric, wanted[metric]))
        > (RELATIVE * abs(_loss(metric, value)) if metric in LOSSES else 0.0)
    ]


LOSSES = ("bits_per_byte", "perplexity")


def _loss(metric: str, value: float) -> float:
    return math.log(value) if metric == "perplexity" else value


def degenerate(sets: dict[str, Any]) -> list[str]:
    """Models without a network on every set, against scores that are worked out here."""
    golds = {
        (row["context"], text)
        for _, _, rows in sets.values()
        for row in rows
        for text in _gold_texts(row)
    }

    def known(context: str, text: str) -> float:
        return 0.0 if (context, text) in golds else -100.0

    failures = []
    for kind_of_model, score in (("constant", constant), ("random", hashed), ("gold", known)):
        model = _stand_in(kind_of_model, score, sets)
        _, figures = evaluated(model, sets)
        for name, (kind, _, rows) in sets.items():
            wanted = expected(kind, rows, score, kind_of_model)
            failures += [
                f"{kind_of_model}: {line}" for line in unequal(name, figures[name], wanted)
            ]
    return failures


def constant(context: str, text: str) -> float:
    """The same for all."""
    return -3.0


def hashed(context: str, text: str) -> float:
    """Has nothing to do with what the text says."""
    return -int(hashlib.sha256(json_bytes([context, text])).hexdigest()[:8], 16) / 2.0**28


def _gold_texts(row: dict[str, Any]) -> list[str]:
    if "choices" in row:
        text = row["choices"][row["gold"]]
        return [text, " " + text]
    return [row["target"]] if "target" in row else []


def expected(kind: str, rows: list[Any], score: Any, model: str) -> dict[str, float]:
    """What the figures of a set must be, from its rows alone."""
    if kind == "text":
        size = sum(len(row["text"].encode()) for row in rows)
        total = sum(0.0 if model == "gold" else score("", row["text"]) for row in rows)
        return {"bits_per_byte": -total / size / math.log(2)}
    if kind == "answer":
        total = sum(score(row["context"], row["target"]) for row in rows)
        return {"perplexity": math.exp(-total / len(rows)), "acc": float(model == "gold")}
    if kind == "problem":
        return {"exact_match": float(model == "gold")}
    delimiter = " " if kind == "choice" else ""
    right = {"acc": 0, "acc_norm": 0}
    for row in rows:
        values = [score(row["context"], delimiter + text) for text in row["choices"]]
        shares = [value / len(text) for value, text in zip(values, row["choices"], strict=True)]
        # Of equal ones the harness takes the first.
        right["acc"] += values.index(max(values)) == row["gold"]
        right["acc_norm"] += shares.index(max(shares)) == row["gold"]
    return {metric: count / len(rows) for metric, count in right.items()}


def _stand_in(name: str, score: Any, sets: dict[str, Any]) -> Any:
    from lm_eval.api.model import LM

    answers = {row["context"]: row["answer"] for kind, _, rows in sets.values()
               for row in rows if kind == "problem"}  # fmt: skip

    class StandIn(LM):
        def loglikelihood(self, requests: Any) -> list[tuple[float, bool]]:
            pairs = [request.args for request in requests]
            values = [score(*pair) for pair in pairs]
            return [(value, name == "gold" and value == 0.0) for value in values]

        def loglikelihood_rolling(self, requests: Any) -> list[float]:
            texts = [request.args[0] for request in requests]
            return [0.0 if name == "gold" else score("", text) for text in texts]

        def generate_until(self, requests: Any) -> list[str]:
            contexts = [request.args[0] for request in requests]
            if name == "gold":
                return [f"So \\boxed{{0}}, no, \\boxed{{{answers[c]}}}." for c in contexts]
            return ["" if name == "constant" else str(hashed(c, "")) for c in contexts]

    return StandIn()


CHILDREN: dict[str, Any] = {
    "agreement": agreement,
    "ours": lambda folder, recipe: timed(folder, recipe, True),
    "own": lambda folder, recipe: timed(folder, recipe, False),
}


if __name__ == "__main__":
    sys.exit(main())
