"""A SLURM cluster of four nodes on this machine, from Debian's packages.

munged, slurmctld and four slurmd run as plain processes below one folder: without systemd,
without cgroups, without a file outside the folder. Commands find the cluster by small
scripts in ``bin``, which name its configuration; a variable would not do, since Snakemake's
plugin removes those of SLURM.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

PROGRAMS = ("munged", "slurmctld", "slurmd")
COMMANDS = ("sbatch", "srun", "squeue", "scancel", "scontrol", "sinfo", "sacct")
NODES = ("n1", "n2", "n3", "n4")
START_SECONDS = 60.0
END_SECONDS = 20.0
# Every process of the cluster and of its jobs inherits it, so that none is left behind.
MARK = "INSTELLA_TEST_CLUSTER"

# sched_interval and the rest make a small cluster answer at once. A requeued job waits for
# cred_expire, two minutes by default. KillWait: between SIGTERM and SIGKILL. OverMemoryKill stands
# for the memory limit of cgroups, by asking each second what a job's processes hold.
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={port}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
SlurmdTimeout=10
KillWait=15
InactiveLimit=0
MinJobAge=600
"""
PARTITIONS = """\
PartitionName=work Nodes=ALL Default=YES MaxTime=60 State=UP PriorityTier=1 GraceTime=15
PartitionName=urgent Nodes=ALL MaxTime=60 State=UP PriorityTier=10 PreemptMode=OFF
"""


def missing() -> str | None:
    """Which program of Debian's packages slurm-wlm and munge is not there; None if all are."""
    search = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    for name in (*PROGRAMS, *COMMANDS):
        if shutil.which(name, path=search) is None:
            return name
    return None


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    assert found is not None, name
    return found


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for item in sockets:
            item.bind(("127.0.0.1", 0))
        return [item.getsockname()[1] for item in sockets]
    finally:
        for item in sockets:
            item.close()


class Cluster:
    """Four idle nodes once ``start`` returned; ``stop`` leaves no process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def environment(self) -> dict[str, str]:
        """What a command needs to reach this cluster."""
        path = f"{self.folder}/bin:{os.environ.get('PATH', '')}"
        return {"PATH": path, MARK: str(self.folder)}

    def start(self) -> None:
        """Write the configuration, start the daemons, wait until every node is idle."""
        self._write_configuration()
        self._start_munge()
        self.start_controller()
        for node in NODES:
            self.start_node(node)
        self.wait_for_idle()

    def start_controller(self) -> None:
        """Start slurmctld, which goes on from the state that it finds."""
        self._start("slurmctld", [_program("slurmctld"), "-D", "-f", self._file])

    def kill_controller(self) -> None:
        """SIGKILL slurmctld; jobs go on, and SLURM's commands get no answer."""
        self._kill("slurmctld")

    def lose_state(self) -> None:
        """Start slurmctld anew without its state, so that it knows no job."""
        self._kill("slurmctld")
        shutil.rmtree(self.folder / "state")
        (self.folder / "state").mkdir()
        self.start_controller()

    def start_node(self, node: str) -> None:
        """Start the daemon of one node."""
        self._start(node, [_program("slurmd"), "-D", "-N", node, "-f", self._file])

    def stop(self) -> None:
        """Kill daemons, jobs and what they started; none of it is left."""
        for daemon in self.daemons.values():
            daemon.kill()
            daemon.wait()
        deadline = time.monotonic() + END_SECONDS
        while left := list(self._processes()):
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            assert time.monotonic() < deadline, f"still running: {left}"
            time.sleep(0.05)

    def command(self, *words: str, timeout: float = 60.0) -> str:
        """What a SLURM command prints; it must succeed."""
        environment = {**os.environ, **self.environment}
        done = subprocess.run(
            words, env=environment, capture_output=True, text=True, timeout=timeout
        )
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout.strip()

    def wait_for_idle(self) -> None:
        """Until all nodes are idle, START_SECONDS at most."""
        deadline = time.monotonic() + START_SECONDS
        wanted = sorted(f"{node} idle" for node in NODES)
        while sorted(self.states()) != wanted:
            assert time.monotonic() < deadline, f"{self.states()}: see the logs in {self.folder}"
            time.sleep(0.2)

    def kill_node(self, node: str) -> None:
        """SIGKILL one slurmd; what runs on its node stays, as after a network failure."""
        self._kill(node)

    def end_jobs(self) -> None:
        """Cancel every job, and wait until the nodes are idle again."""
        self.command("scancel", "--user", str(os.getuid()), "--full")
        self.wait_for_idle()

    def states(self) -> list[str]:
        """Name and state of each node; nothing while slurmctld gives no answer."""
        with suppress(AssertionError):
            lines = self.command("sinfo", "--noheader", "-N", "-p", "work", "-o", "%N %T")
            return lines.splitlines()
        return []

    @property
    def _file(self) -> str:
        return str(self.folder / "slurm.conf")

    def _write_configuration(self) -> None:
        ports = _free_ports(1 + len(NODES))
        host = socket.gethostname()
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout
        lines = [
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4 "
            "RealMemory=64000 State=UNKNOWN"
            for node, port in zip(NODES, ports[1:], strict=True)
        ]
        head = CONFIGURATION.format(host=host, user=user.strip(), port=ports[0], folder=self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        (self.folder / "state").mkdir()
        Path(self._file).write_text(head + "\n".join(lines) + "\n" + PARTITIONS, encoding="ascii")
        shims = self.folder / "bin"
        shims.mkdir()
        for name in COMMANDS:
            script = f'#!/bin/sh\nexport SLURM_CONF="{self._file}"\nexec {_program(name)} "$@"\n'
            (shims / name).write_text(script, encoding="utf-8")
            (shims / name).chmod(0o755)

    def _start_munge(self) -> None:
        folder = self.folder / "munge"
        folder.mkdir(mode=0o755)
        key = folder / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        options = {
            "--socket": folder / "socket",
            "--key-file": key,
            "--pid-file": folder / "pid",
            "--seed-file": folder / "seed",
            "--log-file": folder / "log",
        }
        words = [f"{name}={value}" for name, value in options.items()]
        # --force: the folder lies below one that all may write in
        self._start("munged", [_program("munged"), "--foreground", "--force", *words])
        deadline = time.monotonic() + START_SECONDS
        while not (folder / "socket").exists():
            assert time.monotonic() < deadline, (folder / "log").read_text(encoding="utf-8")
            time.sleep(0.05)

    def _start(self, name: str, words: list[str]) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            self.daemons[name] = subprocess.Popen(
                words,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def _kill(self, name: str) -> None:
        daemon = self.daemons.pop(name)
        daemon.kill()
        daemon.wait()

    def _processes(self) -> Iterator[psutil.Process]:
        """Everything alive that carries the cluster's mark or writes its logs."""
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied, OSError):
                if process.status() == psutil.STATUS_ZOMBIE:
                    continue
                if process.environ().get(MARK) == str(self.folder) or self._is_step(process):
                    yield process

    def _is_step(self, process: psutil.Process) -> bool:
        """Whether it is a slurmstepd of this cluster: these write over their environment."""
        if not process.name().startswith("slurmstepd"):
            return False
        links = Path(f"/proc/{process.pid}/fd").iterdir()
        return any(os.readlink(link).startswith(f"{self.folder}/") for link in links)
