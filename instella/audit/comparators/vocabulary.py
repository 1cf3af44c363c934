"""tokenizer.json: entries of the vocabulary, merges, and everything else."""

from pathlib import Path
from typing import Any

from instella.audit.comparators.documents import compare_values, read, text
from instella.audit.comparators.finding import Comparison, Finding
from instella.errors import VerificationError


def compare(left: Path, right: Path) -> Comparison:
    """The first differing entry by id, the first differing merge, then other settings."""
    sides = [_parts(read(path), path) for path in (left, right)]
    (ids, merges, rest), (other_ids, other_merges, other_rest) = sides
    findings = []
    numbers = sorted(n for n in {*ids, *other_ids} if ids.get(n) != other_ids.get(n))
    if numbers:
        shown = [
            text(side[numbers[0]]) if numbers[0] in side else "no such id"
            for side in (ids, other_ids)
        ]
        extent = f"{len(numbers)} of {len({*ids, *other_ids})} ids differ"
        findings.append(Finding(f"id {numbers[0]}", shown[0], shown[1], extent))
    count = max(len(merges), len(other_merges))
    padded = [[*side, *[None] * (count - len(side))] for side in (merges, other_merges)]
    odd = [n for n in range(count) if padded[0][n] != padded[1][n]]
    if odd:
        shown = ["no such merge" if side[odd[0]] is None else text(side[odd[0]]) for side in padded]
        extent = f"{len(odd)} of {count} merges differ"
        findings.append(Finding(f"merge {odd[0]}", shown[0], shown[1], extent))
    findings += compare_values(rest, other_rest).findings
    parts = (("vocabulary", numbers), ("merges", odd), ("settings", rest != other_rest))
    names = [name for name, differs in parts if differs]
    return Comparison(f"{' and '.join(names) or 'nothing but the text'} differ", tuple(findings))


def _parts(value: Any, path: Path) -> tuple[dict[int, str], list[Any], Any]:
    """Ids with their texts, merges, and the document without both."""
    model = value.get("model") if isinstance(value, dict) else None
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict):
        raise VerificationError(f"{path}: not a tokenizer with a vocabulary")
    vocabulary = model["vocab"]
    if not all(type(number) is int for number in vocabulary.values()):
        raise VerificationError(f"{path}: an id of the vocabulary is no whole number")
    merges = model.get("merges", [])
    if not isinstance(merges, list):
        raise VerificationError(f"{path}: merges are no list")
    others = {key: item for key, item in model.items() if key not in ("vocab", "merges")}
    return {n: word for word, n in vocabulary.items()}, merges, {**value, "model": others}
