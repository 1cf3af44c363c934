"""``instella grade --gold G --answer A`` and ``instella grade --batch FILE.jsonl``."""

import argparse
from pathlib import Path
from typing import Any

from instella.canonical import parse_json
from instella.errors import BadUse, VerificationError
from instella.rewards.grade import Grader, answer_of


def register(subparsers: Any) -> None:
    """Add ``grade`` to the command line; ``args.run(args)`` gives the exit code."""
    parser = subparsers.add_parser(
        "grade",
        help="judge whether an answer equals the gold answer",
        description="Prints correct, wrong, no answer or timed out. An answer that holds "
        "\\boxed or \\fbox is a whole response: its last box is judged. Any other text is "
        "the bare answer itself. Write --answer=-x for one that begins with a dash.",
    )
    parser.add_argument("--gold", metavar="G", help="the right answer, bare")
    parser.add_argument("--answer", metavar="A", help="a response, or a bare answer")
    parser.add_argument(
        "--batch", metavar="FILE.jsonl", type=Path,
        help="judge rows with gold and answer, one verdict a line in their order",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the verdicts; always 0, whatever they are.

    Raises:
        BadUse: neither a pair nor a batch, both, or a batch that cannot be read.
    """
    pair = (args.gold, args.answer)
    if args.batch is not None and pair == (None, None):
        pairs = read_batch(args.batch)
    elif args.batch is None and None not in pair:
        pairs = [pair]
    else:
        raise BadUse("grade: give --gold and --answer, or --batch alone")
    with Grader() as grader:
        for gold, answer in pairs:
            print(grader.verdict(gold, answer_of(answer)), flush=True)
    return 0


def read_batch(path: Path) -> list[tuple[str, str]]:
    """Gold and answer of each row; blank lines are refused, so that lines stay paired.

    Raises:
        BadUse: the file cannot be read, or a row lacks a text; names file and line.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadUse(f"{path}: {error.strerror}: give a readable .jsonl file") from None
    lines = data.removesuffix(b"\n").split(b"\n") if data else []
    return [_pair(line, f"{path}: line {number}") for number, line in enumerate(lines, 1)]


def _pair(line: bytes, where: str) -> tuple[str, str]:
    try:
        row = parse_json(line, where)
    except VerificationError as error:
        raise BadUse(str(error)) from None
    gold, answer = (row.get("gold"), row.get("answer")) if isinstance(row, dict) else (None, None)
    if not isinstance(gold, str) or not isinstance(answer, str):
        raise BadUse(f"{where}: expected an object with the texts gold and answer")
    return gold, answer
