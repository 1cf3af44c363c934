"""Running: options, environment, exit code, and what a killed run left behind."""

import fcntl
import os
import shutil
import subprocess
import sys

import pytest

from .conftest import ROOT, Kit


def locked(kit: Kit) -> bool:
    return (kit.folder / ".snakemake/locks").exists()


def leave_lock(kit: Kit) -> None:
    """What a Snakemake that was killed leaves."""
    folder = kit.folder / ".snakemake/locks"
    folder.mkdir(parents=True)
    (folder / "0.output.lock").touch()


def test_passes_options_and_exit_code(kit: Kit) -> None:
    kit.add_python()
    code, _, _ = kit.run("run", "-n", "--config", "recipe=recipes/a b.yaml")
    assert code == 7
    options = "--cores all --rerun-incomplete -n --config recipe=recipes/a b.yaml"
    assert kit.calls()[-1] == f"-m snakemake {options}"


QUIET = "--quiet rules reason host "


@pytest.mark.parametrize(
    ("options", "quiet"),
    [
        ((), QUIET),
        (("--config", "recipe=recipes/nano.yaml"), QUIET),
        (("results/tiny/sft/manifest.json",), QUIET),
        (("-n",), ""),
        (("-np",), ""),
        (("--dry-run",), ""),
        (("--quiet", "host"), ""),
        (("-q", "all"), ""),
        (("--verbose",), ""),
    ],
)
def test_snakemake_says_little_unless_asked(kit: Kit, options: tuple[str, ...], quiet: str) -> None:
    kit.add_python()
    kit.run("run", *options)
    given = " ".join(["--cores all --rerun-incomplete", *options])
    assert kit.calls()[-1] == f"-m snakemake {quiet}{given}"


SLURM_LOCKS = ["requirements/build.lock", "requirements/environments/slurm.lock"]


@pytest.mark.parametrize(
    "options",
    [
        ("--profile", "workflow/profiles/slurm"),
        ("-n", "--profile=workflow/profiles/slurm"),
        ("--workflow-profile", "workflow/profiles/slurm", "all"),
        ("--executor", "slurm"),
        ("--executor=slurm",),
        ("-e", "slurm"),
    ],
)
def test_a_run_on_slurm_gets_its_environment(kit: Kit, options: tuple[str, ...]) -> None:
    kit.add_python()
    shutil.copytree(ROOT / "workflow/profiles", kit.folder / "workflow/profiles")
    assert kit.run("run", *options)[0] == 7
    assert kit.installs()[2:] == SLURM_LOCKS
    pth = kit.folder / ".venvs/slurm/lib/python3.11/site-packages/instella.pth"
    found = [(pth.parent / line).resolve() for line in pth.read_text().splitlines()]
    packages = kit.folder / ".venv/lib/python3.11/site-packages"
    assert found == [kit.folder.resolve(), packages.resolve()]


def test_other_profiles_do_without_it(kit: Kit) -> None:
    kit.add_python()
    shutil.copytree(ROOT / "workflow/profiles", kit.folder / "workflow/profiles")
    for profile in ("short", "apptainer", "missing"):
        assert kit.run("run", "--profile", f"workflow/profiles/{profile}")[0] == 7
    assert not (kit.folder / ".venvs").exists()


def test_foreign_variables_do_not_reach_python(kit: Kit) -> None:
    kit.add_python()
    kit.run(
        "run",
        PYTHONPATH="/nowhere", PYTHONHOME="/nowhere", PYTHONSTARTUP="/nowhere",
        PYTHONHASHSEED="5", PIP_TARGET="/nowhere", PIP_USER="1", PIP_PROXY="http://proxy:1",
        VIRTUAL_ENV="/nowhere", LC_ALL="C",
    )  # fmt: skip
    lines = (kit.folder / "environment").read_text().splitlines()
    values = dict(line.split("=", 1) for line in lines)
    assert values["PYTHONNOUSERSITE"] == values["PYTHONUTF8"] == "1"
    assert values["PIP_PROXY"] == "http://proxy:1"
    gone = {name for name in values if name.startswith(("PYTHON", "PIP_", "VIRTUAL"))}
    assert gone == {"PYTHONNOUSERSITE", "PYTHONUTF8", "PIP_PROXY"}


def test_strict_umask_still_works(kit: Kit) -> None:
    kit.add_python()
    before = os.umask(0o277)
    try:
        code, _, err = kit.run("run")
    finally:
        os.umask(before)
    assert code == 7, err


def test_stale_lock_is_cleared(kit: Kit) -> None:
    kit.add_python()
    leave_lock(kit)
    code, _, err = kit.run("run")
    assert code == 7
    assert "an earlier run was killed" in err
    assert not locked(kit)


def test_lock_of_a_living_kit_is_kept(kit: Kit) -> None:
    kit.add_python()
    kit.run("setup")
    leave_lock(kit)
    with (kit.folder / ".kit/run.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        code, _, err = kit.run("run")
        dry, _, told = kit.run("run", "-n")
    assert code == 1
    assert "another ./kit run works in this folder: wait until it ends" in err
    assert dry == 7, "a dry run disturbs nobody"
    assert "another ./kit run works in this folder" in told
    assert locked(kit)


def test_lock_of_a_foreign_snakemake_is_kept(kit: Kit) -> None:
    kit.add_python()
    leave_lock(kit)
    command = [sys.executable, "-c", "import sys; sys.stdin.read()", "/usr/bin/snakemake"]
    with subprocess.Popen(command, cwd=kit.folder, stdin=subprocess.PIPE) as process:
        kit.run("run")
        assert locked(kit)
        process.communicate(b"")
    kit.run("run")
    assert not locked(kit)


def test_unknown_command(kit: Kit) -> None:
    code, _, err = kit.run("fly")
    assert code == 2
    assert err == "kit: there is no command 'fly': run, test, setup or packages\n"


def test_help_lists_the_commands(kit: Kit) -> None:
    code, out, _ = kit.run()
    assert code == 0
    assert all(f"./kit {name}" in out for name in ("run", "test", "setup", "packages"))


def test_missing_packages_are_printed(kit: Kit) -> None:
    (kit.bin / "dpkg-query").write_text(
        '#!/bin/sh\n[ "$4" = util-linux ] || { [ "$4" != python3.11-venv ] && echo install ok installed; }\n'
    )
    (kit.bin / "dpkg-query").chmod(0o755)
    code, out, _ = kit.run("packages")
    assert code == 0
    assert out.split() == ["python3.11-venv", "util-linux"]
