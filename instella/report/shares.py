"""What each source is, under which licence, and what share of each stage's data it gave."""

from collections.abc import Mapping
from typing import Any

from instella.recipe.graph import Stage
from instella.recipe.settings import Source
from instella.report.files import Files

REPORT = "report.json"

Row = dict[str, Any]


def sources_of(graph: Mapping[str, Stage]) -> list[Row]:
    """One row a source that the graph needs."""
    found = []
    for stage in graph.values():
        if stage.kind == "source":
            source: Source = stage.settings["source"]
            found.append(
                {
                    "name": stage.name.removeprefix("source_"),
                    "stage": stage.name,
                    "what": _what(source),
                    "pin": _pin(source),
                    "licence": source.licence,
                }
            )
    return found


def _what(source: Source) -> str:
    words = {
        "package": f"package {source.package} {source.version}",
        "generated": f"{source.size} items of {source.generator} {source.version}",
        "file": f"file {source.path}",
        "hub": f"{source.repository_type} {source.repository}",
    }
    return words[source.kind]


def _pin(source: Source) -> str:
    if source.kind == "generated":
        return f"seed {source.seed}"
    if source.kind == "hub":
        return f"revision {source.revision}" if source.revision else "no revision yet"
    return f"sha256 {source.sha256}"


def shares_of(files: Files, graph: Mapping[str, Stage]) -> list[Row]:
    """One row for each source in each stage of tokens: documents, tokens and its share of them."""
    found = []
    for name, stage in graph.items():
        if not stage.kind.startswith("tokens_"):
            continue
        report = files.json(name, REPORT)
        parts = report.get("parts") if isinstance(report, dict) else None
        if not isinstance(parts, list) or not all(_is_part(part) for part in parts):
            continue
        counts: dict[str, list[int]] = {}
        for part in parts:
            sums = counts.setdefault(part["source"], [0, 0])
            sums[0] += part["documents"]
            sums[1] += part["tokens"]
        whole = sum(tokens for _, tokens in counts.values())
        for source, (documents, tokens) in counts.items():
            share = tokens / whole if whole else 0.0
            row = {"stage": name, "source": source, "documents": documents, "tokens": tokens}
            found.append({**row, "share": share})
    return found


def _is_part(part: Any) -> bool:
    return (
        isinstance(part, dict)
        and isinstance(part.get("source"), str)
        and type(part.get("documents")) is int
        and type(part.get("tokens")) is int
    )
