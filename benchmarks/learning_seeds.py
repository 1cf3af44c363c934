"""Repeats the default recipe with other seeds: does what it claims hold beyond one seed?

    .venv/bin/python -m benchmarks.learning_seeds [--shift N ...]

Each repetition adds a number to the seed of the weights, of every data order and of every
training stage. Sources, tokenizer, held-out items and evaluation stay the same.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from benchmarks.harness import record
from instella.prove.copies import PROJECT, clone
from instella.prove.processes import instella, kit

TIMEOUT_SECONDS = 7200.0
STAGES = ("math_sft2", "grpo1", "grpo2", "grpo3")


def main() -> int:
    """Run each repetition and record its claims; 1 when a claim is not met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shift", type=int, nargs="+", default=[0, 1000, 2000])
    shifts = parser.parse_args().shift
    missed = 0
    with tempfile.TemporaryDirectory(prefix="learning-seeds-") as temporary:
        for shift in shifts:
            results, root = repeat(Path(temporary, f"shift {shift}"), shift)
            claims = results["claims"]
            missed += sum(not claim["met"] for claim in claims)
            lines = [f"root `{root}`", "", *table(claims), "", *risen(results)]
            record(f"The default recipe with every seed moved by {shift}", lines)
    return int(missed > 0)


def repeat(folder: Path, shift: int) -> tuple[dict[str, Any], str]:
    """``results.json`` and root of one repetition in a clone at ``folder``.

    Raises:
        RuntimeError: the run failed.
    """
    name = f"tiny-{shift}"
    clone(folder, f"recipes/{name}.yaml")
    recipe = yaml.safe_load((PROJECT / "recipes" / "tiny.yaml").read_text(encoding="utf-8"))
    text = yaml.safe_dump(shifted(recipe, name, shift), sort_keys=False, allow_unicode=True)
    (folder / "recipes" / f"{name}.yaml").write_text(text, encoding="utf-8")
    done = kit(folder, timeout=TIMEOUT_SECONDS)
    if done.code:
        raise RuntimeError(f"shift {shift}: the run ended with {done.code}\n{done.err}")
    path = folder / "results" / name / "results" / "results.json"
    results = json.loads(path.read_text(encoding="utf-8"))
    return results, instella(folder, "root").out.strip()


def shifted(recipe: dict[str, Any], name: str, shift: int) -> dict[str, Any]:
    """The recipe under another name, with the seeds of weights, data and training moved."""
    for stage in recipe["stages"].values():
        stage["training"]["seed"] += shift
        stage["data"]["seed"] = stage["data"].get("seed", 0) + shift
    stages = recipe["stages"]
    stages["pretrain_stage1"]["init_seed"] += shift
    seeds = stages["pretrain_stage2"]["seeds"]
    stages["pretrain_stage2"]["seeds"] = [seed + shift for seed in seeds]
    suites = recipe["evaluation"]["suites"]
    for seed in seeds:
        moved = suites.pop(f"pretrain_stage2_seed{seed}")
        suites[f"pretrain_stage2_seed{seed + shift}"] = moved
    return {**recipe, "name": name}


def risen(results: dict[str, Any]) -> list[str]:
    """What GRPO starts from and what its stages make of it, as lines of a Markdown table."""
    rows = []
    for stage in STAGES:
        figure = results["checkpoints"][stage]["sums"]["pass@1"]
        interval = f"{figure['low']:.3f} to {figure['high']:.3f}"
        rows.append(f"| {stage} | {figure['value']:.3f} | {interval} |")
    return ["| checkpoint | pass@1 on held-out sums | interval |", "|---|---|---|", *rows]


def table(claims: list[dict[str, Any]]) -> list[str]:
    """The claims as lines of a Markdown table."""
    rows = [
        f"| {claim['about']} | {claim['measured']['value']:.3f} "
        f"| {claim['measured']['low']:.3f} to {claim['measured']['high']:.3f} "
        f"| {'yes' if claim['met'] else '**no**'} |"
        for claim in claims
    ]
    return ["| claim | measured | interval | met |", "|---|---|---|---|", *rows]


if __name__ == "__main__":
    sys.exit(main())
