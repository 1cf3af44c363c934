"""Each entry of recipes/published/deviations.yaml names a test; many of them stand here.

A test asserts what this recipe does, or shows the published fault by doing it.
"""

import importlib.util
import math
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pytest
import torch

from instella.canonical import write_npy
from instella.data.adapters.mmlu import FORMS
from instella.data.chat import CHAT_TEMPLATE
from instella.errors import BadUse
from instella.evaluation.measures import MEASURES
from instella.network.init import CUT, standard_deviation
from instella.network.merge import mean_state
from instella.network.rope import rope_table
from instella.recipe.derived import parameter_count
from instella.recipe.graph import build_graph, checkpoints
from instella.recipe.published import Published
from instella.recipe.reader import read_recipe
from instella.recipe.readiness import require_ready
from instella.recipe.settings import Model, Part, Policy, Recipe, Schedule
from instella.rewards.extract import last_boxed
from instella.rewards.grade import CORRECT, WRONG, Grader
from instella.rollout.sample import choose
from instella.training.objectives import (
    masked_logprobs,
    masked_loss,
    next_token_loss,
    next_token_normalizer,
    policy_loss,
)
from instella.training.order import epoch_order
from instella.training.schedule import learning_rate, warmup_steps

ROOT = Path(__file__).resolve().parents[2]
FULL = ROOT / "recipes" / "instella-3b.yaml"
SMALL = Path(__file__).with_name("small.yaml")


def beyond(published: Published, path: str) -> Any:
    """A published setting outside the schema."""
    for group in published.beyond.groups:
        for name, value in (group.values or {}).items():
            if f"{group.within}.{name}".lstrip(".") == path:
                return value
    raise KeyError(path)


# General.


def test_names_and_nodes(recipe: Recipe) -> None:
    repositories = [source.repository or "" for source in recipe.sources.values()]
    assert "SynthLabsAI/Big-Math-RL-Verified" in repositories
    assert "agentica-org/DeepScaleR-Preview-Dataset" in repositories
    assert not any("Intella" in name or "DeepCaler" in name for name in repositories)
    assert recipe.hardware is not None
    assert recipe.hardware.nodes["pretrain_stage1"] * recipe.hardware.accelerators_per_node == 128


def test_licence_of_amd_data(recipe: Recipe, published: Published) -> None:
    assert recipe.sources["gsm8k_synthetic"].licence.startswith("ResearchRAIL")
    assert beyond(published, "licence.weights_and_code") == "ResearchRAIL"
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_published_environments_do_not_agree(published: Published) -> None:
    engines = {
        beyond(published, f"software.{name}.vllm").split(",")[0].split("+")[0]
        for name in ("grpo", "math_sft2", "math_evaluation")
    }
    assert len(engines) == 3
    assert "+cu121" in beyond(published, "software.math_sft2.torch")
    assert "rocm" in beyond(published, "software.grpo.base_image")
    assert beyond(published, "software.pretraining.versions") == "unpinned"


def test_published_flash_attention_variable(published: Published) -> None:
    assert "GPU_ARCH=" in beyond(published, "software.pretraining.flash_attention")


def test_unpinned_sources_stop_a_run(recipe: Recipe, tmp_path: Path) -> None:
    source = replace(recipe.sources["deepmath"], revision=None, lock=None)
    one = replace(recipe, numerics="portable-x86", sources={"deepmath": source})
    with pytest.raises(BadUse, match=r"1 hub sources have no revision or no lock file \(deepmath"):
        require_ready(one, FULL, "local")
    commit = "0123456789abcdef0123456789abcdef01234567"
    pinned = replace(source, revision=commit, lock="deepmath.lock.json")
    file = tmp_path / "recipe.yaml"
    with pytest.raises(BadUse, match="no lock file"):
        require_ready(replace(one, sources={"deepmath": pinned}), file, "local")
    (tmp_path / "deepmath.lock.json").write_text("{}", encoding="utf-8")
    require_ready(replace(one, sources={"deepmath": pinned}), file, "local")


def test_a_misspelt_source_is_refused(tmp_path: Path) -> None:
    text = SMALL.read_text(encoding="utf-8")
    file = tmp_path / "small.yaml"
    file.write_text(text.replace("{source: texts,", "{source: text,", 1), encoding="utf-8")
    with pytest.raises(BadUse, match="unknown source 'text'; did you mean 'texts'"):
        read_recipe(file)


