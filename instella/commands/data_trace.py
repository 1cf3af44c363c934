"""``instella data trace CHECKPOINT`` and ``instella data where HASH|TEXT``."""

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from instella.commands.common import add_parser, json_line, load_project
from instella.errors import BadUse

if TYPE_CHECKING:
    from instella.commands.seen import Place, Run

HASH = re.compile(r"[0-9a-f]{64}")
PART_OF_HASH = re.compile(r"(?=.*[0-9])(?=.*[a-f])[0-9a-f]{12,}")
SHOWN_STEPS = 10
SHOWN_DOCUMENTS = 20
LARGEST_TEXT_BYTES = 1 << 24
COUNTED = (
    "documents: each is counted once, however often it was seen",
    "sightings: an example (a window of packed text, a row or a prompt) is counted each time a "
    "step has it, and once for each document in it",
    "steps: a step takes one batch of examples and makes one update of the weights; with GRPO it "
    "takes a batch of prompts and makes one or more updates on their answers",
)


def register(actions: Any) -> None:
    """Add ``trace`` and ``where`` to the actions of ``data``."""
    trace = add_parser(actions, "trace", "what a checkpoint saw, and when")
    trace.add_argument("name", metavar="CHECKPOINT", help="a stage that trains or merges")
    trace.add_argument("--json", action="store_true", help="as JSON, one object a line")
    trace.add_argument(
        "--step", metavar="A:B", type=_steps,
        help="list the documents of these steps of the stage itself (from 1, B included)",
    )  # fmt: skip
    trace.set_defaults(run=run_trace)
    where = add_parser(actions, "where", "which checkpoints saw a document, and when")
    where.add_argument(
        "what", metavar="HASH|TEXT|@FILE",
        help="SHA-256 of a document; or some text of it, or of what the model was shown of it; "
        "@FILE: that text is in a file",
    )  # fmt: skip
    where.add_argument("--json", action="store_true", help="as one JSON object, nothing left out")
    where.add_argument(
        "--all", action="store_true", help=f"list all documents, not {SHOWN_DOCUMENTS}"
    )
    where.set_defaults(run=run_where)


