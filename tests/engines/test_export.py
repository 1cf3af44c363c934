"""verl's sharded checkpoint becomes a folder like the one that training started from."""

import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from conftest import CHECK_SECONDS, ROOT, SOAK, quiet_environment
from safetensors.torch import load_file, save_file

from instella.canonical import read_json, write_json
from instella.cli import main
from instella.engines.verl.ask import ask
from instella.engines.verl.exported import (
    Shape,
    differences,
    export,
    require_checkpoint,
    shapes_of,
)
from instella.errors import BadUse, KitError, VerificationError
from instella.network.folder import load_folder, save_folder


@pytest.fixture(scope="session")
def trained(verl_python: Path, start: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of two ranks, made by verl's own manager."""
    folder = tmp_path_factory.mktemp("trained")
    script = str(Path(__file__).with_name("verl_shards.py"))
    words = [str(verl_python), "-P", script, str(start), str(folder), "float32"]
    environment = {**quiet_environment(), "HOME": str(folder)}
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=CHECK_SECONDS, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_shards_become_the_folder_that_verl_trained(
    trained: Path, start: Path, verl_python: Path, tmp_path: Path
) -> None:
    output = tmp_path / "made"
    output.mkdir()
    names = len(shapes_of(start))
    assert export(trained / "global_step_2", start, output, verl_python) == names
    assert differences(shapes_of(start), shapes_of(output)) == []
    expected, made = load_file(trained / "expected.safetensors"), load_folder(output, "native-cpu")
    state = made.state_dict()
    assert set(state) == set(expected)
    assert all(torch.equal(state[name], expected[name]) for name in expected)
    before = load_folder(start, "native-cpu").state_dict()
    assert not torch.equal(before["lm_head.weight"], state["lm_head.weight"])
    assert read_json(output / "config.json") == read_json(start / "config.json")
    assert sorted(path.name for path in output.iterdir()) == sorted(
        path.name for path in start.iterdir()
    )


@pytest.mark.skipif(not SOAK, reason="another half minute: INSTELLA_SOAK=1")
def test_a_start_in_bfloat16_gets_what_verls_merger_makes(
    trained: Path, start: Path, verl_python: Path, tmp_path: Path
) -> None:
    rounded, output = tmp_path / "start", tmp_path / "made"
    rounded.mkdir()
    output.mkdir()
    network = load_folder(start, "native-cpu").to(torch.bfloat16)
    save_folder(rounded, network, start, network.settings.max_position_embeddings)
    export(trained / "global_step_2", rounded, output, verl_python)
    expected = load_file(trained / "expected.safetensors")
    state = load_folder(output, "native-cpu").state_dict()
    assert all(torch.equal(state[name], expected[name].bfloat16()) for name in expected)


def test_names_shapes_and_dtypes_that_differ_are_listed() -> None:
    start = {"a": Shape((2, 3), "F32"), "b": Shape((1,), "F32"), "c": Shape((4,), "F32")}
    made = {"a": Shape((3, 2), "BF16"), "c": Shape((4,), "F32"), "d": Shape((1,), "F32")}
    assert differences(start, made) == [
        "b: missing",
        "d: not in the starting model",
        "a: shape (3, 2), of the starting model (2, 3)",
        "a: dtype BF16, of the starting model F32",
    ]


def test_a_folder_that_rotation_left_behind_is_no_checkpoint(trained: Path, tmp_path: Path) -> None:
    """Rotation takes the shards away and leaves ``global_step_N/data.pt``."""
    assert require_checkpoint(trained / "global_step_2") == 2
    left = tmp_path / "global_step_1"
    left.mkdir()
    (left / "data.pt").touch()
    with pytest.raises(VerificationError, match="no checkpoint of verl"):
        require_checkpoint(left)
    for name in ("optim_world_size_2_rank_1.pt", "extra_state_world_size_2_rank_0.pt"):
        copy = tmp_path / name / "global_step_2"
        shutil.copytree(trained / "global_step_2", copy)
        (copy / "actor" / name).unlink()
        with pytest.raises(VerificationError, match="rotated away or not written"):
            require_checkpoint(copy)
    for size in (0, "2", True, 10**9):
        write_json(copy / "actor" / "fsdp_config.json", {"world_size": size})
        with pytest.raises(VerificationError, match="world_size"):
            require_checkpoint(copy)


def test_an_index_that_leads_out_of_the_folder_is_refused(start: Path, tmp_path: Path) -> None:
    outside = tmp_path / "model.safetensors"
    save_file({"a": torch.zeros(1)}, outside)
    folder = tmp_path / "folder"
    folder.mkdir()
    for places in ({"a": "../model.safetensors"}, {"a": str(outside)}, {"a": 1}, []):
        write_json(folder / "model.safetensors.index.json", {"weight_map": places})
        with pytest.raises(VerificationError):
            shapes_of(folder)


def test_what_verl_says_against_a_request_is_one_line(verl_python: Path, tmp_path: Path) -> None:
    with pytest.raises(BadUse, match="kit setup verl"):
        ask("check", {"words": []}, tmp_path / "python")
    with pytest.raises(KitError, match="verl refuses: KeyError: 'nothing'") as error:
        ask("nothing", {}, verl_python)
    assert "\n" not in str(error.value)


@pytest.mark.skipif(
    not SOAK, reason="what test_verl_agrees checks, by the command: INSTELLA_SOAK=1"
)
def test_the_command_lets_verl_check_a_stage(
    verl_python: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    recipe = str(ROOT / "recipes" / "instella-3b.yaml")
    words = ["--config", str(ROOT / "config.yaml"), "--recipe", recipe, "engines", "check", "grpo2"]
    assert main([*words, "--python", str(verl_python)]) == 0
    assert capfd.readouterr().out.startswith("grpo2: good: verl 0.9.1 takes ")