def test_raw_bytes_are_no_npy_file(tmp_path: Path) -> None:
    array = np.arange(12, dtype=np.uint16)
    array.tofile(tmp_path / "input_ids.npy")
    with pytest.raises(ValueError, match="pickled"):
        np.load(tmp_path / "input_ids.npy")
    write_npy(tmp_path / "ours.npy", array)
    assert np.array_equal(np.load(tmp_path / "ours.npy"), array)


# Tokenizer and network.


@pytest.mark.parametrize(("name", "value"), [("eos_id", 50279), ("pad_id", 0)])
def test_swapped_ids_are_refused(name: str, value: int, recipe: Recipe, tmp_path: Path) -> None:
    assert (recipe.tokenizer.eos_id, recipe.tokenizer.pad_id) == (0, 1)
    member = recipe.tokenizer.member or ""
    assert member.endswith("pii-special.json") and "dolma" not in member
    text = FULL.read_text(encoding="utf-8")
    old = f"  {name}: {getattr(recipe.tokenizer, name)}\n"
    assert text.count(old) == 1
    file = tmp_path / "recipe.yaml"
    file.write_text(text.replace(old, f"  {name}: {value}\n"), encoding="utf-8")
    with pytest.raises(BadUse, match=f"tokenizer.{name} is {value}"):
        read_recipe(file)


def test_padded_ids_are_never_sampled(recipe: Recipe, published: Published) -> None:
    entries = int(published.figures.figures["tokenizer_entries"].value)
    assert recipe.model.vocab_size - entries == 24
    logits = torch.zeros(64, recipe.model.vocab_size)
    logits[:, entries:] = 50.0  # the padded rows alone would be chosen
    draws = torch.linspace(0.0, 1.0 - 2**-53, 64, dtype=torch.float64)
    for temperature in (0.0, 1.0):
        ids, _ = choose(logits, draws, temperature, 1.0, entries)
        assert int(ids.max()) < entries


def rendered(turns: list[tuple[str, str]]) -> str:
    """Turns through the chat template, end of text written as ``<E>``."""
    messages = [{"role": role, "content": content} for role, content in turns]
    template = jinja2.Environment().from_string(CHAT_TEMPLATE)
    return template.render(
        messages=messages, bos_token="<E>", eos_token="<E>", add_generation_prompt=False
    )


class Characters:
    """An encoder whose ids are code points, so that rows can be read."""

    eos_id, pad_id = 0, 1

    def encode(self, text: str) -> list[int]:
        return [ord(character) for character in text]


def test_newline_behind_the_last_answer() -> None:
    from instella.data.chat import row_ids
    from instella.data.documents import Message

    turns = [("user", " a "), ("assistant", " b ")]
    ids, mask = row_ids([Message(*turn) for turn in turns], Characters())  # type: ignore[arg-type]
    text = "".join("<E>" if number == 0 else chr(number) for number in ids)
    assert text == "<E><|user|>\na\n<|assistant|>\nb<E>\n"
    assert mask[-1] is False and mask[-2] is True
    assert rendered(turns) == "<E><|user|>\n a \n<|assistant|>\n b <E>"


def test_template_ends_every_answer() -> None:
    turns = [("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")]
    text = rendered(turns)
    assert "b<E>\n<|user|>" in text and text.endswith("d<E>")


def test_the_shape_has_no_default() -> None:
    required = {item.name for item in fields(Model) if item.default is MISSING}
    assert required == {
        "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "vocab_size", "max_position_embeddings",
    }  # fmt: skip


def test_rope_base_is_a_setting(recipe: Recipe) -> None:
    assert recipe.model.rope_theta == 10000.0
    ours, _ = rope_table(64, 80, 10000.0)
    long, _ = rope_table(64, 80, 3691950.0)
    assert torch.equal(ours[:1], long[:1]) and not torch.allclose(ours[63], long[63])


def test_positions_serve_the_longest_stage(recipe: Recipe, published: Published) -> None:
    assert recipe.model.max_position_embeddings == 32768
    assert beyond(published, "model.max_position_embeddings") == 4096
    assert beyond(published, "model.math_rope_theta") == "unknown"
    shorter = replace(recipe.model, max_position_embeddings=4096)
    assert parameter_count(shorter) == parameter_count(recipe.model)


