"""What the actions of ``instella statement`` do."""

import argparse
import getpass
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path

from instella.artifacts.check import check_results, root
from instella.artifacts.lineage import sound_manifests
from instella.canonical import read_json, sha256_file, write_bytes
from instella.commands.common import Project, load_project
from instella.errors import BadUse, Incomplete, VerificationError
from instella.prove.recorded import recipe_hash
from instella.recipe.reader import read_placement
from instella.statements import folder, proofs, search
from instella.statements.folder import Finished
from instella.statements.keys import (
    PUBLIC_SUFFIX,
    make_key,
    read_public,
    refuse_inside,
    signer_of,
)
from instella.statements.predicates import SCORES
from instella.terminal import plain


def run_key(args: argparse.Namespace) -> int:
    """Make a key; BadUse where one is, or where results and store lie."""
    placement = read_placement(args.config, results=args.results, store=args.store)
    refuse_inside(args.file, [Path(placement.results), Path(placement.store)])
    public = make_key(args.file)
    print(f"private key {args.file}, public key {args.file}{PUBLIC_SUFFIX}, id {public.keyid}")
    return 0


def run_sign(args: argparse.Namespace) -> int:
    """Sign, unless something is wrong with the run.

    Raises:
        Incomplete: stages have no result.
        VerificationError: a fault of the run, or a secret in what would be published.
    """
    project = load_project(args)
    places = [project.workspace.results, project.workspace.store.root]
    public = None if args.public is None else read_public(args.public)
    signer = signer_of(args.key, public, os.environ, places)
    run = finished(project)
    wrong = check_results(run.results, run.store, run.graph)
    if wrong:
        raise VerificationError(
            f"{run.results}: nothing is signed: {len(wrong)} faults, first {wrong[0]}"
        )
    payloads = folder.payloads(run)
    words = search.words_of(
        run, Path(project.placement.recipe), os.environ, _names(), signer.secret
    )
    found = search.search(run, words, payloads, [])
    refused = [item for item in found if not item.word.is_name]
    for item in found:
        if item.word.is_name:
            print(f"note: {plain(str(item))}", file=sys.stderr)
    if refused:
        raise VerificationError(
            f"{run.results}: nothing is signed: {len(refused)} places hold what must not be "
            f"published, first {refused[0]}; instella statement scan lists them"
        )
    files = folder.signed(payloads, signer)
    folder.write(run, files)
    print(f"signed: {len(files)} statements in {run.folder}, key {signer.public.keyid[:16]}")
    return 0


def run_verify(args: argparse.Namespace) -> int:
    """Print one line for each statement that is refused; 4 if there is one."""
    key = read_public(args.key)
    run = finished(load_project(args))
    if not run.folder.is_dir():
        raise Incomplete(f"{run.folder}: no statements; instella statement sign makes them")
    refused = folder.refusals(run, key)
    for name, text in refused:
        print(f"{plain(name)}: refused: {plain(text)}", file=sys.stderr)
    if refused:
        return VerificationError.exit_code
    print(f"verified: {len(folder.present(run.folder))} statements, root {run.root}")
    return 0


def run_prove(args: argparse.Namespace) -> int:
    """Write a proof; the statement it rests on is verified first."""
    key = read_public(args.key)
    project = load_project(args)
    run = finished(project)
    name = project.stage(args.stage).name
    place = run.folder / folder.RUN_FILE
    text = folder.refusal(place, folder.payloads(run)[folder.RUN_FILE], key)
    if text is not None:
        raise VerificationError(f"{place}: refused: {text}")
    index = None if args.line is None else args.line - 1
    if args.score is not None:
        if args.file != SCORES or "/" not in args.score:
            raise BadUse(f"--score {args.score}: is SET/METRIC of {SCORES}")
        held_out, _, metric = args.score.partition("/")
        index = proofs.score_index(run.store, run.manifests[name], held_out, metric)
    statement = read_json(place)
    data = proofs.prove(statement, run.manifests, run.store, (name, args.file), index)
    write_bytes(args.out, data)
    print(f"proof: {args.out}, {len(data)} bytes")
    return 0


def run_check(args: argparse.Namespace) -> int:
    """Say what a proof proves; VerificationError if it proves nothing, or not of this file."""
    proved = proofs.check(args.proof, read_public(args.key))
    what = f"{proved.stage}/{proved.path}"
    if args.file is not None and not args.file.is_file():
        raise BadUse(f"{args.file}: no such file; name the copy of {what}")
    if args.file is not None and sha256_file(args.file) != proved.sha256:
        raise VerificationError(f"{args.file}: not {what}, whose sha256 is {proved.sha256}")
    if proved.line is not None:
        print(proved.line, end="")
        what = f"line {proved.index + 1} of {what}"
    print(
        f"proved: {what}, sha256 {proved.sha256} of {proved.size} bytes, in the run of recipe "
        f"{proved.recipe} with root {proved.root}"
    )
    return 0


def run_scan(args: argparse.Namespace) -> int:
    """Print one line for each thing found; 1 if there is one."""
    project = load_project(args)
    run = finished(project)
    words = search.words_of(run, Path(project.placement.recipe), os.environ, _names())
    found = search.search(run, words, search.stated(run.folder), args.others)
    for item in found:
        print(plain(str(item)))
    secrets = sum(word.is_secret for word in words)
    print(
        f"{'found' if found else 'clean'}: {len(found)} places; looked for {secrets} secrets and "
        f"{len(words) - secrets} traces of this machine"
    )
    return 1 if found else 0


def finished(project: Project) -> Finished:
    """The run, whose every stage has a sound manifest.

    Raises:
        Incomplete: stages have no result.
        VerificationError: a manifest is damaged.
    """
    workspace = project.workspace
    root(workspace.results, project.graph)
    return Finished(
        recipe=project.recipe.name,
        recipe_hash=recipe_hash(Path(project.placement.recipe)),
        graph=project.graph,
        manifests=sound_manifests(workspace.results, project.graph),
        results=workspace.results,
        store=workspace.store,
    )


def _names() -> tuple[str, str]:
    """User and machine, as far as they are known."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = ""
    return user, platform.node()


ACTIONS: dict[str, Callable[[argparse.Namespace], int]] = {
    "key": run_key,
    "sign": run_sign,
    "verify": run_verify,
    "prove": run_prove,
    "check": run_check,
    "scan": run_scan,
}
