"""``instella recipe show|check|deviations|plan [RECIPE]``."""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from instella.canonical import read_json
from instella.commands.common import add_parser, json_line
from instella.errors import BadUse
from instella.plan.plan import Assumptions, StagePlan, plan
from instella.plan.report import comparisons, text
from instella.recipe.check_data import parts_of
from instella.recipe.check_published import coverage, faults
from instella.recipe.derived import check_tokens, parameter_count, trained_tokens
from instella.recipe.graph import build_graph
from instella.recipe.leaves import leaves
from instella.recipe.origins import Origin, origins
from instella.recipe.published import Deviation, Published, read_published
from instella.recipe.reader import read_placement, read_recipe
from instella.recipe.settings import Recipe


def register(subparsers: Any) -> None:
    """Add ``recipe`` with its actions to the command line."""
    parser = subparsers.add_parser("recipe", help="show, check or plan a recipe")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    show = add_parser(actions, "show", "print every setting, defaults included, with its source")
    show.set_defaults(run=run_show)
    check = add_parser(actions, "check", "recompute what can be derived and compare")
    check.set_defaults(run=run_check)
    deviations = add_parser(actions, "deviations", "print contradictions, faults and decisions")
    deviations.set_defaults(run=run_deviations)
    planned = add_parser(actions, "plan", "print what each training stage costs")
    planned.set_defaults(run=run_plan)
    _add_assumptions(planned)
    for action in (show, deviations, planned):
        action.add_argument("--json", action="store_true", help="as one JSON object")
    for action in (show, check, deviations, planned):
        action.add_argument(
            "recipe", nargs="?", type=Path, metavar="RECIPE",
            help="recipe file (default: the one the placement file names)",
        )  # fmt: skip


def _add_assumptions(parser: argparse.ArgumentParser) -> None:
    default = Assumptions()
    decode = "tokens a second that one accelerator samples"
    for option, kind, value, about in (
        ("--mfu", _share, default.mfu, "share of the peak that training reaches"),
        ("--decode-rate", _positive, default.decode_rate, decode),
        ("--answer-share", _share, default.answer_share, "mean answer as a share of the longest"),
        ("--pue", _pue, default.pue, "energy of the building over that of the accelerators"),
    ):
        parser.add_argument(
            option, type=kind, default=value, metavar="X", help=f"{about} ({value:g})"
        )


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1e-6 <= value <= 1e12:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1e-6 to 1e12")
    return value


def _share(text: str) -> float:
    value = _positive(text)
    if value > 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is more than 1, so it is no share")
    return value


def _pue(text: str) -> float:
    value = _positive(text)
    if value < 1.0:
        # the energy of the building includes that of the accelerators
        raise argparse.ArgumentTypeError(f"{text!r} is less than 1, which no building reaches")
    return value


def run_show(args: argparse.Namespace) -> int:
    """Print ``path = value`` lines (values as JSON) with their origin, or one JSON object."""
    path = _path(args)
    recipe = read_recipe(path)
    published = read_published(recipe, path)
    known = coverage(recipe, published).origin if published else {}
    if args.json:
        value = asdict(recipe)
        if published:
            value["origins"] = {name: _origin_object(origin) for name, origin in known.items()}
        print(json_line(value))
        return 0
    for name, setting in leaves(recipe).items():
        print(f"{name} = {json_line(setting)}{_origin_text(known.get(name))}")
    if published:
        for origin in origins(published.beyond.groups, published.sources.legend):
            print(f"beyond.{origin.path} = {json_line(origin.value)}{_origin_text(origin)}")
        print(*_legend(published), sep="\n")
    return 0


def _origin_text(origin: Origin | None) -> str:
    if origin is None:
        return ""
    cited = ", ".join(origin.sources)
    if origin.where:
        cited += f": {origin.where}"
    return f"  # {origin.confidence}; {cited}" + (f"; {origin.note}" if origin.note else "")


def _origin_object(origin: Origin) -> dict[str, Any]:
    names = ("sources", "where", "confidence", "note")
    return {name: getattr(origin, name) for name in names}


def _legend(published: Published) -> list[str]:
    lines = []
    for code, publication in published.sources.legend.items():
        commit = f" @{publication.commit}" if publication.commit else ""
        address = f", {publication.address}{commit}" if publication.address else ""
        lines.append(f"# {code}: {publication.title}{address}")
    return lines


def run_check(args: argparse.Namespace) -> int:
    """Print one line about a good recipe; one line for each fault of a bad one, and 2."""
    path = _path(args)
    recipe = read_recipe(path)
    published = read_published(recipe, path)
    found = [*_option_faults(recipe), *(faults(recipe, published) if published else [])]
    for line in found:
        print(f"{path}: {line}", file=sys.stderr)
    if found:
        return BadUse.exit_code
    check_tokens(recipe)
    parts = [
        f"{parameter_count(recipe.model):,} parameters",
        f"{len(build_graph(recipe))} stages",
        f"{len(recipe.sources)} sources",
        f"{len(_deviations(recipe, published))} deviations",
    ]
    if published:
        parts.append(f"{len(published.figures.derived)} derived figures")
    for name in ("pretrain_stage1", "pretrain_stage2"):
        tokens = trained_tokens(getattr(recipe.stages, name))
        if tokens is not None:
            parts.append(f"{name} {tokens:,} tokens")
    print(f"{path}: good: {', '.join(parts)}")
    return 0


