"""A plan in the words of each engine: arguments of the Docker SDK, or a command line."""

from pathlib import Path
from typing import Any

from docker.types import DeviceRequest
from docker.types import Mount as DockerMount

from instella.containers.walls import HOST_NAME, KIT, LABEL, PROCESSES, Plan
from instella.errors import BadUse

_GIB = 1 << 30


def docker_arguments(plan: Plan, rootless: bool = False) -> dict[str, Any]:
    """Keyword arguments of ``docker.models.containers.create``.

    Args:
        plan: the container.
        rootless: the engine runs as the caller, who is user 0 in its containers.
    """
    arguments: dict[str, Any] = {
        "image": plan.image.config,
        "command": list(plan.command),
        "name": plan.name,
        "hostname": HOST_NAME,
        "labels": {LABEL: plan.name},
        "environment": dict(plan.environment),
        "working_dir": str(KIT),
        "user": "0:0" if rootless else "{}:{}".format(*plan.user),
        "group_add": [str(group) for group in plan.groups],
        "mounts": [
            DockerMount(str(item.target), str(item.source), "bind", read_only=not item.writable)
            for item in plan.mounts
        ],
        "network_mode": "none",
        "read_only": True,
        "tmpfs": {"/tmp": "rw,nosuid,nodev,mode=1777"},
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "pids_limit": PROCESSES,
        "shm_size": plan.shm_gib * _GIB,
        "init": True,
        "stdin_open": True,
        "auto_remove": True,
    }
    if plan.memory_gib is not None:
        arguments["mem_limit"] = arguments["memswap_limit"] = plan.memory_gib * _GIB
    if plan.accel == "rocm":
        arguments["devices"] = [f"{device}:{device}:rw" for device in plan.devices]
        arguments["ipc_mode"] = "host"
        arguments["security_opt"].append("seccomp=unconfined")
        del arguments["shm_size"]
    if plan.accel == "cuda":
        arguments["device_requests"] = [DeviceRequest(count=-1, capabilities=[["gpu"]])]
    return arguments


def podman_words(plan: Plan) -> list[str]:
    """Command line of podman, which stays until the container has ended and is removed."""
    words = [
        "podman", "run", "--rm", "--interactive", "--init", f"--name={plan.name}",
        f"--label={LABEL}={plan.name}", f"--hostname={HOST_NAME}", "--network=none", "--read-only", "--read-only-tmpfs=false",
        "--tmpfs=/tmp:rw,nosuid,nodev,mode=1777", "--cap-drop=all",
        "--security-opt=no-new-privileges", "--ulimit=nofile=1024:1024", f"--ulimit=nproc={PROCESSES}:{PROCESSES}", f"--pids-limit={PROCESSES}",
        "--user={}:{}".format(*plan.user), f"--workdir={KIT}",
    ]  # fmt: skip
    if not plan.caller_is_root:
        words.append("--userns=keep-id")
    if plan.memory_gib is not None:
        words += [f"--memory={plan.memory_gib}g", f"--memory-swap={plan.memory_gib}g"]
    if plan.accel == "rocm":
        words += [f"--device={device}" for device in plan.devices]
        groups = plan.groups if plan.caller_is_root else ("keep-groups",)
        words += [f"--group-add={group}" for group in groups]
        words += ["--ipc=host", "--security-opt=seccomp=unconfined"]
    else:
        words.append(f"--shm-size={plan.shm_gib}g")
    if plan.accel == "cuda":
        words.append("--device=nvidia.com/gpu=all")
    for item in plan.mounts:
        how = "rw" if item.writable else "ro"
        _require_plain(item.source, "podman", ',"')
        words.append(f"--mount=type=bind,source={item.source},target={item.target},{how}")
    words += [f"--env={name}={value}" for name, value in sorted(plan.environment.items())]
    return [*words, str(plan.image.config), *plan.command]


def apptainer_words(plan: Plan, sif: Path) -> list[str]:
    """Command line of apptainer, which runs as the caller.

    Device files are bound without the host's libraries, which ``--rocm`` would mix in.
    """
    words = [
        "apptainer", "exec", "--containall", "--cleanenv", "--no-eval", "--no-privs",
        "--net", "--network=none", f"--pwd={KIT}",
    ]  # fmt: skip
    words += [f"--bind={device}" for device in plan.devices]
    if plan.accel == "cuda":
        words.append("--nv")
    if plan.memory_gib is not None:
        words.append(f"--memory={plan.memory_gib}g")
    for item in plan.mounts:
        _require_plain(item.source, "apptainer", ",:")
        words.append(f"--bind={item.source}:{item.target}:{'rw' if item.writable else 'ro'}")
    words += [f"--env={name}={value}" for name, value in sorted(plan.environment.items())]
    return [*words, str(sif), *plan.command]


def _require_plain(path: Path, engine: str, marks: str) -> None:
    """The engine's own marks in a path would end it there, and mount something else."""
    found = sorted(set(marks) & set(str(path)))
    if found:
        raise BadUse(
            f"{path}: {engine} cannot mount a path with {' or '.join(found)} in it; move results, "
            "store and downloads to a folder without, or set container.engine: docker"
        )
