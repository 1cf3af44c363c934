"""A private container engine for the tests, and images in it."""

import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from instella.containers.walls import LABEL

DOCKERD = shutil.which("dockerd", path="/usr/sbin:/usr/bin:/sbin:/bin")
START_SECONDS = 60.0
END_SECONDS = 30.0
_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@dataclass
class Engine:
    """dockerd on a socket and a data folder of its own, without a network."""

    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> str:
        return f"unix://{self.folder}/socket"

    def start(self) -> None:
        assert DOCKERD is not None
        words = [
            DOCKERD, "--host", self.socket, "--data-root", f"{self.folder}/data",
            "--exec-root", f"{self.folder}/exec", "--pidfile", f"{self.folder}/pid",
            "--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-masq=false",
        ]  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, preexec_fn=_die_with_parent,
            )  # fmt: skip
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self.process.poll() is None:
            if self.docker("version", check=False).returncode == 0:
                return
            time.sleep(0.3)
        raise RuntimeError((self.folder / "log").read_text(errors="replace")[-2000:])

    def docker(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Debian's client; another one may shadow it."""
        command = ["/usr/bin/docker", "--host", self.socket, *words]
        return subprocess.run(command, capture_output=True, text=True, check=check)

    def containers(self, *options: str) -> list[str]:
        """Names of the stages' containers, ended ones too."""
        listed = self.docker(
            "ps", "--all", "--filter", f"label={LABEL}", "--format", "{{.Names}}", *options
        )
        return listed.stdout.split()

    def kill(self) -> None:
        """As when the machine's memory runs out; containers go on without it."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        _kill_those_with(f"{self.folder}/exec/containerd/containerd.toml")
        # Of a number that is free again another process may be the owner.
        (self.folder / "exec/containerd/containerd.pid").unlink(missing_ok=True)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        # What dockerd started and left behind names its folder.
        _kill_those_with(str(self.folder))


def _kill_those_with(word: str) -> None:
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if word.encode() in (entry / "cmdline").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)


@dataclass(frozen=True)
class Building:
    """One build of the image, and its archive."""

    code: int
    out: str
    err: str
    archive: Path


def why_no_docker() -> str | None:
    """Why dockerd cannot be started here; None if it can."""
    if os.getuid():
        return "dockerd needs root"
    if DOCKERD is None or not os.access("/usr/bin/docker", os.X_OK):
        return "docker is not installed (apt install docker.io)"
    return None


@contextmanager
def private_docker() -> Iterator[Engine]:
    """An engine that is ended, with its folder, however the block ends."""
    # Short, since the path of a socket may have 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="instella-dockerd-", dir="/tmp"))
    engine = Engine(folder)
    try:
        engine.start()
        yield engine
    finally:
        engine.stop()
        _unmount_below(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _unmount_below(folder: Path) -> None:
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for place in sorted((name for name in mounts if name.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "--lazy", place], check=False)
