"""``instella statement``: sign a finished run, verify what was signed, prove a part of it."""

import argparse
from pathlib import Path
from typing import Any

from instella.commands.common import add_parser

KEY_HELP = "private key: PEM file, env:VARIABLE, or a URI of securesystemslib"


def register(subparsers: Any) -> None:
    """Add ``statement`` with its actions."""
    parser = subparsers.add_parser("statement", help="sign a run, verify it, prove a part of it")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    key = add_parser(actions, "key", "make a private key, and FILE.pub beside it")
    key.add_argument("file", type=Path, metavar="FILE")
    key.set_defaults(run=_run)
    sign = add_parser(actions, "sign", "sign statements of a finished run")
    sign.add_argument("--key", required=True, help=KEY_HELP)
    sign.add_argument("--public", type=Path, metavar="FILE", help="its public key, for a URI")
    sign.set_defaults(run=_run)
    verify = _verifying(actions, "verify", "verify the statements of a run")
    verify.set_defaults(run=_run)
    prove = _verifying(actions, "prove", "write a proof of one file, one line or one score")
    prove.add_argument("stage", metavar="STAGE")
    prove.add_argument("file", metavar="FILE", help="as the stage's manifest names it")
    part = prove.add_mutually_exclusive_group()
    part.add_argument("--line", type=int, metavar="N", help="line of the file, from 1")
    part.add_argument("--score", metavar="SET/METRIC", help="figure of scores.json")
    prove.add_argument("--out", type=Path, required=True, metavar="PROOF", help="file to write")
    prove.set_defaults(run=_run)
    check = _verifying(actions, "check", "check a proof; needs nothing but the key")
    check.add_argument("proof", type=Path, metavar="PROOF")
    check.add_argument("file", type=Path, nargs="?", metavar="FILE", help="the file it proves")
    check.set_defaults(run=_run)
    scan = add_parser(actions, "scan", "look for secrets and traces of this machine in a run")
    scan.add_argument("others", type=Path, nargs="*", metavar="PATH", help="look here too")
    scan.set_defaults(run=_run)


def _verifying(actions: Any, name: str, about: str) -> argparse.ArgumentParser:
    parser = add_parser(actions, name, about)
    parser.add_argument("--key", type=Path, required=True, metavar="FILE", help="public key in PEM")
    return parser


def _run(args: argparse.Namespace) -> int:
    # imported here: other commands do not pay for loading the library of the signatures
    from instella.commands import statement_actions

    return statement_actions.ACTIONS[args.action](args)