def _steps(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([0-9]+)(?::([0-9]+))?", text)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= first <= last:
        raise argparse.ArgumentTypeError(f"{text!r}: write for example 1:10")
    return first, last


def run_trace(args: argparse.Namespace) -> int:
    """Print the trainings behind a checkpoint, or the documents of some steps; always 0.

    Raises:
        BadUse: no such checkpoint, or steps that it does not have.
        Incomplete: a stage behind it has no result, or one that does not fit.
    """
    from instella.commands.seen import Run

    project = load_project(args)
    name, run = project.stage(args.name).name, Run(project)
    lineage = run.lineage(name)
    lines = _documents(run, name, *args.step) if args.step else _trainings(run, lineage)
    for line in lines:
        print(json_line(line) if args.json else "\n".join(_described(line)))
    if not args.json and not args.step:
        print(*(f"# {line}" for line in COUNTED), sep="\n")
    return 0


def _trainings(run: "Run", names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """One object a checkpoint: its steps and what they saw of each source."""
    from instella.data.trace import summary

    for name in names:
        stage, manifest = run.graph[name], run.checked(name)
        if manifest.origin == "imported" or stage.kind == "merge":
            how = "imported" if manifest.origin == "imported" else "merge"
            yield {"stage": name, "kind": how}
            continue
        training = run.training(name)
        sources = {source: asdict(seen) for source, seen in summary(training).items()}
        steps = training.order.total_steps
        yield {
            "stage": name,
            "kind": stage.kind,
            "tokens": stage.inputs["tokens"],
            "steps": steps,
            "epochs": training.order.at(steps - 1)[0] + 1,
            "examples": training.order.count,
            "sources": sources,
        }


def _documents(run: "Run", name: str, first: int, last: int) -> Iterator[dict[str, Any]]:
    """One object a document of the steps."""
    from instella.commands.seen import TRAINING_KINDS
    from instella.data.trace import documents_in

    if run.graph[name].is_imported:
        raise BadUse(f"{name}: was imported, so no ledger tells what it saw")
    if run.graph[name].kind not in TRAINING_KINDS:
        inputs = ", ".join(run.graph[name].inputs.values())
        raise BadUse(f"{name}: has no steps of its own; ask for those of {inputs}")
    training = run.training(name)
    if last > training.order.total_steps:
        raise BadUse(f"--step {first}:{last}: {name} has {training.order.total_steps} steps")
    for item in documents_in(training, first, last):
        yield {**item.entry, "steps": item.steps}


def _described(line: dict[str, Any]) -> Iterator[str]:
    if "key" in line:
        yield f"{line['sha256']}  {line['source']}  {line['key']}  steps {_short(line['steps'])}"
        return
    if "tokens" not in line:
        yield f"{line['stage']}: {line['kind']}"
        return
    yield (
        f"{line['stage']}: {line['kind']}, {line['steps']:,} steps in {line['epochs']} "
        f"epochs over {line['examples']:,} examples of {line['tokens']}"
    )
    for source, seen in line["sources"].items():
        tokens = f" of {seen['tokens']:,} tokens" if seen["tokens"] else ""
        yield (
            f"  {source}: {seen['documents']:,} documents in {seen['examples']:,} sightings"
            f"{tokens}, steps {seen['first']} to {seen['last']}"
        )


def _short(steps: Sequence[int]) -> str:
    shown = ", ".join(map(str, steps[:SHOWN_STEPS]))
    more = len(steps) - SHOWN_STEPS
    return f"{shown} and {more} more" if more > 0 else shown


def run_where(args: argparse.Namespace) -> int:
    """Print where a document went. 0: a ledger holds it, 1: none does.

    Raises:
        BadUse: nothing to look for.
        Incomplete: a stage has no result, or one that does not fit.
    """
    from instella.commands.seen import Run, consequences, places

    what = _wanted(args.what)
    is_hash = HASH.fullmatch(what.lower()) is not None
    if is_hash:
        what = what.lower()
    elif PART_OF_HASH.fullmatch(what.lower()):
        raise BadUse(f"data where: {what!r} is part of a hash or of a key; give all 64 digits")
    run = Run(load_project(args))
    found = list(places(run, what, is_hash))
    after = consequences(run, found)
    if args.json:
        print(json_line({"places": list(map(_place, found)), **asdict(after)}))
        return 0 if found else 1
    if not found:
        print("no document of a ledger matches")
        return 1
    listed = [line for place in found for line in _listed(place)]
    shown = listed if args.all else listed[:SHOWN_DOCUMENTS]
    print(*shown, sep="\n")
    if len(listed) > len(shown):
        print(f"and {len(listed) - len(shown):,} more documents: --all lists them too")
    print(f"checkpoints that saw it: {', '.join(after.checkpoints) or 'none'}")
    print(f"to run again without it: {', '.join(after.rerun)}")
    return 0


def _wanted(text: str) -> str:
    """What is looked for: the argument, or the text of the file that it names."""
    if text.startswith("@"):
        path = Path(text[1:])
        try:
            if path.stat().st_size > LARGEST_TEXT_BYTES:
                raise BadUse(f"{path}: over {LARGEST_TEXT_BYTES:,} bytes; give a part of it")
            # The end of the last line belongs to the file.
            text = path.read_bytes().decode("utf-8").removesuffix("\n").removesuffix("\r")
        except OSError as error:
            raise BadUse(
                f"data where: {path}: {error.strerror}; a text that begins with @ has to stand in "
                "a file"
            ) from None
        except UnicodeDecodeError as error:
            raise BadUse(f"data where: {path}: byte {error.start} is not UTF-8") from None
    if not text.strip():
        raise BadUse("data where: the text to look for is empty")
    return text


def _listed(place: "Place") -> Iterator[str]:
    """The lines about each document of a ledger, as one text a document."""
    for number, item in enumerate(place.documents):
        entry = item.entry
        lines = [f"{entry['source']}  {entry['key']}  {entry['sha256']}: in {place.ledger}"]
        for name, documents in place.trainings.items():
            steps = documents[number].steps
            lines.append(f"  {name}: {f'steps {_short(steps)}' if steps else 'never seen'}")
        yield "\n".join(lines)


def _place(place: "Place") -> dict[str, Any]:
    return {
        "ledger": place.ledger,
        "documents": [
            {
                **item.entry,
                "steps": {name: items[number].steps for name, items in place.trainings.items()},
            }
            for number, item in enumerate(place.documents)
        ],
    }
