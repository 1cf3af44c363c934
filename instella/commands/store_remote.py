"""``instella store push`` and ``instella store pull``: results to and from elsewhere."""

import argparse
from pathlib import Path
from typing import Any

from instella.commands.common import Project, add_parser, load_project
from instella.errors import BadUse, Incomplete, VerificationError
from instella.progress import Reporter
from instella.prove.recorded import read_recorded, recipe_hash, recorded_file


def register(actions: Any) -> None:
    """Add ``push`` and ``pull`` to ``store``."""
    push = add_parser(actions, "push", "send results of the run to a folder, server or bucket")
    push.add_argument(
        "--read-back", action="store_true",
        help="read and hash every object there before its record is written",
    )  # fmt: skip
    pull = add_parser(actions, "pull", "take results of the recipe's stages from there")
    for parser, run in ((push, run_push), (pull, run_pull)):
        parser.add_argument("url", metavar="URL", help="file:///..., http(s)://... or s3://...")
        parser.add_argument(
            "names", nargs="*", metavar="STAGE", help="with all it is made from (every stage)"
        )
        parser.set_defaults(run=run)


def run_push(args: argparse.Namespace) -> int:
    """Send what the results show; one line a stage.

    Raises:
        BadUse, Incomplete, VerificationError, KitError: as ``Push.run``.
    """
    # imported here: other commands do not pay for the libraries of the network
    from instella.remotes.push import Push
    from instella.remotes.remote import open_remote

    project = _project(args)
    remote = open_remote(args.url)
    _refuse_same(project, remote)
    workspace = project.workspace
    push = Push(
        remote, workspace.store, project.graph, workspace.results, Reporter("store push"),
        args.read_back,
    )  # fmt: skip
    done = push.run(args.names)
    print(f"pushed: {done.stages} stages, {done.objects} objects sent, {done.size} bytes")
    return 0


def run_pull(args: argparse.Namespace) -> int:
    """Take what the place has; a line for each bad thing there.

    Raises:
        BadUse, KitError: as ``Pull.run``.
        Incomplete: the place has not every result.
        VerificationError: the place has something bad.
    """
    from instella.remotes.folder import Folder
    from instella.remotes.pull import Pull
    from instella.remotes.remote import open_remote

    project = _project(args)
    remote = open_remote(args.url)
    if isinstance(remote, Folder) and not remote.root.is_dir():
        raise BadUse(f"{remote.shown}: no such folder; give that of a store")
    _refuse_same(project, remote)
    report = Reporter("store pull")
    recorded = _recorded(project)
    if not recorded:
        report.say("no root is recorded for these settings: the place is believed what it says")
    store = project.workspace.store
    pull = Pull(remote, store, project.graph, project.toolchain(), recorded, report)
    done = pull.run(args.names)
    for item in done.damage:
        print(item)
    print(f"pulled: {len(done.here)} stages, {done.objects} objects fetched, {done.size} bytes")
    if done.damage:
        raise VerificationError(
            f"{remote.shown}: {len(done.damage)} of its files are bad; what is named above was not "
            "taken: ./kit run makes it"
        )
    if done.absent:
        shown = ", ".join(done.absent[:4]) + " and others" * (len(done.absent) > 4)
        raise Incomplete(
            f"{remote.shown}: has no result of {shown} for this recipe and this tree; ./kit run "
            "makes the rest"
        )
    return 0


def _project(args: argparse.Namespace) -> Project:
    project = load_project(args)
    for name in args.names:
        project.stage(name)
    return project


def _refuse_same(project: Project, remote: Any) -> None:
    root, own = getattr(remote, "root", None), project.workspace.store.root
    if root is not None and root.is_dir() and own.is_dir() and own.samefile(root):
        raise BadUse(f"{root}: is the store itself; give another place")


def _recorded(project: Project) -> dict[str, str]:
    """Contents that the root beside the recipe stands for, if it is for these settings."""
    recipe_file = Path(project.placement.recipe)
    path = recorded_file(recipe_file)
    if not path.is_file():
        return {}
    recorded = read_recorded(path)
    return dict(recorded.contents) if recorded.recipe == recipe_hash(recipe_file) else {}
