"""Numerics classes: which settings of the libraries decide the bytes, and their pins.

``portable-x86`` promises the same bytes on every x86-64 CPU with AVX2 and FMA. The others
promise them only on the same hardware and software. Nothing here imports torch or numpy
at module level, because the variables act only when set before that import.
"""

import ctypes
import os
import platform
import re
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from instella.errors import BadUse, VerificationError

_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

# One order of the ranks' sum in NCCL and RCCL, whatever the sizes and the links; TunableOp
# chooses by timing, and so does inductor unless told. docs/same-bytes.md has the sources.
_GPU = {
    "NCCL_ALGO": "Ring",
    "NCCL_PROTO": "Simple",
    "PYTORCH_TUNABLEOP_ENABLED": "0",
    "TORCHINDUCTOR_DETERMINISTIC": "1",
}

PORTABLE = "portable-x86"

# ATen's AVX2 kernels: softmax and attention reduce over lanes, so the width decides bits.
# MKL_CBWR: COMPATIBLE is the only branch that CPUs of every vendor take.
# NPY: float64 tables differ by vector width. The names are those numpy 2.4 dispatches on;
# one that the CPU lacks is ignored without a warning, so the list is the same everywhere.
# ONEDNN_MAX_CPU_ISA stays unset: the product in use gives the same bits on AVX2 and AVX-512.
_PINS: dict[str, dict[str, str]] = {
    PORTABLE: {
        **_ONE_THREAD,
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_CBWR": "COMPATIBLE",
        "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
        "TOKENIZERS_PARALLELISM": "false",
    },
    "native-cpu": _ONE_THREAD,
    # hipBLASLt documents no switch, so torch takes rocBLAS, which has one for its atomics.
    # Of flash-attention's back ends for ROCm the Triton one ignores the deterministic option.
    "gfx942": {
        **_GPU,
        "FLASH_ATTENTION_TRITON_AMD_ENABLE": "FALSE",
        "RCCL_MSCCLPP_ENABLE": "0",
        "RCCL_MSCCL_ENABLE": "0",
        "ROCBLAS_DEFAULT_ATOMICS_MODE": "0",
        "TENSILE_SOLUTION_SELECTION_METHOD": "0",
        "TORCH_BLAS_PREFER_HIPBLASLT": "0",
    },
    "sm90": {
        **_GPU,
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "NVIDIA_TF32_OVERRIDE": "0",
    },
}
CLASSES = tuple(_PINS)
_CPU_CLASSES = (PORTABLE, "native-cpu")
GPU_CLASSES = tuple(name for name in CLASSES if name not in _CPU_CLASSES)

# glibc's variables, their options M_TRIM_THRESHOLD and M_MMAP_THRESHOLD (malloc.h), and bytes
KEPT_MEMORY = {"MALLOC_TRIM_THRESHOLD_": (-1, 1 << 28), "MALLOC_MMAP_THRESHOLD_": (-3, 1 << 25)}

_STEERING_PREFIXES = (
    "OMP_", "GOMP_", "KMP_", "MKL_", "ATEN_", "ONEDNN_", "DNNL_", "NPY_", "TORCH", "PYTORCH_",
    "OPENBLAS_", "GOTO_", "BLIS_", "VECLIB_", "NUMEXPR_", "TBB_", "ARROW_", "SYMPY_", "MPMATH_",
    "TOKENIZERS_", "RAYON_",
)  # fmt: skip
# Those that only name devices, networks and memory stay: a GPU class drops what chooses kernels.
_GPU_STEERING_PREFIXES = (
    "NCCL_ALGO", "NCCL_PROTO", "RCCL_MSCCL", "PYTORCH_TUNABLEOP_", "TORCHINDUCTOR_", "TORCH_BLAS_",
    "ROCBLAS_", "HIPBLAS_", "HIPBLASLT_", "TENSILE_", "MIOPEN_", "FLASH_ATTENTION_", "AITER_",
    "CUBLAS_", "CUBLASLT_", "CUDNN_", "NVIDIA_TF32_",
)  # fmt: skip
_NEEDED_FLAGS = ("avx2", "fma")
_CPUINFO = Path("/proc/cpuinfo")


def pins(name: str) -> Mapping[str, str]:
    """Variables that the class sets, by name; part of every identity of the class.

    Raises:
        BadUse: no such class.
    """
    if name not in _PINS:
        raise BadUse(f"numerics class {name!r}: choose one of {', '.join(CLASSES)}")
    return _PINS[name]


