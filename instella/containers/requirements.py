"""Locks of the Python packages that an image adds to its base.

``requirements.in`` names them, and ``build.in`` what builds the packages that come as source.
Comments say for which Python, which packages the base already has, and which lock gives the
versions that a line does not give itself; without that one it is ``run.lock``, so that images
differ as little as can be. The base's packages with a version are taken as they are: pip neither
fetches another build of them nor chooses what does not go with them. Packages that stand ``alone``
are taken without their dependencies, because one of those comes as source only, which pip does not
resolve for another Python:

    # python 3.12
    # base torch==2.12.0 triton
    # pins requirements/environments/verl.lock
    # alone hydra-core omegaconf antlr4-python3-runtime
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from instella.errors import BadUse, KitError
from instella.wheels import locked_hashes, normal_name

_HEAD = "# Made by `instella image lock NAME --packages` from the .in file beside it.\n"
_OWN_VERSION = re.compile(r"^([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?[=<>!~]", re.MULTILINE)
_WHEEL = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
# Ubuntu 22.04, the oldest of the bases' systems, has glibc 2.35.
_PLATFORMS = (
    *(f"--platform=manylinux_2_{minor}_x86_64" for minor in range(35, 16, -1)),
    "--platform=manylinux2014_x86_64",
)


def resolve(source: Path, project: Path) -> None:
    """Write the lock beside a ``.in`` file: exact versions with SHA-256.

    Args:
        source: ``requirements.in`` or ``build.in`` of an image.
        project: folder below which the lock with the versions lies.

    Raises:
        BadUse: no Python version in ``source``, or the lock with the versions is missing.
        KitError: pip finds no set of versions.
    """
    text = source.read_text(encoding="utf-8")
    python = _comment(text, "python")
    if len(python) != 1:
        raise BadUse(f"{source}: no line '# python 3.N'")
    base = _base(text)
    alone = sorted(_comment(text, "alone"))
    pins = project / (_comment(text, "pins") or {"requirements/run.lock"}).pop()
    if not pins.is_file():
        raise BadUse(f"{pins}: missing, and {source.name} takes its versions from it")
    own = {normal_name(name) for name in _OWN_VERSION.findall(text)}
    versions = {
        name: version
        for name, (version, _) in locked_hashes(pins).items()
        if name not in base and name not in own
    }
    platform = [f"--python-version={python.pop()}", "--implementation=cp", *_PLATFORMS]
    with tempfile.TemporaryDirectory() as place:
        versions |= _stand_ins(base, Path(place))
        platform.append(f"--find-links={place}")
        found = _report(["--only-binary=:all:", "--requirement", str(source)], platform, versions)
        found += _report(["--no-deps", *alone], platform, versions) if alone else []
    lines = []
    for item in found:
        name, version = normal_name(item["metadata"]["name"]), item["metadata"]["version"]
        digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
        if name not in base and not _comes_with(name):
            lines.append(f"{name}=={version} --hash=sha256:{digest}\n")
    source.with_suffix(".lock").write_text(_HEAD + "".join(sorted(lines)), encoding="utf-8")


def _comment(text: str, word: str) -> set[str]:
    found = re.search(rf"^# {word} (.+)$", text, re.MULTILINE)
    return set(found[1].split()) if found else set()


def _base(text: str) -> dict[str, str]:
    """Packages of the base to their versions, empty where the file gives none."""
    parts = (item.partition("==") for item in _comment(text, "base"))
    return {normal_name(name): version for name, _, version in parts}


def _stand_ins(base: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Wheels that hold nothing but the name and version of what the base brings.

    Returns:
        The versions to ask for. Their local part is the base's own, as no index has it: pip would
        else take the index's build, with gigabytes that go with another kind of accelerator.
    """
    versions = {name: f"{version}+base" for name, version in base.items() if version}
    for name, version in versions.items():
        stem = f"{name.replace('-', '_')}-{version}"
        with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
            about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            wheel.writestr(f"{stem}.dist-info/METADATA", about)
            wheel.writestr(f"{stem}.dist-info/WHEEL", _WHEEL)
            wheel.writestr(f"{stem}.dist-info/RECORD", "")
    return versions


def _comes_with(name: str) -> bool:
    """What only torch of another kind asks for."""
    return name.startswith(("nvidia-", "cuda-"))


def _report(
    wanted: Sequence[str], platform: Sequence[str], versions: Mapping[str, str]
) -> list[dict[str, Any]]:
    """What pip would install of these versions."""
    with tempfile.TemporaryDirectory() as place:
        constraints, report = Path(place, "constraints.txt"), Path(place, "report.json")
        kept = [f"{name}=={version}\n" for name, version in versions.items()]
        constraints.write_text("".join(kept), encoding="utf-8")
        command = [
            sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--dry-run",
            "--disable-pip-version-check", "--ignore-installed", *platform,
            f"--target={place}/site", "--report", str(report), "--constraint", str(constraints),
            *wanted,
        ]  # fmt: skip
        environment = {**os.environ, "PIP_CONSTRAINT": os.devnull}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise KitError(f"pip: {' '.join(lines)[:600] or done.stderr[-300:]}")
        return list(json.loads(report.read_bytes())["install"])
