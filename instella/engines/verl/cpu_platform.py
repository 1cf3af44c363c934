"""CPUs as a platform of verl, so that its trainer runs where no accelerator is.

Imported by verl in every process (``VERL_USE_EXTERNAL_MODULES``) with ``VERL_PLATFORM=cpu``. Ray
is told of as many pretended GPUs as there are ranks, since verl places its workers by them.
"""

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from verl.plugin.platform import PlatformBase, PlatformRegistry, set_platform

NAME = "cpu"


def _device_module() -> types.ModuleType:
    """``torch.cpu`` with the calls that verl makes on ``torch.cuda``."""
    module = types.ModuleType("instella_cpu_device")
    vars(module).update({name: value for name, value in vars(torch.cpu).items() if name[0] != "_"})
    for name in ("memory_allocated", "memory_reserved", "max_memory_allocated",
                 "max_memory_reserved", "current_device"):  # fmt: skip
        setattr(module, name, _zero)
    for name in ("empty_cache", "ipc_collect", "reset_peak_memory_stats", "synchronize",
                 "set_device"):  # fmt: skip
        setattr(module, name, _nothing)
    made: Any = module
    made.manual_seed = made.manual_seed_all = torch.manual_seed
    # Free and whole memory, in bytes; verl only reports them.
    made.mem_get_info = lambda *_: (8 << 30, 16 << 30)
    made.get_device_name = lambda *_: NAME
    made.get_rng_state = lambda *_: torch.get_rng_state()
    made.set_rng_state = lambda state, *_: torch.set_rng_state(state)
    made.is_available = lambda: True
    made.device_count = lambda: 1
    return module


def _zero(*_: Any, **__: Any) -> int:
    return 0


def _nothing(*_: Any, **__: Any) -> None:
    return None


_MODULE = _device_module()


@PlatformRegistry.register(platform=NAME)
class CPUPlatform(PlatformBase):  # type: ignore[misc]
    """What verl asks of a platform; the base class explains each."""

    device_name = property(lambda self: NAME)
    vendor_name = property(lambda self: NAME)
    device_module = property(lambda self: _MODULE)

    def is_available(self) -> bool:
        return True

    def current_device(self) -> str:
        # verl moves tensors with ``.to(current_device())``.
        return NAME

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        pass

    def synchronize(self, device_index: int | None = None) -> None:
        pass

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        pass

    def empty_cache(self) -> None:
        pass

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        pass

    def profiler_stop(self) -> None:
        pass

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None


set_platform(CPUPlatform())

# Only now: importing it asks for the platform.
import verl.workers.engine.base as engines  # noqa: E402


def _init_process_group(backend: str | None = None, *rest: Any, **named: Any) -> Any:
    # verl names a backend for the CPU and one for the device, here the same device twice.
    return _plain_init(NAMED_ONCE.get(backend or "", backend), *rest, **named)


def _engine_of(cls: Any, model_type: str, backend: str) -> Any:
    """verl's FSDP engines are registered for accelerators; they also run on CPUs."""
    for by_backend in cls._engines.values():
        for name in ("fsdp", "fsdp2"):
            if "cuda" in by_backend.get(name, {}):
                by_backend[name].setdefault(NAME, by_backend[name]["cuda"])
    return _plain_engine(cls, model_type, backend)


NAMED_ONCE = {"cpu:gloo,cpu:gloo": "gloo"}
_plain_init = dist.init_process_group
_plain_engine = engines.EngineRegistry.get_engine_cls.__func__

dist.init_process_group = _init_process_group
engines.EngineRegistry.get_engine_cls = classmethod(_engine_of)
# What is to be offloaded is pinned, for which torch wants an accelerator.
torch.Tensor.pin_memory = lambda self, *_, **__: self  # type: ignore[method-assign, assignment]