def keep_freed_memory(environ: MutableMapping[str, str] = os.environ) -> None:
    """Let the C library keep what is freed, here and in processes started later.

    It gives blocks of 128 KiB and more back to the kernel, which clears every page before it
    is used again: up to a tenth of a small training step.

    Args:
        environ: variables that tell it to processes started later.
    """
    library = ctypes.CDLL(None)
    for variable, (option, size) in KEPT_MEMORY.items():
        library.mallopt(option, size)
        environ[variable] = str(size)


def apply_environment(
    name: str, environ: MutableMapping[str, str] = os.environ, cpuinfo: Path = _CPUINFO
) -> None:
    """Drop the variables that steer the libraries of the class's hardware and set its own.

    Must run before torch or numpy are imported; processes started later inherit it.

    Args:
        name: numerics class.
        environ: variables to change.
        cpuinfo: the kernel's description of the CPU.

    Raises:
        BadUse: unknown class, a CPU that lacks what the class needs, or a variable that
            acted before this process could drop it.
    """
    chosen = pins(name)
    early = [module for module in ("numpy", "torch") if module in sys.modules]
    if early:
        raise RuntimeError(f"{early[0]} was imported before the numerics class was applied")
    require_machine(name, environ, cpuinfo)
    on_cpu = name in _CPU_CLASSES
    steering = _STEERING_PREFIXES if on_cpu else _GPU_STEERING_PREFIXES
    for variable in [key for key in environ if key.startswith(steering)]:
        del environ[variable]
    environ.update(chosen)
    if on_cpu:
        keep_freed_memory(environ)


def require_machine(
    name: str, environ: Mapping[str, str] = os.environ, cpuinfo: Path = _CPUINFO
) -> None:
    """Check what a process cannot set for itself; changes nothing.

    Args:
        name, environ, cpuinfo: as for ``apply_environment``.

    Raises:
        BadUse: unknown class, a CPU that lacks what the class needs, or a variable that acts
            before Python starts.
    """
    pins(name)
    if name not in _CPU_CLASSES:
        return
    if name == PORTABLE:
        _require_cpu(cpuinfo)
    if "hwcaps" in environ.get("GLIBC_TUNABLES", ""):
        raise BadUse(
            "GLIBC_TUNABLES: hwcaps change the C library's results and act before Python "
            "starts; unset the variable"
        )


def _require_cpu(cpuinfo: Path) -> None:
    text = cpuinfo.read_text(encoding="utf-8") if cpuinfo.is_file() else ""
    flags = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    present = flags.group(1).split() if flags else []
    missing = [flag for flag in _NEEDED_FLAGS if flag not in present]
    if missing:
        raise BadUse(
            f"numerics class portable-x86 needs Linux on an x86-64 CPU with AVX2 and FMA; this "
            f"machine ({platform.machine()}) lacks {' and '.join(missing)}; use another machine "
            "or set numerics: native-cpu in the recipe"
        )


def assert_active(name: str) -> None:
    """Check inside the running torch that the class really holds; imports torch.

    What a GPU class needs beyond this is set where a network is put on a GPU
    (``network/device.py``), since stages without a network run anywhere.

    Raises:
        VerificationError: a state that would change bits, with what was expected.
    """
    import torch

    states: list[tuple[str, object, object]] = [
        ("default dtype", torch.get_default_dtype(), torch.float32),
    ]
    if name in _CPU_CLASSES:
        states.append(("threads", torch.get_num_threads(), 1))
    if name == PORTABLE:
        states.append(("ATen kernels", torch.backends.cpu.get_cpu_capability(), "AVX2"))
        # Nothing reports the flush-to-zero bit of the CPU, so a denormal product shows it.
        kept = bool((torch.tensor([1e-40]) * 1.0).item() != 0.0)
        states.append(("denormal numbers kept", kept, True))
    if name in GPU_CLASSES and torch.cuda.is_initialized():
        set_ = torch.are_deterministic_algorithms_enabled()
        states.append(("deterministic algorithms", set_, True))
    for what, found, expected in states:
        if found != expected:
            raise VerificationError(
                f"numerics class {name}: {what}: expected {expected}, found {found}; something "
                "changed it after the environment was set"
            )
