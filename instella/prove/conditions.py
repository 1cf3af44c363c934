"""Conditions under which a recipe must make the same bytes, and what making them needs."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from instella.prove.copies import PROJECT

# Not a user of any system; Debian's nobody.
NOBODY = 65534
CLOCK_LIBRARY = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
SHIMS = PROJECT / "instella" / "prove" / "shims"
PROBE_SECONDS = 60.0

# What somebody may have set for another program. Each alone changes bytes of a stock torch
# or numpy, or how many threads they use.
LIBRARY_VARIABLES = MappingProxyType(
    {
        "OMP_NUM_THREADS": "4",
        "MKL_NUM_THREADS": "3",
        "OPENBLAS_NUM_THREADS": "2",
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_CBWR": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3",
        "TOKENIZERS_PARALLELISM": "true",
    }
)


@dataclass(frozen=True)
class Condition:
    """How one run differs from the plainest one.

    Attributes:
        name: of its row in the table.
        folder: name of the folder it runs in.
        home: HOME.
        user: number of the user it runs as.
        host: name of the machine.
        variables: further variables of the environment, by name.
        umask: rights that new files do not get.
        hash_seed: PYTHONHASHSEED of Snakemake and of all stages.
        reversed_listing: Python lists each folder in reversed order.
        clock: offset of the clock, as faketime reads it.
        cores: ``--cores`` of Snakemake.
        ranks: processes of a training stage.
        workers: processes of a tokens stage.
        kills: times that the whole run is killed with SIGKILL and started again.
        warm: the store of the first row is there, its results are not.
    """

    name: str
    folder: str = "project"
    home: str | None = None
    user: int | None = None
    host: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    umask: int | None = None
    hash_seed: str | None = None
    reversed_listing: bool = False
    clock: str | None = None
    cores: int = 2
    ranks: int = 1
    workers: int = 1
    kills: int = 0
    warm: bool = False

    def __str__(self) -> str:
        """What is varied, in words."""
        return ", ".join(self._words()) or "nothing: 2 cores, 1 rank, 1 worker, an empty store"

    def _words(self) -> Iterator[str]:
        if self.folder != PLAIN.folder:
            yield f"folder {self.folder!r}"
        for what in ("home", "user", "host", "clock"):
            value = getattr(self, what)
            if value is not None:
                yield f"{what} {value}"
        yield from (f"{name}={value}" for name, value in self.variables.items())
        if self.umask is not None:
            yield f"umask {self.umask:03o}"
        if self.hash_seed is not None:
            yield f"PYTHONHASHSEED={self.hash_seed}"
        if self.reversed_listing:
            yield "folders listed in reversed order"
        if self.cores != PLAIN.cores:
            yield f"cores {self.cores}"
        if self.ranks != PLAIN.ranks:
            yield f"ranks {self.ranks}"
        if self.workers != PLAIN.workers:
            yield f"workers {self.workers}"
        if self.kills:
            yield f"killed {self.kills} times and resumed"
        if self.warm:
            yield "results lost, store kept: nothing may be computed"

    def prefix(self) -> list[str]:
        """Command that gives the rest of its line this machine name, user and clock."""
        command: list[str] = []
        if self.host is not None:
            code = "import os, socket, sys; socket.sethostname(sys.argv[1]); os.execvp(sys.argv[2], sys.argv[2:])"
            command += ["unshare", "--uts", sys.executable, "-c", code, self.host]
        if self.user is not None:
            # It may read what root may, or it could not start a Python below /root.
            command += [
                "setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups",
                "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search",
            ]  # fmt: skip
        if self.clock is not None:
            # After the change of user, since it makes a semaphore that only its user opens.
            # The clock that only grows is left alone: with it faked, waits may never end.
            command += [
                "env", f"LD_PRELOAD={CLOCK_LIBRARY}", f"FAKETIME={self.clock}",
                "FAKETIME_DONT_FAKE_MONOTONIC=1",
            ]  # fmt: skip
        return command

    def environment(self) -> dict[str, str]:
        """Variables of the command that ``kit`` lets through."""
        home = {} if self.home is None else {"HOME": self.home}
        return {**self.variables, **home}

    def python_variables(self) -> dict[str, str]:
        """Variables of Python, which ``kit`` drops when a user sets them."""
        variables = {}
        if self.hash_seed is not None:
            variables["PYTHONHASHSEED"] = self.hash_seed
        if self.reversed_listing:
            variables["INSTELLA_LISTING"] = "reversed"
        if self.reversed_listing or self.clock is not None:
            variables["PYTHONPATH"] = str(SHIMS)
        return variables


PLAIN = Condition("plain")

SINGLE = (
    Condition("folder", folder="erster Läuf 第一"),
    Condition("home", home="/nonexistent/home"),
    Condition("user", user=NOBODY),
    Condition("host", host="elsewhere"),
    Condition("time zone", variables={"TZ": "<+14>-14"}),
    Condition("language", variables={"LANG": "tr_TR.UTF-8", "LC_ALL": "C"}),
    Condition("umask 077", umask=0o077),
    Condition("umask 002", umask=0o002),
    Condition("hash seed", hash_seed="4711"),
    Condition("listing", reversed_listing=True),
    Condition("clock", clock="+400d"),
    Condition("cores 1", cores=1),
    Condition("ranks 2", ranks=2),
    Condition("ranks 4", ranks=4),
    Condition("workers 3", workers=3),
    Condition("variables", variables=LIBRARY_VARIABLES),
    Condition("killed", kills=4),
    Condition("warm store", warm=True),
)

# All that ``SINGLE`` varies, in few runs.
QUICK = (
    Condition(
        "one way", folder="erster Läuf 第一", umask=0o077, hash_seed="0", kills=2,
        variables={"LC_ALL": "C"},
    ),
    Condition(
        "another way", home="/nonexistent/home", user=NOBODY, host="elsewhere", umask=0o002,
        variables={"TZ": "<+14>-14", "LANG": "tr_TR.UTF-8", **LIBRARY_VARIABLES},
        hash_seed="4711", reversed_listing=True, clock="+400d", cores=1, ranks=2,
        workers=3,
    ),
    Condition("warm store", warm=True),
)  # fmt: skip


def possible(condition: Condition) -> tuple[Condition, dict[str, str]]:
    """The condition without what this machine cannot make, and why it cannot, by part."""
    reasons = {
        part: reason
        for part, reason in (
            ("user", _cannot_change(replace(PLAIN, user=condition.user), "setpriv")),
            ("host", _cannot_change(replace(PLAIN, host=condition.host), "unshare")),
            ("clock", _cannot_shift(condition)),
        )
        if getattr(condition, part) is not None and reason is not None
    }
    absent: dict[str, Any] = dict.fromkeys(reasons)
    return replace(condition, **absent), reasons


def _cannot_change(condition: Condition, tool: str) -> str | None:
    if os.geteuid() != 0:
        return "needs root"
    if shutil.which(tool) is None:
        return f"{tool} is missing: apt install util-linux"
    return _fails([*condition.prefix(), sys.executable, "-c", "pass"])


def _cannot_shift(condition: Condition) -> str | None:
    if not CLOCK_LIBRARY.is_file():
        return f"{CLOCK_LIBRARY.name} is missing: apt install faketime"
    return None


def _fails(command: list[str]) -> str | None:
    """The last line a command prints when it fails, or None when it ends well."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False
    )
    if done.returncode == 0:
        return None
    return (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
