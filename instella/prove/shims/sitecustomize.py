"""Python loads this module at its start when PYTHONPATH names its folder.

For ``instella prove``. INSTELLA_LISTING=reversed in the environment makes Python list every folder
in reversed order of names: no result may depend on the order in which a file system lists.
With FAKETIME, sleeping goes through ``select``: libfaketime 0.9.10 refuses the absolute
times of ``time.sleep`` unless it fakes the monotonic clock too, and then waits for locks
never end.
"""

import os
import select
import time
from collections.abc import Iterator
from typing import Any

_listdir, _scandir = os.listdir, os.scandir


def listdir(path: Any = None) -> list[Any]:
    """As ``os.listdir``, in reversed order of names."""
    return sorted(_listdir(path), reverse=True)


class Listing:
    """As what ``os.scandir`` returns, in reversed order of names."""

    def __init__(self, path: Any = None) -> None:
        with _scandir(path) as entries:
            found = sorted(entries, key=lambda entry: entry.name, reverse=True)
        self._entries: Iterator[os.DirEntry[Any]] = iter(found)

    def __iter__(self) -> "Listing":
        return self

    def __next__(self) -> "os.DirEntry[Any]":
        return next(self._entries)

    def __enter__(self) -> "Listing":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """The folder is closed already."""


def sleep(seconds: float) -> None:
    """As ``time.sleep``."""
    select.select([], [], [], seconds)


if os.environ.get("INSTELLA_LISTING") == "reversed":
    vars(os).update(listdir=listdir, scandir=Listing)
if "FAKETIME" in os.environ:
    vars(time).update(sleep=sleep)
