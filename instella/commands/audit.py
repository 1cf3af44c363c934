"""``instella root``, ``instella audit`` and ``instella why``: questions about a run."""

import argparse
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from instella import numerics
from instella.artifacts.check import MISSING, Fault, root
from instella.artifacts.code import CodeIndex
from instella.artifacts.compare import first_other
from instella.artifacts.identity import PACKAGE_FOLDER, lock_file
from instella.artifacts.lineage import sound_manifests
from instella.artifacts.places import STATEMENTS
from instella.artifacts.why import why
from instella.audit.journals import computed_seconds
from instella.audit.reexecute import NOT_RUN, Reexecution, at_fault, ledgers_of
from instella.audit.report import Sampled, document, fault_lines, is_clean, sample_lines
from instella.audit.sample import coverage, draw, units
from instella.audit.verify import verify
from instella.canonical import write_json
from instella.commands.common import Project, add_parser, load_project, refuse_output
from instella.containers.images import image_name
from instella.errors import BadUse, Incomplete, VerificationError
from instella.progress import Reporter
from instella.prove.recorded import (
    Compared,
    Recorded,
    comparison,
    recipe_hash,
    recorded_file,
)
from instella.terminal import plain
from instella.wheels import assert_wheels

OWN_CACHE = PACKAGE_FOLDER.parent / ".kit" / "cache"


def register(subparsers: Any) -> None:
    """Add ``root``, ``audit`` and ``why``."""
    parser = add_parser(subparsers, "root", "print the root hash of the run")
    parser.add_argument(
        "--stages", action="store_true", help="also the content of each stage, as in recipes/*.root"
    )
    parser.set_defaults(run=run_root)
    parser = add_parser(subparsers, "audit", "rehash every artifact and name each fault")
    parser.add_argument("--json", type=Path, help="file for everything as canonical JSON")
    parser.add_argument("--jobs", type=int, metavar="N", help="threads that hash (default: cores)")
    parser.add_argument(
        "--sample",
        type=int,
        metavar="N",
        help="compute N stages and training segments, drawn at random, again and compare",
    )
    parser.add_argument("--seed", type=int, metavar="S", help="of the draw (default: drawn)")
    parser.add_argument("--key", type=Path, metavar="FILE", help="public key of signed statements")
    parser.set_defaults(run=run_audit)
    parser = add_parser(subparsers, "why", "say why a stage would run, or why not")
    parser.add_argument("name", metavar="STAGE")
    parser.set_defaults(run=run_why)


def run_root(args: argparse.Namespace) -> int:
    """Print the root, alone on its line; with ``--stages`` the text of a recorded root."""
    project = load_project(args)
    results = project.workspace.results
    text = root(results, project.graph)
    manifests = sound_manifests(results, project.graph)
    other = first_other(manifests, project.graph, project.recipe.numerics)
    if other is not None:
        raise Incomplete(
            f"{results}: these results belong to another recipe than {project.placement.recipe}: "
            f"{other}; run the recipe to its end, or give a changed copy another name"
        )
    if args.stages:
        recipe = recipe_hash(Path(project.placement.recipe))
        contents = {name: item.content for name, item in manifests.items()}
        text = Recorded(recipe, contents).to_text().rstrip("\n")
    print(text)
    return 0


