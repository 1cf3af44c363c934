"""Measures text to tokens against ``dolma tokens`` on the same documents.

    ./kit setup dolma
    .venv/bin/python -m benchmarks.dolma_tokens [--size 100MB] [--rounds N]

Ours is the stage ``tokens_text`` as ``benchmarks.tokenize`` runs it, the check against held-out
items included; dolma reads the same documents from JSON lines and writes a memory map of tokens.
Both have the same vocabulary, one worker, one thread; start-up counts on both sides.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness import record
from benchmarks.tokenize import ONE_THREAD, TIMEOUT_SECONDS, make_inputs, parse_size, process
from instella.prove.copies import PROJECT
from instella.prove.processes import Finished, run

DOLMA = PROJECT / ".venvs" / "dolma" / "bin" / "dolma"
TARGET = 2.0


def main() -> int:
    """Measure and record; 1 when ours is less than twice as fast."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="100MB", help="amount of text: 50MB, 1GB")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    if not DOLMA.is_file():
        raise SystemExit("dolma is not there; ./kit setup dolma puts it there")
    with tempfile.TemporaryDirectory(prefix="dolma-tokens-") as temporary:
        folder = Path(temporary)
        documents, size = make_inputs(folder, parse_size(args.size))
        make_dolma_inputs(folder)
        pairs = [(process(folder, "stage", 1), dolma(folder)) for _ in range(args.rounds)]
    by_cpu = statistics.median(theirs.cpu / ours.cpu for ours, theirs in pairs)
    by_wall = statistics.median(theirs.wall / ours.wall for ours, theirs in pairs)
    lines = [
        f"- text: {size:,} bytes in {documents:,} documents; rounds, in turn: {args.rounds}",
        *(f"- {name}: {size / statistics.median(item.cpu for item in sides) / 1e6:.2f} MB a "
          f"second of CPU time, peak memory {max(item.peak_tree for item in sides) / 1e6:.0f} MB"
          for name, sides in zip(("the stage", "dolma tokens"), zip(*pairs, strict=True),
                                 strict=True)),
        f"- times as fast: by CPU time {by_cpu:.2f} (target: at least {TARGET:g}), by wall time "
        f"{by_wall:.2f}",
    ]  # fmt: skip
    record("Text to tokens against dolma tokens", lines)
    return int(by_cpu < TARGET)


def make_dolma_inputs(folder: Path) -> None:
    """The documents with identifiers, and the tokenizer as the older library reads it."""
    (folder / "documents").mkdir()
    number = 0
    for path in sorted((folder / "source").glob("*.jsonl")):
        with (
            path.open(encoding="utf-8") as rows,
            (folder / "documents" / path.name).open("w", encoding="utf-8") as file,
        ):
            for row in rows:
                document = {"id": str(number), "text": json.loads(row)["text"], "source": "text"}
                file.write(json.dumps(document) + "\n")
                number += 1
    tokenizer: dict[str, Any] = json.loads((folder / "tokenizer" / "tokenizer.json").read_bytes())
    # tokenizers 0.19 reads merges as text; a byte-level token holds no blank
    model = tokenizer["model"]
    model["merges"] = [" ".join(pair) for pair in model["merges"]]
    (folder / "dolma-tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")


def dolma(folder: Path) -> Finished:
    """One run of ``dolma tokens``.

    Raises:
        SystemExit: it failed, or wrote no tokens.
    """
    target = folder / "dolma"
    command = [
        str(DOLMA), "tokens", "--documents", str(folder / "documents" / "*.jsonl"),
        "--destination", str(target), "--processes", "1",
        "--tokenizer.name_or_path", str(folder / "dolma-tokenizer.json"),
        "--tokenizer.eos_token_id", "0", "--tokenizer.pad_token_id", "1", "--dtype", "uint16",
    ]  # fmt: skip
    done = run(command, folder, TIMEOUT_SECONDS, ONE_THREAD)
    written = sum(path.stat().st_size for path in target.rglob("*.npy"))
    if done.code or not written:
        raise SystemExit(f"dolma tokens ended with {done.code}, {written} bytes\n{done.err}")
    shutil.rmtree(target)
    return done


if __name__ == "__main__":
    sys.exit(main())
