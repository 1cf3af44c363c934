"""``instella evaluation judge answer|ask``: answers of a checkpoint, judged by another model.

``INSTELLA_JUDGE_URL`` is the judge's base address, or ``file:FOLDER`` with an earlier
transcript; ``INSTELLA_JUDGE_KEY`` its key.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from instella.canonical import json_bytes, read_jsonl, sha256_bytes, write_jsonl
from instella.commands.common import add_parser, load_project
from instella.errors import BadUse, KitError

URL, KEY = "INSTELLA_JUDGE_URL", "INSTELLA_JUDGE_KEY"
REPLAY = "file:"
CONNECTIONS = 16


def register(actions: Any) -> None:
    """Add ``judge`` to the actions of ``evaluation``."""
    parser = actions.add_parser("judge", help="answers judged by a model behind an endpoint")
    steps = parser.add_subparsers(dest="step", required=True, metavar="STEP")
    answer = add_parser(steps, "answer", "write a checkpoint's answers, greedy, turn by turn")
    answer.add_argument("checkpoint", metavar="CHECKPOINT", help="a stage that makes one")
    answer.add_argument(
        "--max-new-tokens", type=int, default=1024, metavar="N", help="longest answer (1024)"
    )
    answer.set_defaults(run=run_answer)
    ask = add_parser(steps, "ask", "have answers judged; writes records and the transcript")
    ask.add_argument("protocol", metavar="PROTOCOL", help="mt_bench or alpaca_eval")
    ask.add_argument("answers", type=Path, metavar="ANSWERS.jsonl", help="of judge answer")
    ask.add_argument(
        "--prompts", nargs=2, required=True, metavar=("FILE.jsonl", "SHA256"),
        help="the judge's prompts and the hash that they must have",
    )  # fmt: skip
    ask.add_argument("--model", required=True, metavar="NAME", help="as the server calls it")
    ask.add_argument("--against", type=Path, metavar="ANSWERS.jsonl", help="for alpaca_eval")
    ask.add_argument(
        "--gamed", nargs=2, metavar=("FILE.csv", "SHA256"),
        help="AlpacaEval's df_gamed.csv and its hash: prints the length-controlled share too",
    )  # fmt: skip
    ask.add_argument(
        "--published", type=Path, default=Path("recipes/published"), metavar="FOLDER",
        help="published folder (recipes/published)",
    )  # fmt: skip
    ask.set_defaults(run=run_ask)
    for step in (answer, ask):
        step.add_argument(
            "--questions", nargs=2, required=True, metavar=("FILE.jsonl", "SHA256"),
            help="the questions and the hash that they must have",
        )  # fmt: skip
        step.add_argument("--output", type=Path, required=True, metavar="PLACE",
                          help="file of the answers, or folder of records and transcript")  # fmt: skip


def run_answer(args: argparse.Namespace) -> int:
    """Write one line a question: ``{"question_id", "turns"}``."""
    project = load_project(args)
    from instella import numerics

    numerics.apply_environment(project.recipe.numerics)
    from instella.commands.seen import CHECKPOINT_KINDS, Run
    from instella.data.tokenizer import load
    from instella.evaluation.answers import answered, turns_of
    from instella.evaluation.judge import read_given
    from instella.network.folder import load_folder

    questions = read_given(Path(args.questions[0]), args.questions[1])
    if project.stage(args.checkpoint).kind not in CHECKPOINT_KINDS:
        raise BadUse(f"{args.checkpoint}: makes no checkpoint; see instella stages")
    if args.max_new_tokens < 1:
        raise BadUse(f"--max-new-tokens {args.max_new_tokens}: has to be at least 1")
    seen = Run(project)
    seen.verified(args.checkpoint)
    folder = seen.folder(args.checkpoint)
    network = load_folder(folder, project.recipe.numerics).eval()
    turns = [turns_of(question) for question in questions]
    said = answered(network, load(folder), turns, args.max_new_tokens)
    write_jsonl(args.output, [
        {"question_id": question.get("question_id"), "turns": own}
        for question, own in zip(questions, said, strict=True)
    ])  # fmt: skip
    return 0


def run_ask(args: argparse.Namespace) -> int:
    """Write ``records.jsonl`` and ``transcript.jsonl`` in the output folder; print the mean."""
    from instella.evaluation.compare import score, share
    from instella.evaluation.judge import Judge, given_bytes, judged, read_given, read_judgings
    from instella.evaluation.length_control import Compared, length_controlled, parse_gamed
    from instella.evaluation.records import samples
    from instella.synthesis.client import Client
    from instella.synthesis.transcript import FILE, Transcript

    protocols = read_judgings(args.published)
    if args.protocol not in protocols:
        raise BadUse(f"{args.protocol}: no protocol; choose one of {', '.join(protocols)}")
    protocol = protocols[args.protocol]
    if (protocol.kind == "pair") != (args.against is not None):
        raise BadUse(f"{args.protocol}: {'add' if protocol.kind == 'pair' else 'drop'} --against")
    if args.gamed and protocol.kind != "pair":
        raise BadUse(f"{args.protocol}: drop --gamed")
    gamed = None
    if args.gamed:
        gamed = parse_gamed(given_bytes(Path(args.gamed[0]), args.gamed[1]), args.gamed[0])
    questions = read_given(Path(args.questions[0]), args.questions[1])
    judge = Judge(protocol, read_given(Path(args.prompts[0]), args.prompts[1]), args.model)
    answers = _answers(args.answers)
    others = _answers(args.against) if args.against else {}
    url = os.environ.get(URL, "")
    if not url:
        raise BadUse(f"no judge; set {URL} to the address of its server, such as http://HOST/v1")
    args.output.mkdir(parents=True, exist_ok=True)
    is_replay = url.startswith(REPLAY)
    place = Path(url.removeprefix(REPLAY)) if is_replay else args.output
    client = None if is_replay else Client(url, os.environ.get(KEY, ""), _say, who="judge")
    transcript = Transcript(place / FILE, writable=not is_replay)

    def ask(body: dict[str, Any]) -> str:
        request = sha256_bytes(json_bytes(body))
        entry = transcript.get(request)
        if entry is not None:
            return str(entry["reply"])
        if client is None:
            raise BadUse(f"{place}: the transcript lacks a reply; it belongs to other answers")
        reply, ended = client.complete(body)
        transcript.add(request, reply, ended)
        return reply

    try:
        records = judged(judge, questions, answers, others, ask, CONNECTIONS)
    finally:
        transcript.close()
    write_jsonl(args.output / "records.jsonl", records)
    unjudged = int(sum(record["figures"]["unjudged"][0] for record in records))
    if not any(record["figures"][protocol.kind][1] for record in records):
        raise KitError(f"{args.output}: none of the {unjudged} replies holds a verdict")
    own = samples(records, protocol.kind)
    found = share(own) if protocol.kind == "pair" else score(own)
    low, high = found.interval()
    print(f"{protocol.kind} {found.value:.4f} [{low:.4f}, {high:.4f}], {found.items} questions, "
          f"{unjudged} replies without a verdict")  # fmt: skip
    if gamed is not None:
        compared = [
            Compared(record["key"], record["verdicts"][0],
                     *(len(side[record["key"]][0]) for side in (answers, others)))
            for record in records
        ]  # fmt: skip
        controlled = length_controlled(compared, gamed)
        print(f"length-controlled {controlled.share:.4f} [{controlled.low:.4f}, "
              f"{controlled.high:.4f}]")  # fmt: skip
    return 0


def _answers(path: Path) -> dict[str, list[str]]:
    try:
        rows = read_jsonl(path)
    except OSError as error:
        raise BadUse(f"{path}: {error.strerror}: give a readable .jsonl file") from None
    found: dict[str, list[str]] = {}
    for row in rows:
        key, turns = str(row.get("question_id")), row.get("turns")
        if not isinstance(turns, list) or not all(isinstance(turn, str) for turn in turns):
            raise BadUse(f"{path}: {key}: has no answers; see judge answer")
        if key in found:
            raise BadUse(f"{path}: {key}: is answered twice; see judge answer")
        found[key] = turns
    return found


def _say(line: str) -> None:
    print(line, file=sys.stderr)
