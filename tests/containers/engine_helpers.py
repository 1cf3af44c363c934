"""Private container engines for the tests, and images in them."""

import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from instella.containers.dockerfiles import read_assembly
from instella.containers.images import FOLDER, Image
from instella.containers.layers import folder_layer, write_archive
from instella.containers.walls import LABEL

_SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
DOCKERD = shutil.which("dockerd", path=_SYSTEM_PATH)
START_SECONDS = 60.0
END_SECONDS = 30.0
_PR_SET_PDEATHSIG = 1
EPOCH = 1_700_000_000
# Linked statically, so that it needs no other file.
PROGRAM = "/sbin/ldconfig"


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class NoEngine(Exception):
    """Why an engine cannot be used here."""


class Engine(ABC):
    """An engine with a data folder of its own."""

    name: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def start(self) -> None:
        """Make it ready; NoEngine if that cannot be."""

    @abstractmethod
    def variables(self) -> Mapping[str, str]:
        """What makes clients take this engine."""

    @abstractmethod
    def call(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """The engine's own command line."""

    def containers(self, *options: str) -> list[str]:
        """Names of the stages' containers, ended ones too."""
        words = ("ps", "--all", "--filter", f"label={LABEL}", "--format", "{{.Names}}", *options)
        return self.call(*words).stdout.split()

    def stop(self) -> None:
        """End whatever it started."""
        # What an engine started and left behind names its folder.
        _kill_those_with(str(self.folder))


class Docker(Engine):
    """dockerd on a socket of its own, without a network."""

    name = "docker"
    process: subprocess.Popen[bytes] | None = None

    def variables(self) -> Mapping[str, str]:
        return {"DOCKER_HOST": f"unix://{self.folder}/socket"}

    def start(self) -> None:
        if DOCKERD is None or not os.access("/usr/bin/docker", os.X_OK):
            raise NoEngine("docker is not installed (apt install docker.io)")
        words = [
            DOCKERD, "--host", self.variables()["DOCKER_HOST"], "--data-root",
            f"{self.folder}/data", "--exec-root", f"{self.folder}/exec", "--pidfile",
            f"{self.folder}/pid", "--bridge=none", "--iptables=false", "--ip6tables=false",
            "--ip-masq=false",
        ]  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, preexec_fn=_die_with_parent,
            )  # fmt: skip
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self.process.poll() is None:
            if self.call("version", check=False).returncode == 0:
                return
            time.sleep(0.3)
        told = (self.folder / "log").read_text(errors="replace").strip().splitlines()
        raise NoEngine(f"dockerd does not start: {told[-1] if told else 'no reason given'}")

    def call(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Debian's client; another one may shadow it."""
        command = ["/usr/bin/docker", "--host", self.variables()["DOCKER_HOST"], *words]
        return subprocess.run(command, capture_output=True, text=True, check=check)

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
        super().stop()


class Podman(Engine):
    """podman with runc and a storage of its own; no process of it stays."""

    name = "podman"

    def variables(self) -> Mapping[str, str]:
        return {
            "CONTAINERS_CONF": str(self.folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(self.folder / "storage.conf"),
        }

    def start(self) -> None:
        for program in ("podman", "runc", "catatonit"):
            if shutil.which(program, path=_SYSTEM_PATH) is None:
                raise NoEngine(f"{program} is not installed (apt install {program})")
        (self.folder / "containers.conf").write_text(
            '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\n'
            f'tmp_dir = "{self.folder}/tmp"\n'
        )
        (self.folder / "storage.conf").write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{self.folder}/data"\n'
            f'runroot = "{self.folder}/run"\n'
        )
        told = self.call("info", check=False)
        if told.returncode:
            raise NoEngine(f"podman does not work: {' '.join(told.stderr.split())[-300:]}")

    def call(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **self.variables()}
        return subprocess.run(
            ["podman", *words], env=environment, capture_output=True, text=True, check=check
        )


ENGINES = (Docker, Podman)


def _kill_those_with(word: str) -> None:
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if word.encode() in (entry / "cmdline").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)


@dataclass(frozen=True)
class Building:
    """One build of the image: what the command said, and the copy of the project it ran in."""

    code: int
    out: str
    err: str
    folder: Path

    @property
    def archive(self) -> Path:
        (found,) = (self.folder / "downloads" / "images").glob("*.tar")
        return found


@contextmanager
def private_engine(kind: type[Engine]) -> Iterator[Engine]:
    """An engine that is ended, with its folder, however the block ends; NoEngine if it cannot be."""
    if os.getuid():
        raise NoEngine(f"{kind.name}: the tests start it as root only")
    # Short, since the path of a socket may have 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix=f"instella-{kind.name}-", dir="/tmp"))
    engine = kind(folder)
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


def small_image(folder: Path) -> tuple[Image, Path]:
    """An image of one program, put together as ``cpu`` is; its layers stay beside the archive."""
    layers = []
    for name in ("bin", "etc"):
        (folder / name).mkdir()
    shutil.copy(PROGRAM, folder / "bin" / "program")
    (folder / "etc" / "about").write_text("one program")
    for name, file in (("bin", "lower.tar"), ("etc", "upper.tar")):
        layers.append(folder_layer(folder / name, name, folder / file, EPOCH, {}))
    assembly = read_assembly(FOLDER / "cpu" / "Dockerfile")
    archive = folder / "image.tar"
    built = write_archive(tuple(layers), assembly, "instella/program", EPOCH, archive)
    digests = tuple(layer.digest for layer in layers)
    return Image("cpu", None, None, built.manifest, built.config, digests), archive
