"""How fast held-out items are looked for in a corpus: exact, and nearly word for word.

Documents of random blocks, as in ``benchmarks.tokenize``, and as held-out items the passages of
BoolQ's other part. Needs the downloads of a run.
"""

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.harness import record
from benchmarks.tokenize import boolq_blocks, joined, parse_size, sympy_blocks
from instella.canonical import write_jsonl
from instella.data.documents import Text
from instella.evaluation.overlap import HeldOut, counts


def main() -> int:
    """Measure both sizes and append a section to ``benchmarks/results.md``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="200MB", help="amount of text: 50MB, 1GB")
    size = parse_size(parser.parse_args().size)
    with tempfile.TemporaryDirectory(prefix="overlap-") as temporary:
        folder = Path(temporary)
        (folder / "heldout").mkdir()
        passages, other = (boolq_blocks(folder, split) for split in ("train", "val"))
        # Some of a held-out passage's sentences stand in the text too, so that near is at work.
        held = sorted(set(other) - set(passages))
        rows = [{"key": str(number), "text": text} for number, text in enumerate(held)]
        write_jsonl(folder / "heldout" / "passages.jsonl", rows)
        near = [text[: 2 * len(text) // 3] for text in held[::50]]
        blocks = [*sympy_blocks(), *passages, *near]
        lines = [f"- items: {len(held):,}", "", "| text, MB | MB/s of CPU time | near | peak memory, MB |",
                 "|---|---|---|---|"]  # fmt: skip
        for part in (size // 4, size):
            held_out = HeldOut(folder / "heldout", 13)
            texts = [Text(str(number), text) for number, text in enumerate(joined(blocks, part))]
            total = sum(len(document.text.encode()) for document in texts)
            started = time.process_time()
            found = counts(held_out, held_out.found_in(texts))["passages"]
            seconds = time.process_time() - started
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            lines.append(f"| {total / 1e6:.0f} | {total / seconds / 1e6:.1f} | {found['near']} | "
                         f"{peak:.0f} |")  # fmt: skip
    record("Held-out items in a corpus", lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
