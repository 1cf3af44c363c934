"""``instella evaluation ttt make|check|score``: positions of TTT-Bench."""

import argparse
from pathlib import Path
from typing import Any

from instella.canonical import json_bytes
from instella.errors import BadUse


def register(actions: Any) -> None:
    """Add ``ttt`` to the actions of ``evaluation``."""
    games = actions.add_parser("ttt", help="make, check or score positions of TTT-Bench")
    steps = games.add_subparsers(dest="step", required=True, metavar="STEP")
    make = steps.add_parser("make", help="print new positions by the published rule, as JSON lines")
    make.add_argument("game", metavar="GAME", help="oTTT, dTTT, cTTT or sTTT")
    make.add_argument("--count", type=_positive, default=100, metavar="N", help="positions (100)")
    make.add_argument("--seed", type=_seed, default=0, metavar="N", help="of the moves (0)")
    make.add_argument(
        "--avoid", type=Path, metavar="FILE", help="positions not to make (.parquet or .jsonl)"
    )
    make.add_argument(
        "--turned", action="store_true", help="a turned or reflected board counts as a new one"
    )
    make.set_defaults(run=run_make)
    check = steps.add_parser("check", help="compare gold moves with the rule; 1 if any differs")
    check.add_argument("game", metavar="GAME", help="oTTT, dTTT, cTTT or sTTT")
    check.add_argument("file", type=Path, metavar="FILE", help="items (.parquet or .jsonl)")
    check.set_defaults(run=run_check)
    scored = steps.add_parser("score", help="grade recorded samples, without sampling again")
    scored.add_argument("records", type=Path, metavar="RECORDS.jsonl", help="of an evaluation")
    scored.add_argument("items", type=Path, metavar="ITEMS.jsonl", help="rows with key and answer")
    scored.add_argument(
        "--rule", choices=("ours", "published"), default="ours",
        help="published: right if any letter of the box is (listing all is always right)",
    )  # fmt: skip
    scored.set_defaults(run=run_score)


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= 100_000:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 to 100,000")
    return int(text)


def _seed(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at most 18 digits")
    return int(text)


def run_make(args: argparse.Namespace) -> int:
    """Print the items, one canonical JSON object a line."""
    from instella.evaluation.ttt.files import game_called, read_items, row_of
    from instella.evaluation.ttt.generate import new_items

    game = game_called(args.game)
    avoid = [position for position, _ in read_items(args.avoid, game)] if args.avoid else []
    for item in new_items(game, args.count, args.seed, avoid, args.turned):
        print(json_bytes(row_of(item)).decode("utf-8"), end="")
    return 0


def run_check(args: argparse.Namespace) -> int:
    """Print the items whose gold moves are not the rule's; 1 if there are any."""
    from instella.evaluation.ttt.files import game_called, read_items
    from instella.evaluation.ttt.grade import right_moves
    from instella.evaluation.ttt.solver import by_rule

    items = read_items(args.file, game_called(args.game))
    differing = 0
    for position, gold in items:
        solution = by_rule(position)
        if set(solution.moves) != right_moves(gold):
            differing += 1
            print(f"{position.moves}: gold {gold}, rule {', '.join(solution.moves)} "
                  f"({solution.kind})")  # fmt: skip
    print(f"{args.file}: {len(items) - differing} of {len(items)} agree with the rule")
    return 1 if differing else 0


def run_score(args: argparse.Namespace) -> int:
    """Print pass@1 of the recorded samples with its interval."""
    from instella.evaluation.compare import share
    from instella.evaluation.given import given_rows
    from instella.evaluation.passes import pass_samples
    from instella.evaluation.ttt.grade import right_moves, verdicts

    rows = {row["key"]: row["answer"] for row in given_rows(args.items, "key", "answer")}
    graded = []
    for record in given_rows(args.records, "key"):
        gold, samples = rows.get(record["key"], ""), record.get("samples")
        if not right_moves(gold):
            raise BadUse(f"{args.items}: no answer for {record['key']}; give its items")
        if not isinstance(samples, list) or not all(isinstance(text, str) for text in samples):
            raise BadUse(f"{args.records}: {record['key']} has no samples; give sampled records")
        graded.append({"key": record["key"], "cluster": record["key"],
                       "verdicts": verdicts(gold, samples, args.rule)})  # fmt: skip
    found = share(pass_samples(graded, 1))
    low, high = found.interval()
    print(
        f"pass@1 {found.value:.4f} [{low:.4f}, {high:.4f}], {found.items} of {len(rows)} items, "
        f"rule {args.rule}"
    )
    return 0
