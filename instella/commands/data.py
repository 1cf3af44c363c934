"""``instella data``: the recipe's data. Each action has a module of its own."""

from typing import Any

from instella.commands import data_fetch, data_lock, data_trace


def register(subparsers: Any) -> None:
    """Add ``data`` with its actions to the command line."""
    parser = subparsers.add_parser("data", help="lock and fetch the recipe's data")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    data_fetch.register(actions)
    data_lock.register(actions)
    data_trace.register(actions)
