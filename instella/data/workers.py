"""Numbered pieces of work done by several processes of this machine, joined in order.

A worker is started anew (``spawn``), does one piece at a time and leaves what it made on
the disk; only numbers and errors travel. It ends when its pipe closes, so none outlives
the process that started it by more than the piece in hand.
"""

import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from multiprocessing import connection, get_context
from multiprocessing.process import BaseProcess
from typing import Any

from instella import errors

Work = Callable[[int], None]

AHEAD = 3
"""Pieces a worker may be ahead of the one that is waited for: what an early end wastes."""
END_SECONDS = 10.0


def in_order(
    numbers: Sequence[int], workers: int, prepare: Callable[..., Work], *arguments: Any
) -> Generator[int, None, None]:
    """Do every piece of work and yield its number, in the given order, once it is done.

    Closing the iterator ends the workers at once; pieces must survive that.

    Args:
        numbers: pieces of work.
        workers: processes; with 1 the caller's own, and then a piece is begun only when
            it is asked for.
        prepare: importable by name; called once in each process, gives the function that
            does a piece.
        arguments: for ``prepare``; picklable.

    Raises:
        KitError: what a worker raised, or that it was killed.
    """
    workers = min(workers, len(numbers))
    if workers <= 1:
        work = prepare(*arguments) if numbers else None
        for number in numbers:
            if work is not None:
                work(number)
            yield number
        return
    team = _Team(workers, prepare, arguments)
    try:
        yield from team.run(numbers)
    finally:
        team.end()


class _Team:
    """The workers, each behind its pipe."""

    def __init__(
        self, workers: int, prepare: Callable[..., Work], arguments: tuple[Any, ...]
    ) -> None:
        context = get_context("spawn")
        self._workers: dict[connection.Connection, BaseProcess] = {}
        for _ in range(workers):
            here, there = context.Pipe()
            process = context.Process(target=_worker, args=(there, prepare, arguments), daemon=True)
            process.start()
            there.close()
            self._workers[here] = process

    def run(self, numbers: Sequence[int]) -> Iterator[int]:
        done: set[int] = set()
        idle = list(self._workers)
        given = 0
        for place, wanted in enumerate(numbers):
            while True:
                limit = min(len(numbers), place + AHEAD * len(self._workers))
                while idle and given < limit:
                    self._give(idle.pop(0), numbers[given])
                    given += 1
                if wanted in done:
                    break
                for pipe in connection.wait(list(self._workers)):
                    assert isinstance(pipe, connection.Connection)
                    done.add(self._result(pipe))
                    idle.append(pipe)
            done.remove(wanted)
            yield wanted

    def _give(self, pipe: connection.Connection, number: int) -> None:
        # One that has died is found when its result is waited for.
        with suppress(OSError):
            pipe.send(number)

    def _result(self, pipe: connection.Connection) -> int:
        process = self._workers[pipe]
        try:
            message = pipe.recv()
        except (EOFError, OSError):
            process.join(END_SECONDS)
            raise errors.KitError(
                f"a worker ended with status {process.exitcode} and no message: run the stage "
                "again, it goes on behind the work that is done"
            ) from None
        if isinstance(message, int):
            return message
        name, text = message
        kind = vars(errors).get(name)
        if isinstance(kind, type) and issubclass(kind, errors.KitError):
            raise kind(text)
        raise errors.KitError(f"a worker: {name}: {text}")

    def end(self) -> None:
        """Kill what still runs and close every pipe."""
        for pipe, process in self._workers.items():
            process.kill()
            process.join()
            pipe.close()


def _worker(
    pipe: connection.Connection, prepare: Callable[..., Work], arguments: tuple[Any, ...]
) -> None:
    # An interrupt at the terminal goes to all; the first process ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # EOFError and OSError: the process that wants the results is gone.
    with suppress(EOFError, OSError):
        try:
            work = prepare(*arguments)
        except Exception as error:
            pipe.send((type(error).__name__, str(error)))
            return
        while True:
            number = pipe.recv()
            try:
                work(number)
            except Exception as error:
                pipe.send((type(error).__name__, str(error)))
                return
            pipe.send(number)
