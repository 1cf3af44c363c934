"""Starts the processes of a training stage on this machine and joins them.

Rank 0 is the calling process, so that what it returns, reports and raises needs no way
back. The others are started anew (``spawn``) and talk over 127.0.0.1.
"""

import dataclasses
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

from instella import errors
from instella.artifacts.job import Job
from instella.progress import Reporter
from instella.training.reduction import ALONE, Group, require_power_of_two

Result = TypeVar("Result")

HOST = "127.0.0.1"
INTERFACE = "lo"
# a dead peer is noticed at once by its closed connection; a slow one is waited for
TIMEOUT = timedelta(days=1)
START_SECONDS = 600.0
END_SECONDS = 30.0
STARTED = "started"


class SilentReporter(Reporter):
    """Says nothing: progress is told once, by rank 0."""

    def __init__(self) -> None:
        """Opens nothing, so that it can be sent to another process."""

    def say(self, text: str) -> None:
        """Nothing."""

    def step(self, step: int, total: int, tokens: int = 0, **figures: float) -> None:
        """Nothing."""


class _Child(NamedTuple):
    rank: int
    process: BaseProcess
    pipe: connection.Connection


def launch(ranks: int, function: Callable[..., Result], *arguments: Any) -> Result:
    """Call ``function(group, *arguments)`` in ``ranks`` processes.

    Args:
        ranks: a power of two; with 1 nothing is started.
        function: importable by name, the same in every process.
        arguments: picklable; a ``Job`` reaches the other ranks with a silent reporter.

    Returns:
        What rank 0 returned, once all others have ended well.

    Raises:
        KitError: what rank 0 raised, or what another rank died of.
    """
    require_power_of_two(ranks, "the number of ranks")
    if ranks == 1:
        return function(ALONE, *arguments)
    store = dist.TCPStore(HOST, 0, ranks, is_master=True, wait_for_workers=False)
    children: list[_Child] = []
    patience = 0.0
    try:
        for rank in range(1, ranks):
            children.append(_start(rank, ranks, store.port, function, arguments))
        _wait_until_started(children)
        with _joined(0, ranks, store):
            result = function(Group(0, ranks), *arguments)
            dist.barrier()
        patience = END_SECONDS
        return result
    except RuntimeError as error:
        # torch tells that a peer is gone, the peer itself knows why
        raise _cause(children) or error from error
    finally:
        _end(children, patience)


def _start(
    rank: int, ranks: int, port: int, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> _Child:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    portable = tuple(_portable(argument) for argument in arguments)
    work = (rank, ranks, port, torch.get_num_threads(), there, function, portable)
    process = context.Process(target=_child, args=work, daemon=True)
    process.start()
    there.close()
    return _Child(rank, process, here)


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
    try:
        torch.set_num_threads(threads)
        store = dist.TCPStore(HOST, port, ranks, is_master=False, wait_for_workers=False)
        pipe.send(STARTED)
        with _joined(rank, ranks, store):
            function(Group(rank, ranks), *arguments)
            dist.barrier()
    except Exception as error:
        with suppress(OSError):  # rank 0 may be gone already, and then nobody listens
            pipe.send((type(error).__name__, str(error)))
        raise SystemExit(1) from None


@contextmanager
def _joined(rank: int, ranks: int, store: dist.Store) -> Iterator[None]:
    os.environ["GLOO_SOCKET_IFNAME"] = INTERFACE
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=TIMEOUT)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _wait_until_started(children: list[_Child]) -> None:
    for child in children:
        if not child.pipe.poll(START_SECONDS):
            raise errors.KitError(f"rank {child.rank} did not start in {START_SECONDS:.0f} s")
        _raise_report(child)


def _raise_report(child: _Child) -> None:
    try:
        message = child.pipe.recv()
    except EOFError:
        child.process.join(END_SECONDS)
        raise _ended(child) from None
    if message != STARTED:
        raise _reported(child, message)


def _cause(children: list[_Child]) -> errors.KitError | None:
    """Why a rank failed: what it reported, ours before torch's, or how it ended."""
    found: list[errors.KitError] = []
    for child in children:
        child.process.join(END_SECONDS)
        message = None
        with suppress(EOFError):  # a rank that was killed leaves no message
            message = child.pipe.recv() if child.pipe.poll() else None
        if message is not None:
            error = _reported(child, message)
            found.insert(0 if message[0] in vars(errors) else len(found), error)
        elif child.process.exitcode:
            found.insert(0, _ended(child))
    return found[0] if found else None


def _reported(child: _Child, message: tuple[str, str]) -> errors.KitError:
    name, text = message
    kind = vars(errors).get(name)
    if isinstance(kind, type) and issubclass(kind, errors.KitError):
        return kind(text)
    return errors.KitError(f"rank {child.rank}: {name}: {text}")


def _ended(child: _Child) -> errors.KitError:
    return errors.KitError(
        f"rank {child.rank} ended with status {child.process.exitcode} and no message: "
        "run the stage again, it resumes at its last checkpoint"
    )


def _end(children: list[_Child], patience: float) -> None:
    for child in children:
        child.process.join(patience)
        if child.process.is_alive():
            child.process.kill()
            child.process.join()
        child.pipe.close()
