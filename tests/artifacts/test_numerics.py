"""Numerics classes: what a user sets cannot leak in, and the pins hold in torch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from instella import numerics
from instella.artifacts.identity import PACKAGE_FOLDER
from instella.errors import BadUse

HOSTILE = {
    "OMP_NUM_THREADS": "7",
    "MKL_NUM_THREADS": "7",
    "OMP_DYNAMIC": "true",
    "KMP_AFFINITY": "compact",
    "MKL_CBWR": "AVX512",
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "DNNL_DEFAULT_FPMATH_MODE": "BF16",
    "NPY_DISABLE_CPU_FEATURES": "X86_V3",
    "OPENBLAS_NUM_THREADS": "7",
    "TORCH_SHOW_CPP_STACKTRACES": "1",
    "GOMP_CPU_AFFINITY": "0",
    "TORCHDYNAMO_DISABLE": "0",
    "ARROW_USER_SIMD_LEVEL": "NONE",
    "SYMPY_GROUND_TYPES": "python",
}


STEPS = """
import resource
from benchmarks.portable_step import SHAPES, training_step
step = training_step("{}", SHAPES["tiny"])
for _ in range(6):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def python(script: str, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-W", "always", "-c", script],
        cwd=PACKAGE_FOLDER.parent, env={**os.environ, **env}, capture_output=True, text=True,
    )  # fmt: skip


def cpuinfo(folder: Path, flags: str) -> Path:
    path = folder / "cpuinfo"
    path.write_text(f"processor\t: 0\nmodel name\t: Toy\nflags\t\t: {flags}\nbugs\t\t: x\n")
    return path


def test_a_users_variables_cannot_leak_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.delitem(sys.modules, "numpy", raising=False)
    environ = {**HOSTILE, "HOME": "/root", "PATH": "/bin"}
    numerics.apply_environment("portable-x86", environ, cpuinfo(tmp_path, "fpu fma avx avx2"))
    kept = {name: str(size) for name, (_, size) in numerics.KEPT_MEMORY.items()}
    assert environ == {"HOME": "/root", "PATH": "/bin", **numerics.pins("portable-x86"), **kept}
    assert environ["OMP_NUM_THREADS"] == "1" and environ["MKL_CBWR"] == "COMPATIBLE"


def test_freed_memory_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that a training step freed costs the next one no page faults."""
    for variable in numerics.KEPT_MEMORY:
        monkeypatch.delenv(variable, raising=False)
    faults = {
        name: int(python(STEPS.format(name)).stdout) for name in ("portable-x86", "native-cpu")
    }
    # the benchmark applies no class where it measures stock torch
    assert faults["portable-x86"] < 300 < faults["native-cpu"]


def test_pins_hold_in_torch_and_numpy() -> None:
    """With hostile variables outside; numpy neither fails nor warns."""
    done = python(
        "from instella import numerics\n"
        "numerics.apply_environment('portable-x86')\n"
        "import numpy\n"
        "from numpy._core._multiarray_umath import __cpu_features__ as features\n"
        "assert features['X86_V3'] and not features['X86_V4'] and not features['AVX512_SPR']\n"
        "numerics.assert_active('portable-x86')\n"
        "import torch\n"
        "torch.set_num_threads(2)\n"
        "try:\n    numerics.assert_active('portable-x86')\n"
        "except Exception as error:\n    print(error)\n"
        "torch.set_num_threads(1)\ntorch.set_flush_denormal(True)\n"
        "try:\n    numerics.assert_active('portable-x86')\n"
        "except Exception as error:\n    print(error)\n"
        "torch.set_flush_denormal(False)\ntorch.set_default_dtype(torch.float64)\n"
        "try:\n    numerics.assert_active('native-cpu')\n"
        "except Exception as error:\n    print(error)\n",
        **HOSTILE,
    )
    assert done.returncode == 0, done.stderr
    assert "NPY_DISABLE" not in done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert "threads: expected 1, found 2" in lines[0]
    assert "denormal numbers kept: expected True, found False" in lines[1]
    assert "default dtype: expected torch.float32, found torch.float64" in lines[2]


def test_wrong_kernels_are_found() -> None:
    done = python(
        "from instella import numerics\nnumerics.assert_active('portable-x86')",
        OMP_NUM_THREADS="1", ATEN_CPU_CAPABILITY="default",
    )  # fmt: skip
    assert "ATen kernels: expected AVX2, found DEFAULT" in done.stderr.splitlines()[-1]


def test_too_late_is_refused() -> None:
    done = python(
        "import numpy\nfrom instella import numerics\nnumerics.apply_environment('native-cpu')"
    )
    assert "numpy was imported before" in done.stderr


@pytest.mark.parametrize(("flags", "lacking"), [("fpu avx avx2", "fma"), ("fpu", "avx2 and fma")])
def test_old_cpu_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str, lacking: str
) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.delitem(sys.modules, "numpy", raising=False)
    with pytest.raises(BadUse, match=f"lacks {lacking}; use another machine"):
        numerics.apply_environment("portable-x86", {}, cpuinfo(tmp_path, flags))
    with pytest.raises(BadUse, match="lacks avx2 and fma"):
        numerics.apply_environment("portable-x86", {}, tmp_path / "absent")
    numerics.apply_environment("native-cpu", {}, cpuinfo(tmp_path, flags))


def test_what_acted_before_python_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.delitem(sys.modules, "numpy", raising=False)
    with pytest.raises(BadUse, match="GLIBC_TUNABLES"):
        numerics.apply_environment(
            "native-cpu", {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2_Usable"}
        )


def test_gpu_classes_choose_kernels_and_leave_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.delitem(sys.modules, "numpy", raising=False)
    place = {"NCCL_SOCKET_IFNAME": "ib0", "OMP_NUM_THREADS": "7", "PYTORCH_ROCM_ARCH": "gfx942"}
    theirs = {"HIPBLASLT_TUNING_FILE": "a.csv", "NCCL_ALGO": "Tree", "CUBLAS_WORKSPACE_CONFIG": "x"}
    for name in ("gfx942", "sm90"):
        environ = {**place, **theirs}
        numerics.apply_environment(name, environ)
        assert environ == {**place, **numerics.pins(name)}


@pytest.mark.parametrize("name", ["gfx942", "sm90"])
def test_pins_of_a_gpu_class_reach_its_process(name: str) -> None:
    """Set before torch: a process that applies the class, and what it starts, have them."""
    code = (
        "import json, os, sys; from instella import numerics; "
        f"numerics.apply_environment({name!r}); assert 'torch' not in sys.modules; "
        "os.execv('/usr/bin/env', ['env'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, "NCCL_ALGO": "Tree", "PYTORCH_TUNABLEOP_ENABLED": "1"},
    )  # fmt: skip
    found = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert numerics.pins(name).items() <= found.items()


def test_unknown_class() -> None:
    with pytest.raises(BadUse, match="choose one of portable-x86"):
        numerics.pins("fast")
