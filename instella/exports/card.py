"""The model card of a checkpoint: Markdown with the front matter that model hubs read.

What stands there is the recipe's, the manifests' and the scores' word, and in one table the
journal's, which no hash covers.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from instella.exports.account import Spent, energy_kwh, other_seconds, spent
from instella.exports.bom import scores
from instella.exports.finished import Finished
from instella.exports.terms import HELD_OUT, NON_COMMERCIAL, Terms, carried
from instella.plan.report import scaled
from instella.recipe.derived import parameter_count
from instella.recipe.imports import ancestors


def card(run: Finished, name: str, watts: float | None = None) -> str:
    """README.md of a checkpoint.

    Args:
        run: the finished run.
        name: of the checkpoint.
        watts: what the machine draws while it trains, as somebody measured or looked up; None:
            no energy is told for what ran without accelerators in the recipe.
    """
    terms = carried(run.graph, name, run.recipe_file.parent)
    parts = [
        _front(run, terms),
        _head(run, name),
        _model(run),
        _lineage(run, name),
        _data(terms),
        _scores(run, name),
        _account(run, name, watts),
        _reproduce(run, name),
        _limits(run),
    ]
    return "\n".join(line for part in parts for line in [*part, ""]).rstrip("\n") + "\n"


def _front(run: Finished, terms: Sequence[Terms]) -> list[str]:
    # what was only measured on leaves nothing in the weights
    marks = sorted({mark for item in terms if not item.is_held_out_only for mark in item.marks})
    lines = ["---", "license: other", "license_name: terms-of-the-inputs"]
    lines += ["library_name: transformers", "pipeline_tag: text-generation", "tags:"]
    lines += [f"  - {tag}" for tag in ("instella", "reproducible", *map(_tag, marks))]
    return [*lines, "---"]


def _tag(mark: str) -> str:
    return f"terms-{mark.replace(' ', '-')}"


def _head(run: Finished, name: str) -> list[str]:
    manifest = run.manifests[name]
    lines = [f"# {run.recipe.name}: {name}", "", f"{_cell(run.recipe.about)}."]
    how = "published elsewhere and imported" if manifest.origin == "imported" else "computed"
    lines += ["", f"Stage `{name}` (kind {manifest.kind}, {how}) of recipe `{run.recipe.name}`."]
    return lines


def _model(run: Finished) -> list[str]:
    shape = run.recipe.model
    rows = [
        ("parameters", f"{parameter_count(shape):,}"),
        ("layers, width, heads", f"{shape.num_hidden_layers}, {shape.hidden_size}, "
                                 f"{shape.num_attention_heads}"),
        ("width of the SwiGLU", f"{shape.intermediate_size}"),
        ("vocabulary", f"{shape.vocab_size}"),
        ("longest sequence", f"{shape.max_position_embeddings}"),
        ("numerics class", run.recipe.numerics),
    ]  # fmt: skip
    return ["## Model", "", *_table(("", ""), rows)]


def _lineage(run: Finished, name: str) -> list[str]:
    before = ancestors(run.graph, name) | {name}
    rows = []
    for item in run.checkpoints():
        if item in before:
            stage, manifest = run.graph[item], run.manifests[item]
            starts = [s for s in stage.inputs.values() if s in run.checkpoints()]
            rows.append((item, manifest.kind, ", ".join(starts) or "-", manifest.content))
    head = ("checkpoint", "kind", "starts from", "content (SHA-256)")
    return ["## What it comes from", "", *_table(head, rows)]


def _data(terms: Sequence[Terms]) -> list[str]:
    lines = ["## Data and terms", ""]
    lines.append(
        "The kit gives the weights no licence of its own. Terms of everything that the model was "
        "made from, in the recipe's words, carried through every stage between:"
    )
    rows = [(item.name, item.licence, _uses(item), item.origin + _accepted(item)) for item in terms]
    lines += ["", *_table(("input", "licence", "use", "origin"), rows)]
    warnings = list(_warnings(terms))
    return lines + (["", *warnings] if warnings else [])


def _uses(item: Terms) -> str:
    by_use: dict[str, list[str]] = {}
    for use, stage in item.uses:
        by_use.setdefault(use, []).append(stage)
    return "; ".join(
        use if use == HELD_OUT else f"{use}: {', '.join(stages)}" for use, stages in by_use.items()
    )


def _accepted(item: Terms) -> str:
    return f"; terms accepted at {item.page}" if item.page else ""


def _warnings(terms: Sequence[Terms]) -> Iterator[str]:
    for mark in sorted({mark for item in terms for mark in item.marks}):
        holders = [item for item in terms if mark in item.marks]
        learned = [item.name for item in holders if not item.is_held_out_only]
        kept_out = [item.name for item in holders if item.is_held_out_only]
        text = f"- **{mark}**:"
        if learned:
            text += f" the model was made from {', '.join(learned)}"
            text += ", so commercial use needs their permission" * (mark == NON_COMMERCIAL)
            text += ";" * bool(kept_out)
        if kept_out:
            text += (
                f" {', '.join(kept_out)} only decided what was left out of the training data, and "
                "was measured on"
            )
        yield f"{text}."


def _scores(run: Finished, name: str) -> list[str]:
    rows = []
    for held_out, metric, figure in scores(run, name):
        item = run.recipe.evaluation.sets[held_out]
        chosen = " (the set's own)" * (item.kind == "choice" and metric == item.metric)
        chance = f"{item.chance:g}" if item.kind == "choice" and item.chance is not None else "-"
        interval = f"[{figure['low']:.4f}, {figure['high']:.4f}]"
        value = f"{figure['value']:.4f}"
        rows.append((held_out, metric + chosen, value, interval, chance, str(figure["items"])))
    lines = ["## Scores", ""]
    if not rows:
        return [*lines, "This checkpoint was not measured."]
    lines.append("On held-out items of the recipe, with 95 % bootstrap intervals:")
    head = ("set", "metric", "value", "interval", "guessing", "items")
    return [*lines, "", *_table(head, rows)]


def _account(run: Finished, name: str, watts: float | None) -> list[str]:
    stages = spent(run, name)
    rows = [_spent_row(item, watts) for item in stages]
    head = ("stage", "runs", "tokens", "FLOPs (computed)", "wall time (measured)",
            "energy (computed)")  # fmt: skip
    lines = ["## Compute and energy", "", *_table(head, rows), ""]
    times = [run.executions[s] for s in run.graph if s in run.executions and run.graph[s].trains]
    machines = sorted({f"{t.cpu}, {t.cores} cores" for t in times if t.computed and t.cpu})
    lines.append(
        "Computed: tokens and floating-point operations by the formulas of `instella recipe plan`, "
        "padding included."
    )
    lines.append(
        "Measured: seconds of wall time in the run's journal, of all runs together, which no hash "
        f"covers; data and tokenizer took {other_seconds(run, name):,.0f} s more."
        + (f" Machine: {'; '.join(machines)}." if machines else "")
    )
    if run.recipe.hardware is not None:
        lines.append("Energy: power of the recipe's accelerators times planned hours; no meter.")
    elif watts is not None:
        lines.append(
            f"Energy: measured wall time times {watts:g} W, which was given to the export and "
            "not measured by the kit."
        )
    else:
        lines.append("Energy was not measured, and no power was given to compute it from.")
    return lines


def _spent_row(item: Spent, watts: float | None) -> tuple[str, ...]:
    plan, seconds = item.planned, item.seconds
    energy = plan.energy_kwh
    if energy is None and watts is not None and seconds is not None:
        energy = energy_kwh(seconds, watts)
    tokens = None if plan.tokens is None else plan.tokens * plan.runs
    return (
        item.stage,
        str(plan.runs),
        scaled(tokens),
        "-" if plan.flops is None else f"{plan.flops:.3g}",
        "-" if seconds is None else f"{seconds:,.0f} s",
        "-" if energy is None else f"{energy:.3g} kWh",
    )


def _reproduce(run: Finished, name: str) -> list[str]:
    manifest = run.manifests[name]
    rows = [
        (f"`{path}`", f"{entry.size:,}", f"`{entry.sha256}`")
        for path, entry in sorted(manifest.files.items())
    ]
    code = manifest.identity.get("code")
    lines = ["## Reproduce and verify", ""]
    lines += [f"- root of the run: `{run.root}`", f"- content of this stage: `{manifest.content}`"]
    if code is not None:
        lines += [f"- hash of the stage's code: `{code}`", f"- hash of the lock: "
                  f"`{manifest.identity['lock']}`"]  # fmt: skip
    lines += [
        "",
        "In a checkout of instella-kit that gives these hashes:",
        "",
        f"    ./kit run --config recipe=recipes/{run.recipe_file.name}",
        f"    .venv/bin/instella root --recipe recipes/{run.recipe_file.name}",
        f"    .venv/bin/instella audit --recipe recipes/{run.recipe_file.name} --sample 10",
        "",
        "The second line has to print the root above. `sha256sum` of each file:",
        "",
        *_table(("file", "bytes", "SHA-256"), rows),
    ]
    return lines


def _limits(run: Finished) -> list[str]:
    lines = ["## Limits", ""]
    lines += ["Not tested for safety, bias or use outside of the sets above."]
    if run.recipe.deviations:
        lines += ["Where the recipe knowingly differs from the published one:", ""]
        lines += [f"- {_cell(text)}" for text in run.recipe.deviations]
    return lines


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return lines + [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows]


def _cell(value: Any) -> str:
    """Text on one line that ends no cell and starts no markup of its own."""
    text = " ".join(str(value).split()).replace("|", "\\|").replace("<", "&lt;")
    return "".join(letter if letter.isprintable() else "?" for letter in text)
