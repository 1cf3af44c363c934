"""``instella evaluation overlap``: held-out items in the documents that a run trained on."""

import argparse
from collections.abc import Iterator

from instella.commands.common import json_line, load_project
from instella.commands.seen import LEDGER_KINDS, Run
from instella.data.documents import Document
from instella.data.packing import documents_of, split_options
from instella.data.trace import read_ledger
from instella.evaluation.overlap import Found, HeldOut, counts
from instella.recipe.graph import checkpoints
from instella.recipe.imports import ancestors

HELD_OUT = "heldout"


def run(args: argparse.Namespace) -> int:
    """Print for each checkpoint and set how many items its training data hold; always 0.

    Raises:
        Incomplete: a data stage has no result, or one that does not fit the recipe.
    """
    project = load_project(args)
    seen = Run(project)
    seen.verified(HELD_OUT)
    held_out = HeldOut(seen.folder(HELD_OUT), project.recipe.evaluation.ngram)
    kept: dict[str, Found] = {}
    made: dict[str, dict[str, dict[str, int]]] = {}
    for name in checkpoints(project.recipe):
        if name not in project.graph:
            continue
        found = Found(frozenset(), frozenset())
        for stage in sorted({name} | ancestors(project.graph, name)):
            if project.graph[stage].kind in LEDGER_KINDS and stage != "tokenizer":
                if stage not in kept:
                    kept[stage] = held_out.found_in(_documents(seen, stage))
                found |= kept[stage]
        made[name] = counts(held_out, found)
    if args.json:
        print(json_line(made))
        return 0
    for name, sets in made.items():
        for held, number in sets.items():
            print(f"{name}: {held}: {number['exact']} exact, {number['near']} near of "
                  f"{number['items']} items, {number['short']} too short for near")  # fmt: skip
    return 0


def _documents(seen: Run, name: str) -> Iterator[Document]:
    """The documents that a tokens stage kept, read again from their sources."""
    used = {(entry["source"], entry["key"]) for entry in read_ledger(seen.ledger(name))}
    stage = seen.graph[name]
    inputs = {role: seen.folder(other) for role, other in stage.inputs.items()}
    for part in stage.settings["data"].parts:
        seen.verified(stage.inputs[f"source_{part.source}"])
        bare, _ = split_options(part)
        for document in documents_of(bare, inputs):
            if (part.source, document.key) in used:
                yield document
