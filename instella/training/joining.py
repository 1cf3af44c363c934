"""Joins the ranks that a launcher started, such as torchrun or srun.

The launcher tells each process its place as torchrun does: ``RANK``, ``WORLD_SIZE``,
``MASTER_ADDR`` and ``MASTER_PORT``. Sockets go over ``GLOO_SOCKET_IFNAME`` where it is set,
and else over the interface by which this machine reaches the master.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import TypeVar

import psutil
import torch
import torch.distributed as dist

from instella.errors import BadUse, KitError, Stopped
from instella.training.reduction import barrier

Result = TypeVar("Result")

NAMES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
INTERFACE = "GLOO_SOCKET_IFNAME"
# In the formed group a dead peer is noticed at once by its closed connection, and a slow
# one is waited for. While it forms nothing tells of a death, so it has to be quick: all
# ranks have told by then that they run.
TIMEOUT = timedelta(days=1)
FORM_SECONDS = 60.0
SPARE_SECONDS = 10.0
START_SECONDS = 600.0
# So long a rank that only knows that a peer is gone waits for the peer to say why.
PATIENCE_SECONDS = 5.0
AGAIN = "run the stage again, it resumes at its last checkpoint"


def is_member() -> bool:
    """Whether a launcher has made this process one of several ranks."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def member() -> tuple[int, int]:
    """Rank and number of ranks that the launcher told.

    Raises:
        BadUse: a variable is missing or no number.
    """
    missing = [name for name in NAMES if not os.environ.get(name)]
    if missing:
        raise BadUse(f"{missing[0]} is not set, and a rank needs {', '.join(NAMES)}: use torchrun")
    rank, ranks = os.environ["RANK"], os.environ["WORLD_SIZE"]
    if not (rank.isdecimal() and ranks.isdecimal() and int(rank) < int(ranks)):
        raise BadUse(f"RANK={rank} of WORLD_SIZE={ranks} is no rank: use torchrun")
    return int(rank), int(ranks)


def run_as_member(function: Callable[[int, int], Result]) -> Result:
    """Call ``function(rank, ranks)`` in the group of all ranks.

    Args:
        function: does this rank's part of the work.

    Returns:
        What it returned, in rank 0 once all others have ended well.

    Raises:
        SystemExit: with status 0 in every other rank after its work, so that only rank 0
            goes on; also when all were asked to stop, which rank 0 tells.
        KitError: the ranks did not come together, or one is gone.
    """
    rank, ranks = member()
    try:
        store = _meet()
        chosen = os.environ.get(INTERFACE) or interface_towards(os.environ["MASTER_ADDR"])
        with over(chosen), joined(rank, ranks, store, timedelta(seconds=FORM_SECONDS)):
            result = function(rank, ranks)
            barrier()
    except Stopped:
        if rank:
            raise SystemExit(0) from None
        raise
    except RuntimeError as error:
        if not tells_of_a_peer(error):
            raise
        time.sleep(PATIENCE_SECONDS)
        text = " ".join(str(error).split())
        raise KitError(f"a rank is gone or does not answer ({text}): {AGAIN}") from error
    if rank:
        raise SystemExit(0)
    return result


def _meet() -> dist.Store:
    """The key-value store at the master, once every rank is there."""
    limit = timedelta(seconds=START_SECONDS)
    store: dist.Store = next(dist.rendezvous("env://", timeout=limit))[0]
    return store


@contextmanager
def over(interface: str) -> Iterator[None]:
    """Let sockets go over an interface, and put back what was set before.

    A process that trained among ranks of its own machine starts others later: left in the
    environment, ``lo`` would make a rank of several nodes listen where no other node reaches it.
    """
    before = os.environ.get(INTERFACE)
    os.environ[INTERFACE] = interface
    try:
        yield
    finally:
        if before is None:
            del os.environ[INTERFACE]
        else:
            os.environ[INTERFACE] = before


@contextmanager
def joined(rank: int, ranks: int, store: dist.Store, limit: timedelta) -> Iterator[None]:
    """The process group, formed within ``limit``; what it does later may take ``TIMEOUT``.

    Raises:
        KitError: the others were not reached, and torch would have waited on.
    """
    _within(limit, partial(_form, rank, ranks, store, limit))
    try:
        dist.distributed_c10d._set_pg_timeout(TIMEOUT)
        yield
    finally:
        dist.destroy_process_group()


def _form(rank: int, ranks: int, store: dist.Store, limit: timedelta) -> None:
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks, timeout=limit)
    try:
        barrier()  # a connection made later would be made under the long limit
    except BaseException:
        dist.destroy_process_group()
        raise


def _within(limit: timedelta, form: Callable[[], None]) -> None:
    """Call ``form`` in a thread of its own: gloo may wait for ever for a peer that cannot come.

    What it raises is raised here. It keeps ``limit`` twice, for the connections and for the
    first barrier, so only a wait without any limit is longer than that.
    """
    found: list[BaseException] = []

    def run() -> None:
        try:
            form()
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    seconds = 2 * limit.total_seconds() + SPARE_SECONDS
    thread.join(seconds)
    if thread.is_alive():
        over = os.environ.get(INTERFACE, "an interface of torch's choice")
        raise KitError(
            f"the ranks did not reach each other over {over} in {seconds:.0f} s: see whether every "
            f"node has that network (interface in the site file, {INTERFACE}), then {AGAIN}"
        )
    if found:
        raise found[0]


def subgroup(members: Iterable[int], own: bool) -> dist.ProcessGroup | None:
    """A group of some ranks, with the limits of ``joined``; every rank forms each in turn.

    Args:
        members: global ranks.
        own: whether this rank is one of them.
    """
    limit = timedelta(seconds=FORM_SECONDS)
    made = dist.new_group(list(members), timeout=limit)
    if own:
        barrier(made)
        dist.distributed_c10d._set_pg_timeout(TIMEOUT, made)
    return made if own else None


def tells_of_a_peer(error: RuntimeError) -> bool:
    """Whether an error of torch says no more than that another rank is gone or late."""
    return says_peer(type(error).__name__, str(error))


def says_peer(name: str, text: str) -> bool:
    """As ``tells_of_a_peer``, for the name of an error's class and its text."""
    return name.startswith("Dist") or "gloo" in text


def interface_towards(host: str) -> str:
    """Name of the network interface over which this machine reaches ``host``.

    Raises:
        BadUse: the host has no address that can be reached, or no interface leads there.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 1, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)  # sends nothing, only asks the routes
            own = probe.getsockname()[0]
    except OSError as error:
        raise BadUse(
            f"no way to {host}: {error.strerror}; set interface in the site file"
        ) from None
    for name, addresses in psutil.net_if_addrs().items():
        if any(item.address.partition("%")[0] == own for item in addresses):
            return name
    raise BadUse(f"no interface has address {own}, used towards {host}; set it in the site file")
