"""The command line. Subcommands live in ``instella.commands``, one module each.

A command module has ``register(subparsers)``, which adds its parsers with
``set_defaults(run=function)``; ``function(args)`` returns the exit code. Nothing heavy is
imported before a command runs.
"""

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout
from errno import ENOSPC
from pathlib import Path
from typing import Any, NoReturn, TextIO, cast

from instella.artifacts.disk_errors import cure_of
from instella.commands import (
    audit,
    data,
    diverge,
    doctor,
    engines,
    evaluation,
    export,
    grade,
    image,
    importing,
    prove,
    recipe,
    report,
    run,
    statement,
    status,
    store,
    tensorboard,
)
from instella.errors import ERROR_PREFIX, KitError
from instella.terminal import Plain

COMMANDS = (
    run,
    audit,
    diverge,
    doctor,
    engines,
    recipe,
    data,
    evaluation,
    export,
    grade,
    image,
    importing,
    prove,
    statement,
    store,
    report,
    status,
    tensorboard,
)


class _Parser(argparse.ArgumentParser):
    """Prints a fault of the options as one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{ERROR_PREFIX}{message}; see {self.prog} --help\n")


class _Version(argparse.Action):
    """Prints the version and ends; nothing is read before it is asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        # imported here: other commands do not pay for reading packages' metadata
        from instella.commands.version import version

        print(f"instella {version()}")
        parser.exit(0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code.

    Errors are one line on stderr; ``--debug`` adds the traceback.
    """
    args = command_line().parse_args(arguments)
    try:
        with redirect_stdout(cast(TextIO, Plain(sys.stdout))):
            return int(args.run(args))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of a pipe left, as in ``instella stages | head``.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KitError as error:
        _print(str(error), args)
        return error.exit_code
    except Exception as error:
        text = f"{type(error).__name__}: {error}; rerun with --debug for the place"
        if isinstance(error, OSError) and (cure := cure_of(error)) is not None:
            # of a copy that fails for room the second name is the place that has none
            place = (error.errno == ENOSPC and error.filename2) or error.filename
            text = cure if place is None else f"{place}: {cure}"
        _print(text, args)
        return 1


def _print(message: str, args: argparse.Namespace) -> None:
    if args.debug:
        traceback.print_exc()
    # A job among many on one screen tells where its own lines lie.
    log = getattr(args, "log", None)
    place = f"; log: {log}" if log is not None else ""
    text = " ".join(message.split())
    # A name from somebody else's file must not steer the terminal.
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    print(f"{ERROR_PREFIX}{text}{place}", file=sys.stderr)


def command_line() -> argparse.ArgumentParser:
    """The parser with all commands."""
    parser = _Parser(prog="instella", description="Rerun, check and explain the recipe.")
    parser.add_argument(
        "--config", type=Path, default=Path("config.yaml"), help="placement file (config.yaml)"
    )
    parser.add_argument("--recipe", dest="recipe_file", help="recipe file instead of the config's")
    parser.add_argument("--results", help="results folder instead of the config's")
    parser.add_argument("--store", help="store folder instead of the config's")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    parser.add_argument("--version", action=_Version, help="print the version of the kit")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in COMMANDS:
        module.register(subparsers)
    return parser