def test_cut_at_three_sigma() -> None:
    """Variance of a normal cut at +-c is 1 - 2 c phi(c) / (2 Phi(c) - 1)."""
    density = math.exp(-CUT * CUT / 2) / math.sqrt(2 * math.pi)
    inside = math.erf(CUT / math.sqrt(2))
    assert CUT == 3.0
    assert math.sqrt(1 - 2 * CUT * density / inside) == pytest.approx(0.98658, abs=5e-6)


def test_down_projection_uses_its_input_width(recipe: Recipe) -> None:
    found = standard_deviation("model.layers.0.mlp.down_proj.weight", recipe.model)
    assert found == pytest.approx(1 / math.sqrt(2 * 6912))
    other = standard_deviation("model.layers.0.self_attn.o_proj.weight", recipe.model)
    assert other == pytest.approx(1 / math.sqrt(2 * 2560)) and found / other < 0.61


# Pretraining.


def test_stage1_tokens(recipe: Recipe, published: Published) -> None:
    tokens = recipe.stages.pretrain_stage1.data.max_tokens
    assert tokens == published.figures.figures["stage1_tokens_printed"].value
    paper = published.figures.figures["stage1_tokens_paper"].value
    assert f"{tokens / 1e12:.2f}T" == "4.07T" and paper - tokens == 5e9
    assert int((paper - tokens) // 4194304) == 1192


def test_open_web_math_is_in(recipe: Recipe) -> None:
    parts = recipe.stages.pretrain_stage1.data.parts
    assert [part.source for part in parts].count("olmoe_open_web_math") == 1
    assert all(part.fraction == 1.0 and part.repeat == 1 for part in parts)


def test_packing_is_one_stream(recipe: Recipe) -> None:
    """All parts of a mixture meet in one stage, whose settings hold no list of token files."""
    stage = build_graph(recipe)["tokens_pretrain_stage1"]
    sources = {name for name in stage.inputs.values() if name.startswith("source_olmoe_")}
    assert stage.kind == "tokens_text" and len(sources) == 7
    assert {part.source for part in stage.settings["data"].parts} == {
        name.removeprefix("source_") for name in sources
    }


def test_loss_sums_one_term_fewer_than_it_divides_by(recipe: Recipe) -> None:
    assert recipe.stages.pretrain_stage1.normalizer == "tokens"
    rows, length, entries = 2, 8, 5
    logits = torch.zeros(rows, length, entries)
    ids = torch.arange(rows * length).reshape(rows, length) % entries
    losses = {
        name: float(next_token_loss(logits, ids, next_token_normalizer(rows, length, name)))
        for name in ("tokens", "targets")
    }
    assert losses["targets"] == pytest.approx(math.log(entries), rel=1e-6)
    assert losses["tokens"] == pytest.approx(math.log(entries) * 7 / 8, rel=1e-6)


def test_first_update_of_each_style(recipe: Recipe) -> None:
    sft, dpo = recipe.stages.sft.training, recipe.stages.dpo.training
    assert (sft.schedule.style, dpo.schedule.style) == ("olmo", "huggingface")
    assert learning_rate(dpo.schedule, 5e-7, 0, 2867) == 0.0
    assert learning_rate(dpo.schedule, 5e-7, 1, 2867) == pytest.approx(5e-7 / 286)
    # 10 % of the peak and one step of 500 further
    first = learning_rate(sft.schedule, 1e-5, 0, 50937)
    assert first == pytest.approx(1e-6 + 9e-6 / 500)


def test_epoch_one_is_epoch_zero_of_the_next_seed() -> None:
    assert np.array_equal(epoch_order(1000, 6198, 1), epoch_order(1000, 6199, 0))
    assert not np.array_equal(epoch_order(1000, 6198, 0), epoch_order(1000, 6198, 1))


def test_shares_of_stage_2(recipe: Recipe) -> None:
    shares = {part.source: part.fraction for part in recipe.stages.pretrain_stage2.data.parts}
    assert shares["dolmino_pes2o"] == 0.053 and shares["dolmino_flan"] == 0.5
    assert shares["dolmino_dclm"] == 0.0323 and shares["python_edu"] == 0.5
    assert sum(share < 1.0 for share in shares.values()) == 4


def test_codesearchnet_is_left_out(recipe: Recipe) -> None:
    files = recipe.sources["dolmino_math"].files
    assert files and not any("codesearchnet" in pattern for pattern in files)


def test_mean_is_rounded_once() -> None:
    """A sum in float32 loses the small terms; the mean here is that of float64, rounded."""
    values = [1.0, 2.0**-24, 2.0**-24]
    states = [{"w": torch.tensor([value], dtype=torch.float32)} for value in values]
    single = (torch.tensor([1.0]) + 2.0**-24 + 2.0**-24) / 3
    found = mean_state(states)["w"]
    assert found.dtype == torch.float32
    assert float(found) == float(np.float32(sum(values) / 3))
    assert float(found) != float(single)


# Instruction tuning and preferences.


def test_local_and_global_label_normalizers_differ() -> None:
    """Two ranks with 1 and 3 labels: the mean of their means is not the mean of all labels."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(2, 5, 7, generator=generator)
    ids = torch.randint(0, 7, (2, 5), generator=generator)
    mask = torch.tensor([[False, True, False, False, False], [False, True, True, True, False]])
    ranks = [
        masked_loss(logits[row : row + 1], ids[row : row + 1], mask[row : row + 1], labels)
        for row, labels in enumerate((1.0, 3.0))
    ]
    local = float(sum(ranks)) / 2
    whole = float(masked_loss(logits, ids, mask, 4.0))
    parts = [
        float(masked_loss(logits[row : row + 1], ids[row : row + 1], mask[row : row + 1], 4.0))
        for row in range(2)
    ]
    assert sum(parts) == pytest.approx(whole, rel=1e-6)
    assert abs(local - whole) > 0.05


def test_sft_parts(recipe: Recipe) -> None:
    parts = {part.source: part for part in recipe.stages.sft.data.parts}
    published = {"smoltalk", "openmath_1m", "tulu3_personas", "o1_journey", "mmlu_auxiliary"}
    assert published == set(parts)
    journey: Part = parts["o1_journey"]
    assert journey.repeat == 10
    assert len(FORMS) == len({form.instruction for form in FORMS}) == 11


def test_sft_fits_its_nodes(recipe: Recipe, published: Published) -> None:
    hardware = recipe.hardware
    assert hardware is not None
    for name in ("sft", "math_sft1"):
        training = getattr(recipe.stages, name).training
        ranks = hardware.nodes[name] * hardware.accelerators_per_node
        assert ranks * training.micro_batch == training.global_batch
        assert beyond(published, f"machine.{name}_gpus") == "unknown"


def test_dpo_batch(recipe: Recipe, published: Published) -> None:
    figures = {name: item.value for name, item in published.figures.figures.items()}
    training = recipe.stages.dpo.training
    per_process = training.micro_batch * figures["dpo_accumulation"]
    assert per_process * figures["dpo_processes_readme"] == training.global_batch == 128
    assert per_process * figures["dpo_processes_comment"] == 512
    assert (figures["dpo_rows"] // 128, figures["dpo_rows"] // 512) == (2867, 716)


def test_dpo_rows(recipe: Recipe, published: Published) -> None:
    figures = published.figures.figures
    later, earlier = figures["dpo_rows"].value, figures["dpo_rows_earlier"].value
    assert earlier - later == 11360
    assert recipe.stages.dpo.data.parts[0].max_documents is None
    assert recipe.stages.dpo.training.max_steps is None


def test_a_pair_without_labels_is_refused() -> None:
    logprobs = torch.full((2, 3), -1.0)
    mask = torch.tensor([[False, True, True, True], [False, False, False, False]])
    labels = mask[:, 1:]
    assert math.isnan(float((logprobs * labels).sum(1)[1] / labels.sum(1)[1]))
    with pytest.raises(BadUse, match="row 1 of the batch has no label"):
        masked_logprobs(logprobs, mask, average=True)


def test_schedule_counts_updates() -> None:
    """Counted eight times, the rate at the last of 2,867 updates is still seven eighths."""
    schedule = Schedule(kind="linear", style="huggingface", warmup_ratio=0.1)
    assert warmup_steps(schedule, 2867) == 286
    assert learning_rate(schedule, 1.0, 2866, 2867) < 1e-3
    assert learning_rate(schedule, 1.0, 2866, 8 * 2867) > 0.9


# Math.


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "twice.yaml"
    text = SMALL.read_text(encoding="utf-8")
    file.write_text(f"{text}name: again\n", encoding="utf-8")
    with pytest.raises(BadUse, match="the key 'name' stands twice"):
        read_recipe(file)


def test_both_subsets_are_read(recipe: Recipe) -> None:
    files = recipe.sources["am_deepseek"].files
    assert all(any(name in pattern for pattern in files) for name in ("0.5M", "0.9M"))
    assert {part.source for part in recipe.stages.math_sft2.data.parts} == {"am_deepseek"}


def test_rows_of_math_sft2(recipe: Recipe, published: Published) -> None:
    rows = published.figures.figures["math_sft2_rows"].value
    assert rows == 1.3e6 and "1.4M" in (recipe.sources["am_deepseek"].repository or "")
    assert "langdetect" in beyond(published, "math_sft2.filter")


def test_sum_loss_is_scaled(recipe: Recipe) -> None:
    stage = recipe.stages.math_sft2
    assert stage.reduce_loss == "sum" and stage.loss_scale == 1 / 128
    assert recipe.stages.sft.reduce_loss == recipe.stages.math_sft1.reduce_loss == "mean"


def test_reward_ignores_format() -> None:
    right = r"no tags at all, \boxed{12}"
    tagged = r"<think>so</think><answer>\boxed{13}</answer>"
    with Grader() as grader:
        assert grader.verdict("12", last_boxed(right)).label == CORRECT
        assert grader.verdict("12", last_boxed(tagged)).label == WRONG


def test_grpo1_follows_the_script(recipe: Recipe, published: Published) -> None:
    first, second = recipe.stages.grpo1, recipe.stages.grpo2
    same = ("prompts_per_step", "clip_low", "clip_high", "dual_clip", "kl_coefficient", "top_p")
    assert all(getattr(first, name) == getattr(second, name) for name in same)
    assert first.training.optimizer == second.training.optimizer
    assert first.training.global_batch / first.samples_per_prompt == 32
    assert beyond(published, "grpo.stage1_learning_rate") == "unknown"


def test_answer_lengths(recipe: Recipe) -> None:
    stages = recipe.stages
    lengths = [getattr(stages, name).max_response_tokens for name in ("grpo1", "grpo2", "grpo3")]
    assert lengths == [8192, 16000, 16000]
    assert (8192 - 8000, 16384 - 16000) == (192, 384)


def test_deepmath_rows(recipe: Recipe, published: Published) -> None:
    figures = published.figures.figures
    rows, later = figures["grpo2_rows"].value, figures["grpo2_rows_later"].value
    assert rows - later == 88
    grpo = recipe.stages.grpo2
    assert grpo.training.max_steps is not None
    assert grpo.training.max_steps * grpo.prompts_per_step == 76800 < later < rows
    assert grpo.data.parts[0].max_documents is None


def test_only_the_loss_term_of_kl_acts(recipe: Recipe, published: Published) -> None:
    assert recipe.stages.grpo2.kl_coefficient == 0.001
    assert beyond(published, "grpo.kl_in_reward") == {"enabled": False, "coefficient": 0.0001}
    names = {item.name for item in fields(Policy)}
    assert {name for name in names if "kl" in name} == {"kl_coefficient"}
    ones = torch.ones(1, 4)
    figures = {
        coefficient: policy_loss(
            -ones, -ones, -2 * ones, torch.ones(1), ones.bool(), clip_low=0.2, clip_high=0.2,
            dual_clip=3.0, kl_coefficient=coefficient, normalizer=4.0,
        ).figures
        for coefficient in (0.0, 0.001)
    }  # fmt: skip
    assert figures[0.0]["policy_loss"] == figures[0.001]["policy_loss"]
    gain = figures[0.001]["loss"] - figures[0.0]["loss"]
    assert gain == pytest.approx(0.001 * (math.exp(-1.0) + 1.0 - 1.0), rel=1e-4)


def test_grpo_stages_have_a_module(recipe: Recipe) -> None:
    graph = build_graph(recipe)
    for name in ("grpo1", "grpo2", "grpo3"):
        assert graph[name].kind == "policy"
        assert importlib.util.find_spec(f"instella.stages.{graph[name].kind}") is not None


def test_synthetic_split(recipe: Recipe, published: Published) -> None:
    assert any("119K" in pattern for pattern in recipe.sources["gsm8k_synthetic"].files)
    assert beyond(published, "gsm8k_synthetic.selection") == "unknown"
    figures = published.figures.figures
    assert figures["gsm8k_synthetic_rows"].value < figures["gsm8k_synthetic_rows_full"].value / 11


# Evaluation.


def test_instruct_mean_holds_mt_bench(published: Published) -> None:
    table = published.results.tables["instruct"]
    row, printed = table.scores["amd/Instella-3B-Instruct"], table.averages
    assert printed is not None and "MT-Bench" in table.average_of and row["MT-Bench"] == 7.23
    mean = sum(row.values()) / len(row)
    assert round(mean, 2) == printed["amd/Instella-3B-Instruct"] == 44.87
    without = [score for name, score in row.items() if name != "MT-Bench"]
    assert round(sum(without) / len(without), 2) == 49.57
    assert round((sum(without) + 72.3) / 9, 2) == 52.1


def test_math_scores_are_null(published: Published) -> None:
    table = published.results.tables["math"]
    assert len(table.scores) == 2
    assert all(score is None for row in table.scores.values() for score in row.values())
    assert len(table.scores["amd/Instella-3B-Math"]) == 12
    assert published.figures.figures["grpo_gain_printed"].value == 10.81


def test_deepscaler_gains_differ(published: Published) -> None:
    averages = published.results.tables["math_peers_deepscaler"].averages or {}
    gain = averages["agentica-org/DeepScaleR-1.5B-Preview"]
    gain -= averages["DeepSeek-R1-Distill-Qwen-1.5B"]
    assert gain == pytest.approx(8.1)
    assert published.figures.figures["deepscaler_gain_printed"].value == 6.22


def test_graders_of_peers_disagree(published: Published) -> None:
    tables = published.results.tables
    left = tables["math_peers_deepscaler"].scores["DeepSeek-R1-Distill-Qwen-1.5B"]
    right = tables["math_peers_deepmath"].scores["DeepSeek-R1-Distill-Qwen-1.5B"]
    assert right["Minerva"] - left["Minerva"] == pytest.approx(10.1)
    assert right["OlympiadBench"] - left["OlympiadBench"] == pytest.approx(9.8)
    peer = "agentica-org/DeepScaleR-1.5B-Preview"
    wide = tables["math_peers_deepmath"].scores[peer]["Minerva"]
    assert wide - tables["math_peers_deepscaler"].scores[peer]["Minerva"] == pytest.approx(12.0)


def test_math_evaluation_length(recipe: Recipe, published: Published) -> None:
    suite = published.protocols.suites["math"]
    for name in ("gsm8k", "math500"):
        item = recipe.evaluation.sets[name]
        assert item.max_new_tokens == (suite.options or {})["max_response_tokens"] == 28000
        assert item.samples == (suite.options or {})["samples"]


def test_a_misspelt_set_is_refused(tmp_path: Path) -> None:
    text = FULL.read_text(encoding="utf-8")
    old = "    grpo3: [gsm8k, math500]\n"
    assert text.count(old) == 1
    file = tmp_path / "recipe.yaml"
    file.write_text(text.replace(old, "    grpo3: [gsm8k, math50]\n"), encoding="utf-8")
    with pytest.raises(BadUse, match="unknown set 'math50'; did you mean 'math500'"):
        read_recipe(file)


def test_every_checkpoint_is_measured(recipe: Recipe) -> None:
    graph = build_graph(recipe)
    for name in checkpoints(recipe):
        assert graph[f"evaluate_{name}"].inputs["model"] == name
        assert recipe.evaluation.suites[name]


def test_bbh_protocol(published: Published) -> None:
    for suite in ("base", "instruct"):
        task = published.protocols.suites[suite].tasks["BBH"]
        assert (task.shots, task.metric) == (3, "exact_match")


def test_measured_otherwise(recipe: Recipe, published: Published) -> None:
    kinds = {name: item.kind for name, item in recipe.evaluation.sets.items()}
    assert set(kinds.values()) == {"choice", "problem"} and set(kinds.values()) <= set(MEASURES)
    shots = {name: task.shots for name, task in published.protocols.suites["base"].tasks.items()}
    assert (shots["MMLU"], shots["GSM8K"]) == (5, 8) and kinds["gsm8k"] == "problem"
    measured = {name.replace("_", "").lower() for name in kinds}
    for suite, expected in (("base", 9), ("math", 2)):
        names = published.protocols.suites[suite].tasks
        found = {name for name in names if name.replace("-", "").lower() in measured}
        assert len(found) == expected, found
