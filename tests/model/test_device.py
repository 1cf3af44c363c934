"""Which device a class's networks get; GPUs are stand-ins, so only choice and refusals show."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from instella.errors import BadUse
from instella.network.device import device_of
from instella.recipe.reader import read_recipe
from instella.recipe.readiness import DEVICES, require_ready

SMALL = Path(__file__).parents[1] / "recipe" / "small.yaml"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """What is chosen for a process is forgotten, and what is set for a GPU put back."""
    device_of.cache_clear()
    yield
    device_of.cache_clear()
    torch.use_deterministic_algorithms(False)


def gpus(monkeypatch: pytest.MonkeyPatch, count: int, **properties: object) -> list[torch.device]:
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    found = SimpleNamespace(**properties)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: found)
    return chosen


def test_cpu_classes_have_the_cpu() -> None:
    assert device_of("portable-x86") == device_of("native-cpu") == torch.device("cpu")
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("name", ["gfx942", "sm90"])
def test_a_machine_without_a_gpu_is_refused(name: str) -> None:
    with pytest.raises(BadUse, match=f"numerics class {name}: torch sees no GPU here; run"):
        device_of(name)


def test_another_architecture_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, 1, gcnArchName="gfx90a:sramecc+:xnack-", major=9, minor=0)
    monkeypatch.setattr(torch.version, "hip", "7.2")
    with pytest.raises(BadUse, match="numerics class gfx942: the GPU here is gfx90a; run"):
        device_of("gfx942")
    monkeypatch.setattr(torch.version, "hip", None)
    with pytest.raises(BadUse, match="the GPU here is sm90"):
        device_of("gfx942")


@pytest.mark.parametrize(
    ("variables", "number"),
    [({}, 0), ({"LOCAL_RANK": "3"}, 3), ({"SLURM_LOCALID": "2"}, 2), ({"LOCAL_RANK": "5"}, 1)],
)
def test_each_rank_of_a_machine_has_its_own(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], number: int
) -> None:
    """Where a launcher shows each rank one GPU only, that is number 0."""
    for name in ("LOCAL_RANK", "SLURM_LOCALID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    chosen = gpus(monkeypatch, 4, gcnArchName="", major=9, minor=0)
    assert device_of("sm90") == torch.device("cuda", number)
    assert chosen == [torch.device("cuda", number)]
    assert torch.are_deterministic_algorithms_enabled()


def test_a_whole_run_is_refused_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SMALL.read_text(encoding="utf-8").replace("portable-x86", "gfx942")
    (tmp_path / "small.yaml").write_text(text, encoding="utf-8")
    recipe = read_recipe(tmp_path / "small.yaml")
    wanted = "numerics class gfx942 needs a GPU and there is no /dev/none here"
    monkeypatch.setitem(DEVICES, "gfx942", Path("/dev/none"))
    with pytest.raises(BadUse, match=wanted):
        require_ready(recipe, SMALL, "local")
    for launcher, device in (("srun", "/dev/none"), ("local", "/dev/null")):
        monkeypatch.setitem(DEVICES, "gfx942", Path(device))
        with pytest.raises(BadUse) as refused:
            require_ready(recipe, SMALL, launcher)
        assert "GPU" not in str(refused.value) and "hub source" in str(refused.value)
