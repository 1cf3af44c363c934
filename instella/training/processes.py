"""Runs a training stage in several processes: joins those that a launcher started, or
starts them on this machine.

Started here, rank 0 is the calling process, so that what it returns, reports and raises
needs no way back. The others are started anew (``spawn``) and talk over 127.0.0.1.
"""

import dataclasses
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from multiprocessing import connection
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

from instella import errors, numerics
from instella.artifacts.job import Job
from instella.progress import Reporter
from instella.training import joining
from instella.training.joining import FORM_SECONDS, START_SECONDS, joined
from instella.training.reduction import ALONE, Group, barrier, require_power_of_two
from instella.training.watching import END_SECONDS, STARTED, Child, cause, raise_report, watched

Result = TypeVar("Result")

HOST = "127.0.0.1"
INTERFACE = "lo"


class SilentReporter(Reporter):
    """Says nothing: progress is told once, by rank 0."""

    def __init__(self) -> None:
        """Opens nothing, so that it can be sent to another process."""

    def say(self, text: str) -> None:
        """Nothing."""

    def step(self, step: int, total: int, tokens: int = 0, **figures: float) -> None:
        """Nothing."""


def launch(ranks: int, function: Callable[..., Result], *arguments: Any) -> Result:
    """Call ``function(group, *arguments)`` in ``ranks`` processes.

    A process that a launcher made one of ``ranks`` joins the others; it comes back in rank 0
    only. Else this one is rank 0 and starts the others.

    Args:
        ranks: a power of two; with 1 nothing is started.
        function: importable by name, the same in every process.
        arguments: picklable; a ``Job`` reaches the other ranks with a silent reporter.

    Returns:
        What rank 0 returned, once all others have ended well.

    Raises:
        KitError: what rank 0 raised, what another rank died of, or that one does not answer.
    """
    require_power_of_two(ranks, "the number of ranks")
    if joining.is_member():
        return _launched(ranks, function, *arguments)
    if ranks == 1:
        return function(ALONE, *arguments)
    limit = timedelta(seconds=FORM_SECONDS)
    store = dist.TCPStore(HOST, 0, ranks, True, timeout=limit, wait_for_workers=False)
    children: list[Child] = []
    patience = 0.0
    try:
        for rank in range(1, ranks):
            children.append(_start(rank, ranks, store.port, function, arguments))
        _wait_until_started(children)
        with watched(children), joining.over(INTERFACE), joined(0, ranks, store, limit):
            result = function(Group(0, ranks), *arguments)
            barrier()
        patience = END_SECONDS
        return result
    except RuntimeError as error:
        if not joining.tells_of_a_peer(error):
            raise
        # torch tells that a peer is gone, the peer itself knows why
        raise cause(children, error) from error
    finally:
        _end(children, patience)


def _launched(ranks: int, function: Callable[..., Result], *arguments: Any) -> Result:
    """This process's part of the work, as a member of the launcher's ranks."""
    if joining.member()[1] != ranks:
        raise errors.BadUse(
            f"WORLD_SIZE is {joining.member()[1]}, and the stage is to run in {ranks} processes: "
            "start as many as its job says"
        )

    def part(rank: int, ranks: int) -> Result:
        own = arguments if rank == 0 else tuple(_portable(argument) for argument in arguments)
        _assert_numerics(own)
        result = function(Group(rank, ranks), *own)
        _assert_numerics(own)
        return result

    if ranks == 1:
        return function(ALONE, *arguments)
    return joining.run_as_member(part)


def _start(
    rank: int, ranks: int, port: int, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> Child:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    portable = tuple(_portable(argument) for argument in arguments)
    work = (rank, ranks, port, torch.get_num_threads(), there, function, portable)
    process = context.Process(target=_child, args=work, daemon=True)
    process.start()
    there.close()
    return Child(rank, process, here)


def _portable(argument: Any) -> Any:
    if not isinstance(argument, Job):
        return argument
    return dataclasses.replace(
        argument,
        settings=dict(argument.settings),
        inputs=dict(argument.inputs),
        report=SilentReporter(),
    )


def _child(
    rank: int,
    ranks: int,
    port: int,
    threads: int,
    pipe: connection.Connection,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    # an interrupt at the terminal goes to all; rank 0 ends the others
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ["LOCAL_RANK"] = str(rank)
    try:
        torch.set_num_threads(threads)
        _assert_numerics(arguments)
        limit = timedelta(seconds=FORM_SECONDS)
        store = dist.TCPStore(HOST, port, ranks, False, timeout=limit, wait_for_workers=False)
        pipe.send(STARTED)
        with joining.over(INTERFACE), joined(rank, ranks, store, limit):
            function(Group(rank, ranks), *arguments)
            _assert_numerics(arguments)
            barrier()
    except Exception as error:
        with suppress(OSError):  # rank 0 may be gone already, and then nobody listens
            pipe.send((type(error).__name__, str(error)))
        raise SystemExit(1) from None


def _end_with_parent() -> None:
    """End this rank as soon as rank 0 is gone, whatever it is doing."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


def _assert_numerics(arguments: tuple[Any, ...]) -> None:
    """Rank 0's class is checked by whoever called it; each rank has a torch of its own."""
    for argument in arguments:
        if isinstance(argument, Job):
            numerics.assert_active(argument.numerics)


def _wait_until_started(children: list[Child]) -> None:
    deadline = time.monotonic() + START_SECONDS
    waiting = {child.pipe: child for child in children}
    while waiting:
        ready = connection.wait(list(waiting), max(0.0, deadline - time.monotonic()))
        if not ready:
            late = min(child.rank for child in waiting.values())
            raise errors.KitError(f"rank {late} did not start in {START_SECONDS:.0f} s")
        for pipe in ready:
            raise_report(waiting.pop(cast(connection.Connection, pipe)))


def _end(children: list[Child], patience: float) -> None:
    for child in children:
        child.process.join(patience)
        if child.process.is_alive():
            child.process.kill()
            child.process.join()
        child.pipe.close()
