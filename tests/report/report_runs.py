"""Run folders that say what a test wants them to say, in the form that the kit writes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from instella.artifacts import journal
from instella.artifacts.identity import identity_key, settings_json
from instella.artifacts.manifest import NAME, Entry, Manifest, read_manifest
from instella.artifacts.notes import HEALTH
from instella.canonical import json_bytes, sha256_bytes
from instella.prove.copies import PROJECT
from instella.recipe.graph import Stage, build_graph
from instella.recipe.reader import read_recipe

NANO = PROJECT / "recipes/nano.yaml"
STEPS = 5
HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>\"'`{{7*7}}"
# a path may hold neither a slash in a name nor a backslash
HOSTILE_FILE = "<img src=x onerror=window.hacked=1>'\"&.jsonl"


def training_rows(kind: str, offset: float = 0.0) -> list[dict[str, Any]]:
    """Lines of ``steps.jsonl`` with every figure that a kind of stage has."""
    own = {
        "preference": {"accuracy": 0.5, "margin": 0.1},
        "policy": {"reward": 0.25, "response_tokens": 12.5, "kl_loss": 0.01},
    }.get(kind, {})
    return [
        {"step": step, "loss": 4.0 / step + offset, "learning_rate": 1e-3 * step,
         "grad_norm": 1.0, **own}
        for step in range(1, STEPS + 1)
    ]  # fmt: skip


def write_health(results: Path, stage: str) -> Path:
    """What GRPO logs beside the artifact of a stage of a written run; the file."""
    key = identity_key(read_manifest(results / stage / NAME).identity)
    folder = journal.notes_folder(results, key)
    folder.mkdir(parents=True)
    rows = [{"step": step, "entropy": 1.5 / step, "timed_out": 0} for step in range(1, STEPS + 1)]
    (folder / HEALTH).write_bytes(b"".join(map(json_bytes, rows)))
    return folder / HEALTH


def results_value(text: str = "a set", shift: float = 0.0) -> dict[str, Any]:
    """``results.json`` with one claim and one score; ``text`` stands in each of its names."""
    figure = {"value": 0.5 + shift, "low": 0.4, "high": 0.6, "items": 10}
    return {
        "baseline": {text: {"bits": figure}},
        "choices": {},
        "checkpoints": {"sft": {text: {"bits": figure}}},
        "claims": [
            {"about": text, "at_least": 0.1, "at_most": None, "interval_above": None,
             "measured": figure, "met": True}
        ],
    }  # fmt: skip


def write_run(
    results: Path, recipe_file: Path = NANO, text: str = "a text", offset: float = 0.0
) -> Mapping[str, Stage]:
    """A whole run of a recipe whose files hold ``text`` wherever one is free; its graph."""
    graph = build_graph(read_recipe(recipe_file))
    contents: dict[str, str] = {}
    for name, stage in graph.items():
        contents[name] = _write_stage(results, stage, contents, text, offset)
    return graph


def _write_stage(
    results: Path, stage: Stage, contents: Mapping[str, str], text: str, offset: float
) -> str:
    folder = results / stage.name
    folder.mkdir(parents=True)
    made: dict[str, bytes] = {"note.json": json_bytes(text)}
    if text == HOSTILE:
        made[HOSTILE_FILE] = b"x\n"
    if stage.trains:
        rows = training_rows(stage.kind, offset)
        made["steps.jsonl"] = b"".join(map(json_bytes, rows))
    if stage.kind.startswith("tokens_"):
        part = {"source": text, "documents": 3, "tokens": 30}
        made["report.json"] = json_bytes({"parts": [part], "windows": 64})
    if stage.kind == "results":
        made["results.json"] = json_bytes(results_value(text, offset))
    for path, data in made.items():
        (folder / path).write_bytes(data)
    identity = {
        "format": "instella.identity/1", "stage": stage.name, "kind": stage.kind,
        "settings": settings_json(stage), "code": text, "lock": text, "image": text,
        "numerics": {"class": "portable-x86", "pins": {}},
        "inputs": {role: contents[source] for role, source in stage.inputs.items()},
    }  # fmt: skip
    files = {path: Entry(sha256_bytes(data), len(data)) for path, data in made.items()}
    manifest = Manifest(stage.name, stage.kind, "computed", identity, files)
    (folder / NAME).write_bytes(manifest.to_bytes())
    line = {
        "started": text, "seconds": 1.5, "outcome": "computed", "identity": identity_key(identity),
        "content": manifest.content, "ranks": 1, "host": text, "cpu": text, "cores": 2,
        "peak_rss": 1000,
    }  # fmt: skip
    journal.append(results, stage.name, line)
    return manifest.content


def hostile_recipe(folder: Path) -> Path:
    """nano with hostile text in everything that a recipe may say freely."""
    value = yaml.safe_load(NANO.read_text(encoding="utf-8"))
    value["about"] = value["deviations"] = HOSTILE
    value["deviations"] = [HOSTILE]
    value["prompt_suffix"] = HOSTILE
    for source in value["sources"].values():
        source["licence"] = HOSTILE
    path = folder / "nano.yaml"
    path.write_text(json.dumps(value), encoding="utf-8")
    return path