def run_audit(args: argparse.Namespace) -> int:
    """Print one line a fault. 0: clean, 1: faults, or a root that is not the recorded one.

    Raises:
        Incomplete: nothing is at fault, and stages are missing or drawn units were not run.
        VerificationError: this machine's packages are not those of the lock, so that nothing
            can be computed again.
        BadUse: wrong options, or this CPU lacks what the numerics class needs.
    """
    for name in ("jobs", "sample"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise BadUse(f"audit: --{name} {value}: give 1 or more")
    if args.seed is not None and args.sample is None:
        raise BadUse("audit: --seed is of a draw: give --sample N as well")
    refuse_output(args.json)
    project = load_project(args)
    if args.sample is not None:
        _require_own(project)
    workspace = project.workspace
    # The store's cache of code facts is the maker's word; the auditor's tree has its own.
    tools = replace(project.toolchain(), code=CodeIndex(PACKAGE_FOLDER, OWN_CACHE))
    findings = verify(workspace.results, workspace.store, project.graph, tools, args.jobs)
    faults = list(findings.faults)
    faults += _statements(project, args.key, findings.notes)
    sampled = None
    if args.sample is not None:
        sampled = _sample(project, Path(project.placement.recipe), args, faults)
    compared = None if faults else _compared(project)
    imported = [name for name, stage in project.graph.items() if stage.is_imported]
    if args.json is not None:
        places = {
            str(workspace.results): "RESULTS", str(workspace.store.root): "STORE",
            str(PACKAGE_FOLDER.parent): "PROJECT", str(workspace.recipe_folder): "RECIPES",
        }  # fmt: skip
        words = {place: word for place, word in places.items() if Path(place).is_absolute()}
        answer = document(project.recipe.name, findings, faults, sampled, imported, compared, words)
        write_json(args.json, answer)
    missing = [fault for fault in faults if fault.kind == MISSING]
    if len(missing) == len(project.graph) and len(missing) == len(faults):
        raise Incomplete(
            f"{workspace.results}: no run of {project.recipe.name} is there: none of its "
            f"{len(missing)} stages has a result; run it, or name its folder with --results"
        )
    for line in fault_lines(faults):
        print(line)
    for note in findings.notes:
        print(f"note: {plain(note)}")
    if sampled is not None:
        for line in sample_lines(sampled):
            print(line)
    if missing and len(missing) == len(faults):
        raise Incomplete(
            f"{workspace.results}: {len(missing)} of {len(project.graph)} stages have no result; "
            "the others are sound; run the recipe to its end"
        )
    if faults:
        return 1
    clean = is_clean(faults, sampled, compared)
    some = f", imported: {', '.join(imported)}" if imported else ""
    word = "clean" if clean else "not clean"
    print(f"{word}: {len(project.graph)} stages{some}, root {findings.root}")
    if compared is not None:
        print(f"root: {compared.text}")
    else:
        print(
            f"root: compared with nothing, since there is no {recorded_file(Path(project.placement.recipe))}"
        )
    if compared is not None and compared.is_other:
        return 1
    if sampled is not None and sampled.done < len(sampled.outcomes):
        raise Incomplete(
            f"{workspace.results}: {len(sampled.outcomes) - sampled.done} of "
            f"{len(sampled.outcomes)} units drawn were not run, so they prove nothing; the lines "
            "above say why"
        )
    return 0


def _statements(project: Project, key: Path | None, notes: list[str]) -> list[Fault]:
    """Signed statements that are refused; without a key a note that they were not verified.

    Those of a run that lacks stages are not looked at: it has no root to state.
    """
    folder = project.workspace.results / STATEMENTS
    if key is None:
        if folder.is_dir():
            notes.append("signed statements were not verified: give --key FILE, their public key")
        return []
    # imported here: an audit without statements does not load the library of the signatures
    from instella.commands.statement_actions import finished
    from instella.statements.folder import refusals
    from instella.statements.keys import read_public

    public = read_public(key)
    if not folder.is_dir():
        return [Fault("(run)", "statement", STATEMENTS, "signed statements", "nothing")]
    try:
        refused = refusals(finished(project), public)
    except Incomplete:
        return []
    except VerificationError as error:
        return [Fault("(run)", "statement", STATEMENTS, "what can be stated", str(error))]
    return [
        Fault("(run)", "statement", f"{STATEMENTS}/{name}", "a good signed statement", text)
        for name, text in refused
    ]


def _compared(project: Project) -> Compared | None:
    """How the sound run stands to the recorded root, if there is one."""
    manifests = sound_manifests(project.workspace.results, project.graph)
    contents = {name: item.content for name, item in manifests.items()}
    return comparison(Path(project.placement.recipe), contents)


def _require_own(project: Project) -> None:
    """What computes stages again here is what the lock and the numerics class ask for.

    Without this each unit would fail for the auditor's own reasons.
    """
    recipe, container = project.recipe, project.placement.container
    own = [stage for stage in project.graph.values() if not stage.is_imported]
    on_host = any(image_name(stage, recipe.numerics, container) is None for stage in own)
    # its training segments are computed on the host whatever made the stage
    if on_host or recipe.numerics == numerics.PORTABLE:
        assert_wheels(lock_file(), None)
        numerics.require_machine(recipe.numerics)


def _sample(
    project: Project, recipe_file: Path, args: argparse.Namespace, faults: list[Fault]
) -> Sampled:
    """Draw units, compute them again, and add what differs to ``faults``."""
    workspace, graph = project.workspace, project.graph
    manifests = sound_manifests(workspace.results, graph)
    ledgers, odd = ledgers_of(workspace.store, graph, manifests, at_fault(faults))
    faults += odd
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 32)
    again = Reexecution(
        recipe_file=recipe_file, graph=graph, manifests=manifests, store=workspace.store,
        numerics=project.recipe.numerics, downloads=workspace.downloads, bad=at_fault(faults),
        report=Reporter("audit"), 
        contained=lambda name: project.contained(graph[name]),
    )  # fmt: skip
    population = units(graph, manifests, ledgers)
    outcomes = again.run(draw(population, args.sample, seed), ledgers)
    faults += again.faults
    done = [outcome for outcome in outcomes if outcome.state != NOT_RUN]
    covered = coverage(
        population,
        [outcome.unit for outcome in done],
        {name: ledger.steps for name, ledger in ledgers.items()},
        {outcome.unit: outcome.first for outcome in done},
        computed_seconds(workspace.results, manifests),
    )
    return Sampled(seed, outcomes, covered)


def run_why(args: argparse.Namespace) -> int:
    """Print the sentence."""
    project = load_project(args)
    name = project.stage(args.name).name
    workspace = project.workspace
    print(why(name, workspace.results, workspace.store, project.graph, project.toolchain()))
    return 0
