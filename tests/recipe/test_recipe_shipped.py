"""The shipped recipes read, agree with the published figures, and share one graph."""

import dataclasses
import re
from pathlib import Path

import pytest

from instella.artifacts.code import CodeIndex
from instella.data.adapter_names import ADAPTER_NAMES
from instella.data.adapters import ADAPTERS
from instella.data.packing import split_options
from instella.errors import BadUse
from instella.recipe.check_data import parts_of
from instella.recipe.derived import check_tokens, parameter_count, trained_tokens
from instella.recipe.graph import Stage, build_graph
from instella.recipe.reader import read_recipe

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted((ROOT / "recipes").glob("*.yaml"))
FULL = ROOT / "recipes" / "instella-3b.yaml"
SMALL = Path(__file__).with_name("small.yaml")


@pytest.mark.parametrize("path", SHIPPED, ids=[path.name for path in SHIPPED])
def test_every_shipped_recipe_reads(path: Path) -> None:
    recipe = read_recipe(path)
    assert recipe.name == path.stem
    check_tokens(recipe)
    graph = build_graph(recipe)
    for name, stage in graph.items():
        earlier = list(graph)[: list(graph).index(name)]
        assert set(stage.inputs.values()) <= set(earlier), name


def test_the_adapter_names_are_those_of_the_adapters() -> None:
    assert sorted(ADAPTER_NAMES) == sorted(ADAPTERS)


@pytest.mark.parametrize("path", SHIPPED, ids=[path.name for path in SHIPPED])
def test_every_adapter_takes_the_options_it_is_given(path: Path, tmp_path: Path) -> None:
    """Adapters check their options when called, before they touch the data."""
    for place, part in parts_of(read_recipe(path)):
        seen, _ = split_options(part)
        assert ADAPTERS[part.adapter](seen, tmp_path) is not None, place


def test_parameters_and_tokens_are_the_published_ones() -> None:
    recipe = read_recipe(FULL)
    assert parameter_count(recipe.model) == 3_112_675_840
    assert trained_tokens(recipe.stages.pretrain_stage2) == 57_575_211_008
    stage1 = recipe.stages.pretrain_stage1.training
    assert stage1.global_batch * recipe.stages.pretrain_stage1.data.sequence_length == 4_194_304


def test_steps_beyond_the_tokens_are_refused() -> None:
    recipe = read_recipe(FULL)
    stage = recipe.stages.pretrain_stage2
    training = dataclasses.replace(stage.training, max_steps=13728)
    stages = dataclasses.replace(
        recipe.stages, pretrain_stage2=dataclasses.replace(stage, training=training)
    )
    with pytest.raises(BadUse, match="57579405312 tokens"):
        check_tokens(dataclasses.replace(recipe, stages=stages))


def shape(path: Path) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Kind and inputs of each stage, apart from sources and from the number of seeds."""

    def inputs(stage: Stage) -> tuple[str, ...]:
        roles = {re.sub(r"seed\d+", "seed", role) for role in stage.inputs}
        return tuple(sorted(role for role in roles if not role.startswith("source_")))

    return {
        re.sub(r"seed\d+", "seed", name): (stage.kind, inputs(stage))
        for name, stage in build_graph(read_recipe(path)).items()
        if stage.kind != "source"
    }


@pytest.mark.parametrize("path", [*SHIPPED, SMALL], ids=lambda path: path.name)
def test_the_graph_is_the_same_apart_from_sources(path: Path) -> None:
    assert shape(path) == shape(FULL)


@pytest.mark.parametrize("path", SHIPPED, ids=[path.name for path in SHIPPED])
def test_every_recipe_runs_the_same_stage_code(path: Path) -> None:
    """Stage by stage, seeds and sources aside: the same kind, so the same code hash."""
    index = CodeIndex(ROOT / "instella")

    def codes(recipe_file: Path) -> dict[str, tuple[str, str]]:
        return {
            re.sub(r"seed\d+", "seed", name): (stage.kind, index.code_hash(stage.kind))
            for name, stage in build_graph(read_recipe(recipe_file)).items()
            if stage.kind != "source"
        }

    full = codes(FULL)
    assert codes(path) == full
    assert len({code for _, code in full.values()}) == len({kind for kind, _ in full.values()})


def test_machines_are_no_part_of_a_stage() -> None:
    recipe = read_recipe(FULL)
    assert recipe.hardware is not None
    other = dataclasses.replace(
        recipe, published=None, hardware=dataclasses.replace(recipe.hardware, power_watts=1.0)
    )
    assert build_graph(other) == build_graph(recipe)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("    grpo3: 4\n", "    grpo4: 4\n", "hardware.nodes.grpo4 is not a training stage"),
        ("    grpo3: 4\n", "    grpo3: 0\n", "hardware.nodes.grpo3 is 0, too small"),
    ],
)
def test_machines_of_no_stage_are_refused(old: str, new: str, words: str, tmp_path: Path) -> None:
    text = FULL.read_text(encoding="utf-8")
    assert text.count(old) == 1
    file = tmp_path / "recipe.yaml"
    file.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(BadUse, match=words):
        read_recipe(file)
