"""Every command that README and docs show is run, or at least read by the parser; or it is told why not."""

import argparse
import re
import shlex
import sys
from itertools import chain

import pytest
import shown_table as table
from run_helpers import Run
from shown import commands

from instella.cli import command_line
from instella.prove.copies import PROJECT
from instella.prove.processes import run

SHELL_SECONDS = 300.0
PARSED = [command for group in table.PARSED.values() for command in group]
NOT_RUN = [command for group in table.NOT_RUN.values() for command in group]


def plain(command: str) -> str:
    return command.removeprefix(".venv/bin/")


def words_of(command: str) -> list[str]:
    """Words with a value for each placeholder; what is optional is taken, of ways the first."""
    text = re.sub(r" \| [^\]]*\]", "]", command).replace(" ...", "")
    words = shlex.split(text.replace("[", " ").replace("]", " "))
    return [table.VALUES.get(word, word) for word in words]


def test_each_command_is_in_one_class() -> None:
    classes = chain(table.RUN, table.ELSEWHERE, PARSED, table.NAMED, NOT_RUN)
    listed = sorted(classes)
    assert len(listed) == len(set(listed)), "a command is in two classes"
    shown: dict[str, list[str]] = {}
    for command, pages in commands().items():
        shown.setdefault(plain(command), []).extend(pages)
    unknown = {command: shown[command] for command in shown if command not in set(listed)}
    assert not unknown, f"in no class of tests/run/shown_table.py: {unknown}"
    gone = sorted(set(listed) - set(shown))
    assert not gone, f"no page shows these any more: {gone}"


def test_another_test_is_there() -> None:
    for command, test in table.ELSEWHERE.items():
        assert (PROJECT / test).is_file(), f"{command}: {test}"


@pytest.mark.parametrize("command", PARSED)
def test_the_parser_takes_it(command: str) -> None:
    words = words_of(command)
    assert words[0] == "instella"
    command_line().parse_args(words[1:])


@pytest.mark.parametrize("command", table.NAMED)
def test_what_is_named_exists(command: str) -> None:
    parser = command_line()
    program, *words = command.split()
    for word in words if program == "instella" and command != "instella COMMAND" else ():
        choices = [
            action.choices
            for action in parser._actions
            if isinstance(action, argparse._SubParsersAction)
        ]
        if choices:
            ways = [choices[0][way] for way in word.split("|")]
            parser = ways[0]


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_commands_run(nano_copy: Run) -> None:
    """In the order of the table, each with the exit code 0."""
    (nano_copy.folder / "made").mkdir()
    for command in table.RUN:
        done = run(shell_line(command), nano_copy.folder, timeout=SHELL_SECONDS)
        assert done.code == 0, f"{command}: {done.out[-2000:]}{done.err[-2000:]}"
    whole = [sys.executable, "-m", "snakemake", "--report", "made/report.html", "--cores", "1"]
    done = run(whole, nano_copy.folder, timeout=SHELL_SECONDS)
    assert done.code == 0 and "Adding report.html" in done.err, done.err


def shell_line(command: str) -> list[str]:
    """A shell that runs the command with the Python of this test."""
    words = [word if word == ">" else shlex.quote(word) for word in words_of(command)]
    if words[0] in ("instella", "python"):
        python = shlex.quote(sys.executable)
        words[0] = python if words[0] == "python" else f"{python} -m instella"
    if words[-1] == "made/root":
        words[words.index("recipes/tiny.yaml")] = "recipes/nano.yaml"
    return ["bash", "-c", " ".join(words)]
