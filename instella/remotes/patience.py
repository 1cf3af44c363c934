"""Many files at once, and trouble that may pass."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from instella.artifacts.manifest import Entry
from instella.data.sources import hub_trouble
from instella.data.sources.hub_trouble import LONGEST_WAIT_SECONDS, Stopped, Trouble
from instella.errors import KitError

CONNECTIONS = 8
T = TypeVar("T")


class Crew:
    """Threads that handle entries; the first error that is not about one entry stops all.

    Args:
        say: takes a line before each wait.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.stop = threading.Event()
        self._say = say
        self._pool = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="remote")

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self._pool.shutdown(cancel_futures=True)

    def start(
        self, action: Callable[[Entry], T], entries: Iterable[Entry]
    ) -> dict[Entry, Future[T]]:
        """Begin with all entries, in their order."""

        def guarded(entry: Entry) -> T:
            if self.stop.is_set():
                raise Stopped
            try:
                return action(entry)
            except BaseException:
                self.stop.set()
                raise

        return {entry: self._pool.submit(guarded, entry) for entry in entries}

    def patiently(
        self, what: str, action: Callable[[], T], has_grown: Callable[[], bool] = lambda: False
    ) -> T:
        """The action's answer; it is called again after trouble, later each time.

        Args:
            what: file, for messages.
            action: may raise ``Trouble``.
            has_grown: whether so much has arrived since it was last asked that earlier trouble
                is forgiven.

        Raises:
            KitError: trouble that does not end, or too long a wait is asked for.
            Stopped: another thread failed.
        """
        count = 0
        while True:
            try:
                return action()
            except Trouble as trouble:
                count = 0 if has_grown() else count
                asked = trouble.retry_after or 0.0
                if count == len(hub_trouble.WAIT_SECONDS) or asked > LONGEST_WAIT_SECONDS:
                    raise KitError(
                        f"{what}: {trouble}, {count + 1} times; check the network; what has "
                        "arrived is kept: run it again later"
                    ) from None
                seconds = max(hub_trouble.WAIT_SECONDS[count], asked)
                count += 1
                self._say(f"{what}: {trouble}; asking again in {seconds:,g} s")
            if self.stop.wait(seconds):
                raise Stopped


def answer_of(jobs: Iterable[Future[T]]) -> list[T]:
    """Answers of all jobs; the error that stopped them, if one did.

    A job that only stopped because another failed does not hide that one's error.
    """
    errors, answers = [], []
    for job in jobs:
        try:
            answers.append(job.result())
        except BaseException as error:
            errors.append(error)
    for first in sorted(errors, key=lambda error: isinstance(error, Stopped)):
        raise first
    return answers
