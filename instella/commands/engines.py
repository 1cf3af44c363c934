"""``instella engines render|check|rehearse|export STAGE``: GRPO by verl; ``agree``: vLLM."""

import argparse
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from instella.canonical import read_jsonl
from instella.commands.common import Project, add_parser, load_project

# Imported where they are used, as all that needs numpy, pyarrow, torch or transformers.
from instella.engines.verl.configuration import TRAIN, VALIDATION, Place, policy
from instella.engines.verl.launch import render
from instella.engines.verl.options import read_options
from instella.errors import BadUse

MOST = 100_000


def register(subparsers: Any) -> None:
    """Add ``engines`` with its actions."""
    parser = subparsers.add_parser("engines", help="GRPO stages by verl, vLLM and Ray")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    made = _action(actions, "render", "write what verl needs to run a stage", run_render)
    made.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="new folder")
    made.add_argument(
        "--without-data", action="store_true",
        help="leave out the prompts, which the tokens stage makes, and the starting checkpoint",
    )  # fmt: skip
    checked = _action(actions, "check", "let verl validate a stage's configuration", run_check)
    exported = _action(actions, "export", "make a checkpoint folder of verl's shards", run_export)
    exported.add_argument(
        "--checkpoint", type=Path, required=True, metavar="FOLDER",
        help="global_step_N of a run of your own; it holds pickles, which can run code",
    )  # fmt: skip
    exported.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="new folder")
    rehearsed = _action(
        actions, "rehearse", "run a few steps of a stage by verl on CPUs", run_rehearse
    )
    rehearsed.add_argument(
        "--output", type=Path, required=True, metavar="FOLDER", help="new folder for all it makes"
    )
    rehearsed.add_argument("--steps", type=_count, default=2, metavar="N", help="steps to make (2)")
    agreeing = add_parser(actions, "agree", "compare vLLM's greedy answers with the kit's")
    agreeing.add_argument("stage", metavar="STAGE", help="a checkpoint of the recipe")
    agreeing.add_argument(
        "--prompts", type=_count, default=64, metavar="N", help="held-out problems to ask (64)"
    )
    agreeing.add_argument(
        "--python", type=Path, metavar="FILE",
        help="Python of vLLM's environment (.venvs/vllm/bin/python)",
    )  # fmt: skip
    agreeing.set_defaults(run=run_agree)
    for action in (made, checked):
        action.add_argument(
            "--options", type=Path, metavar="FILE", help="how verl uses the machines (YAML)"
        )
    for action in (checked, rehearsed, exported):
        action.add_argument(
            "--python", type=Path, metavar="FILE",
            help="Python of verl's environment (.venvs/verl/bin/python)",
        )  # fmt: skip


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MOST}")
    return int(text)


def _action(actions: Any, name: str, help_text: str, function: Any) -> argparse.ArgumentParser:
    parser = add_parser(actions, name, help_text)
    parser.add_argument("stage", metavar="STAGE", help="grpo1, grpo2 or grpo3")
    parser.set_defaults(run=function)
    return parser


def run_render(args: argparse.Namespace) -> int:
    """Write overrides, environment, launch line and data of a stage.

    Raises:
        BadUse: the folder is there, or verl cannot do what the settings say.
        Incomplete: the stage's inputs have no result yet.
        VerificationError: a file of theirs differs from its manifest.
    """
    project = load_project(args)
    place = _place(project, args.stage, args.output.absolute())
    made = render(project.recipe, args.stage, read_options(args.options), place)
    if not args.without_data:
        _problem_sets(project, args.stage)
        _verified(project, *project.stage(args.stage).inputs.values(), "heldout")
    _make(args.output)
    made.write(args.output)
    print(f"{args.output}: {', '.join(sorted(made.files))}")
    if args.without_data:
        return 0
    trained, validated = _write_data(project, args.stage, args.output)
    print(f"{args.output / TRAIN}: {trained:,} rows")
    print(f"{args.output / VALIDATION}: {validated:,} rows")
    return 0


def run_check(args: argparse.Namespace) -> int:
    """Compose and validate the configuration with verl itself; print one line."""
    from instella.engines.verl import VERSION
    from instella.engines.verl.ask import PYTHON, ask
    from instella.engines.verl.configuration import overrides
    from instella.engines.verl.words import as_words

    project = load_project(args)
    place = _place(project, args.stage, Path("/rendered") / args.stage)
    words = as_words(overrides(project.recipe, args.stage, read_options(args.options), place))
    ask("check", {"words": words}, args.python or PYTHON)
    print(f"{args.stage}: good: verl {VERSION} takes {len(words)} overrides")
    return 0


