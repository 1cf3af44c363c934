"""CPU time of an audit of a large run, second pass, against hashing its objects by a program.

    ./kit run --config recipe=recipes/nano.yaml
    .venv/bin/python -m benchmarks.audit_speed [--megabytes 2048] [--rounds 5]

Files of random bytes are put into a copy of the finished `nano` run, into the store and the
manifests of four stages: the audit reads and hashes them like all others, and names the
manifests, which nobody recorded. ``instella audit`` as a whole, Python's start included, and
``openssl dgst -sha256`` by ``xargs`` over the same objects take turns; all is in the page cache.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.harness import record
from benchmarks.rehash import PROGRAMS
from instella.artifacts.manifest import NAME, parse_manifest
from instella.artifacts.store import Store
from instella.prove.copies import PROJECT, clone
from instella.prove.processes import Finished, instella, run

STAGES = ("pretrain_stage1", "sft", "dpo", "grpo3")
RECIPE = "recipes/nano.yaml"
TARGET = 1.2
TIMEOUT_SECONDS = 600.0


def main() -> int:
    """Measure and record; 1 when the audit takes more than the target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    if not (PROJECT / "results" / "nano" / "root").is_file():
        raise SystemExit("no finished nano run is there; run it first, as this file's head shows")
    with tempfile.TemporaryDirectory(prefix="audit-speed-") as temporary:
        folder = clone(Path(temporary, "project"), RECIPE)
        for name in ("results", "store"):
            shutil.copytree(PROJECT / name, folder / name)
        for stage in STAGES:
            put_in(folder, stage, (args.megabytes << 20) // len(STAGES))
        objects = [path for path in (folder / "store" / "sha256").rglob("*") if path.is_file()]
        # The first pass fills the page cache and the auditor's own cache.
        audit(folder)
        turns = [(audit(folder), hashed(folder, objects)) for _ in range(args.rounds)]
        size = sum(path.stat().st_size for path in objects)
    ratio = statistics.median(own.cpu / other.cpu for own, other in turns)
    wall = statistics.median(own.wall / other.wall for own, other in turns)
    lines = [
        f"- {len(objects)} objects, {size / 2**30:.2f} GiB, {args.rounds} rounds",
        f"- instella audit: CPU time {statistics.median(own.cpu for own, _ in turns):.2f} s",
        f"- openssl: CPU time {statistics.median(other.cpu for _, other in turns):.2f} s",
        f"- median ratio: {ratio:.2f} by CPU time (target: below {TARGET}), {wall:.2f} on the clock",
        f"- largest process of the audit: {max(own.peak_process for own, _ in turns) / 1e6:.0f} MB",
    ]
    record("Audit of a large run, second pass", lines)
    return int(ratio >= TARGET)


def put_in(folder: Path, stage: str, size: int) -> None:
    """Give a stage a file of random bytes more, in the store, its view and its manifest."""
    path = folder / "results" / "nano" / stage / NAME
    manifest = parse_manifest(path.read_bytes(), str(path))
    large = path.with_name("large.bin")
    block = os.urandom(1 << 20)
    with large.open("wb") as file:
        for number in range(size >> 20):
            file.write(number.to_bytes(8, "little") + block[8:])
    store = Store(folder / "store")
    manifest = replace(manifest, files={**manifest.files, large.name: store.publish(large)})
    path.unlink()
    path.write_bytes(manifest.to_bytes())
    store.place(manifest, path.parent)


def audit(folder: Path) -> Finished:
    """The whole command; it names what was put in."""
    done = instella(folder, "audit", timeout=TIMEOUT_SECONDS)
    assert done.code == 1 and all(f"{stage}: " in done.out for stage in STAGES), done.out + done.err
    return done


def hashed(folder: Path, objects: list[Path]) -> Finished:
    """The program over all objects, as many at once as there are cores."""
    names = folder / "names"
    names.write_bytes(b"".join(os.fsencode(path) + b"\0" for path in objects))
    cores = str(len(os.sched_getaffinity(0)))
    command = ["xargs", "-0", "-n", "16", "-P", cores, "-a", str(names), *PROGRAMS["openssl"]]
    done = run(command, folder, TIMEOUT_SECONDS)
    assert done.code == 0, done.err
    return done


if __name__ == "__main__":
    sys.exit(main())