def _option_faults(recipe: Recipe) -> list[str]:
    """A line for each part whose options its adapter refuses."""
    # numpy and the readers of rows: half a second that the other commands spare
    from instella.data.adapters import read
    from instella.data.packing import split_options

    found = []
    for place, part in parts_of(recipe):
        try:
            read(split_options(part)[0], Path())
        except BadUse as error:
            found.append(f"{'.'.join(map(str, place))}: {error}")
    return found


def run_deviations(args: argparse.Namespace) -> int:
    """Print the recipe's deviations by stage, or one JSON object."""
    path = _path(args)
    recipe = read_recipe(path)
    published = read_published(recipe, path)
    if args.json:
        listed = published.deviations if published else ()
        value = {"deviations": [asdict(item) for item in listed], "own": recipe.deviations}
        print(json_line(value))
        return 0
    for deviation in recipe.deviations:
        print(" ".join(deviation.split()))
    by_stage: dict[str, list[Deviation]] = {}
    for item in published.deviations if published else ():
        by_stage.setdefault(item.stage, []).append(item)
    for stage, items in by_stage.items():
        print(stage)
        for item in items:
            print(*_deviation_lines(item), sep="\n")
    return 0


def _deviations(recipe: Recipe, published: Published | None) -> tuple[Any, ...]:
    return recipe.deviations + (published.deviations if published else ())


def _deviation_lines(item: Deviation) -> list[str]:
    lines = [f"  {item.about} ({item.kind}, {item.id})"]
    for said in item.published:
        where = f" ({said.where})" if said.where else ""
        lines.append(f"    {said.source}: {said.says}{where}")
    return [
        *lines,
        f"    here: {item.choice}",
        f"    so: {item.consequence}",
        f"    test: {item.test}",
    ]


def run_plan(args: argparse.Namespace) -> int:
    """Print a table of the stages that are trained and its legend, or one JSON object."""
    path = _path(args)
    recipe = read_recipe(path)
    published = read_published(recipe, path)
    figures = published.figures.figures if published else {}
    printed = {name: figure.value for name, figure in figures.items()}
    assumptions = Assumptions(
        mfu=args.mfu, decode_rate=args.decode_rate, answer_share=args.answer_share, pue=args.pue
    )
    results = Path(read_placement(args.config, results=args.results).results) / recipe.name
    stages = plan(recipe, tokenized_rows(results, recipe, printed), assumptions)
    compared = comparisons(recipe, stages, printed)
    if args.json:
        print(json_line(_plan_object(recipe, stages, assumptions, compared)))
        return 0
    print(*text(recipe, stages, assumptions), sep="\n")
    for stage, what, planned, figure in compared:
        print(f"published: {stage} {what}: {figure:,.0f}, planned {planned:,.0f}, ratio "
              f"{planned / figure:.4f}")  # fmt: skip
    if published:
        print("published: GPU-hours, wall time, MFU, energy: unknown for every stage")
    return 0


def tokenized_rows(results: Path, recipe: Recipe, printed: Mapping[str, float]) -> dict[str, float]:
    """Rows of each stage's data: as tokenized in the results folder, else as published."""
    rows = {}
    for stage in recipe.stages.__dataclass_fields__:
        if f"{stage}_rows" in printed:
            rows[stage] = printed[f"{stage}_rows"]
        report = results / f"tokens_{stage}" / "report.json"
        if report.is_file():
            counts = read_json(report)
            rows[stage] = next(
                (counts[name] for name in ("rows", "pairs", "prompts") if name in counts),
                rows.get(stage, 0.0),
            )
    return {stage: count for stage, count in rows.items() if count}


def _plan_object(
    recipe: Recipe,
    stages: list[StagePlan],
    assumptions: Assumptions,
    compared: list[tuple[str, str, float, float]],
) -> dict[str, Any]:
    names = ("stage", "what", "planned", "published")
    added = ("flops", "gpu_hours", "rollout_gpu_hours", "wall_hours", "energy_kwh")
    return {
        "assumptions": asdict(assumptions),
        "imported": sorted(recipe.imports or {}),
        "published": [dict(zip(names, row, strict=True)) for row in compared],
        "stages": [asdict(stage) for stage in stages],
        "total": {name: sum(getattr(stage, name) or 0.0 for stage in stages) for name in added},
    }


def _path(args: argparse.Namespace) -> Path:
    if args.recipe is not None:
        return Path(args.recipe)
    return Path(read_placement(args.config, recipe=args.recipe_file).recipe)