def run_rehearse(args: argparse.Namespace) -> int:
    """Run the rendered configuration with the CPU overlay; print what each step gave.

    Raises:
        BadUse: the folder is there, or verl cannot do what the settings say.
        Incomplete: the stage's inputs have no result yet.
        KitError: verl failed.
        VerificationError: rollout and trainer differ, or a step is missing.
    """
    from instella.engines.verl.ask import PYTHON
    from instella.engines.verl.rehearsal import PREFIX, REWARD, Rehearsal, shortened

    project = load_project(args)
    project = replace(project, recipe=shortened(project.recipe, args.stage, args.steps))
    chosen = policy(project.recipe, args.stage)
    _problem_sets(project, args.stage)
    _verified(project, *project.stage(args.stage).inputs.values(), "heldout")
    _make(args.output)
    _write_data(project, args.stage, args.output)
    start = (project.workspace.results / chosen.init).absolute()
    folder = args.output.absolute()
    made = Rehearsal(project.recipe, args.stage, folder, start, args.python or PYTHON)
    made.run()
    rows = made.figures()
    for row in rows:
        mean, largest = (row["data"][f"{PREFIX}_{name}"] for name in ("mean", "max"))
        (digest, *_) = made.weights(row["step"]).values()
        print(
            f"step {row['step']}: reward {row['data'][REWARD]:.4f}, rollout against actor "
            f"{mean:.1e} mean, {largest:.1e} at most, weights {digest[:16]}"
        )
    made.check(chosen.training.max_steps or args.steps)
    print(f"{args.output}: good: {len(rows)} steps by verl, as rendered but for the CPUs")
    return 0


def run_agree(args: argparse.Namespace) -> int:
    """Ask vLLM and the kit for greedy answers; 1 when an answer has other tokens.

    Raises:
        BadUse: no such checkpoint, or no set of problems that it is measured on.
        Incomplete: the checkpoint has no result yet.
    """
    from instella.data.chat import prompt_ids, with_suffix
    from instella.data.tokenizer import load
    from instella.engines.vllm.agree import agreements
    from instella.engines.vllm.ask import PYTHON, Question

    project = load_project(args)
    results, recipe = project.workspace.results, project.recipe
    (name, *_) = _problem_sets(project, args.stage)
    _verified(project, args.stage, "heldout")
    encoder = load(results / args.stage)
    items = read_jsonl(results / "heldout" / f"{name}.jsonl")[: args.prompts]
    prompts = [
        prompt_ids(with_suffix(item["question"], recipe.prompt_suffix), encoder) for item in items
    ]
    limit = recipe.evaluation.sets[name].max_new_tokens
    question = Question([results / args.stage], prompts, limit, encoder.eos_id)
    (found,) = agreements(question, encoder.vocab_size, args.python or PYTHON)
    print(
        f"{args.stage}: {found.equal} of {found.answers} greedy answers have the same tokens; "
        f"log-probabilities of {found.tokens:,} tokens differ by {found.mean:.1e} in the mean, "
        f"{found.largest:.1e} at most"
    )
    return int(found.equal != found.answers)


def run_export(args: argparse.Namespace) -> int:
    """Merge, compare with the starting checkpoint, write the folder.

    Raises:
        VerificationError: the checkpoint is not complete, or its tensors are not those of
            the starting model.
    """
    from instella.engines.verl.ask import PYTHON
    from instella.engines.verl.exported import export

    project = load_project(args)
    start = project.workspace.results / policy(project.recipe, args.stage).init
    _verified(project, start.name)
    _make(args.output)
    count = export(args.checkpoint, start, args.output, args.python or PYTHON)
    print(f"{args.output}: {count} tensors, as in {start.name}")
    return 0


def _place(project: Project, stage: str, folder: Path) -> Place:
    recipe = project.recipe
    start = (project.workspace.results / policy(recipe, stage).init).absolute()
    hardware = recipe.hardware
    if hardware is None:
        return Place(folder, start, 1, 1)
    return Place(folder, start, hardware.nodes.get(stage, 1), hardware.accelerators_per_node)


def _verified(project: Project, *stages: str) -> None:
    """Each stage has a result of the recipe's settings, and its files are those of its manifest."""
    from instella.commands.seen import Run

    run = Run(project)
    for name in stages:
        run.verified(name)


def _make(folder: Path) -> None:
    try:
        os.makedirs(folder)
    except FileExistsError:
        raise BadUse(f"{folder}: is there already; name a new folder") from None


def _write_data(project: Project, stage: str, output: Path) -> tuple[int, int]:
    from instella.data.tokenizer import load
    from instella.engines.verl import prompts

    results, recipe = project.workspace.results, project.recipe
    chosen = policy(recipe, stage)
    start = results / chosen.init
    tokens = results / project.stage(stage).inputs["tokens"]
    questions = prompts.read_questions(tokens, load(start), prompts.template_of(start))
    order = prompts.order_of(chosen, len(questions))
    trained = prompts.write_training(output / TRAIN, questions, order)
    names = _problem_sets(project, stage)
    sets = {name: read_jsonl(results / "heldout" / f"{name}.jsonl") for name in names}
    validated = prompts.write_validation(output / VALIDATION, sets, recipe.prompt_suffix)
    return trained, validated


def _problem_sets(project: Project, stage: str) -> list[str]:
    """Held-out sets of problems on which the stage is measured.

    Raises:
        BadUse: there is none.
    """
    evaluation = project.recipe.evaluation
    names = [
        name for name in evaluation.suites.get(stage, ()) if evaluation.sets[name].kind == "problem"
    ]
    if not names:
        raise BadUse(f"evaluation.suites.{stage}: no set of problems, and one is asked here")
    return names
