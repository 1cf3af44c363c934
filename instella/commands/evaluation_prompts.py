"""``instella evaluation prompts``: hash of what each record's item showed to the network."""

import argparse
from typing import Any

from instella.canonical import read_jsonl
from instella.commands.common import add_parser, json_line, load_project
from instella.errors import BadUse


def register(actions: Any) -> None:
    """Add ``prompts`` to the actions of ``evaluation``."""
    parser = add_parser(actions, "prompts", "hash of the prompt of each record, derived again")
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="that was measured")
    parser.add_argument("set", metavar="SET", help="held-out set")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print ``{"key", "prompt_sha256", "tokens"}`` for each record, in their order.

    Raises:
        BadUse: the checkpoint was not measured on the set.
        Incomplete: its evaluation, tokenizer or held-out items are not there.
    """
    project = load_project(args)
    from instella.commands.seen import Run
    from instella.data.tokenizer import load
    from instella.evaluation.prompts import prompt_hash, prompt_of
    from instella.evaluation.records import read_items

    stage = project.stage(f"evaluate_{args.checkpoint}")
    sets = stage.settings["sets"]
    if args.set not in sets:
        raise BadUse(f"{stage.name}: measures no set {args.set!r}; it has {', '.join(sets)}")
    seen = Run(project)
    for name in (stage.name, "heldout", args.checkpoint):
        seen.verified(name)
    items = {item["key"]: item for item in read_items(seen.folder("heldout"), args.set)}
    encoder = load(seen.folder(args.checkpoint))
    suffix = stage.settings["prompt_suffix"]
    for record in read_jsonl(seen.folder(stage.name) / f"{args.set}.jsonl"):
        ids = prompt_of(sets[args.set].kind, items[record["key"]], encoder, suffix)
        print(json_line({"key": record["key"], "prompt_sha256": prompt_hash(ids),
                         "tokens": len(ids)}))  # fmt: skip
    return 0
