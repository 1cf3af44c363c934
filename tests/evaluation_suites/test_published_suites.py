"""The protocol files: complete, in step with evaluation.yaml, honest about what is unknown."""

from dataclasses import replace

import pytest
from suites_helpers import FOLDER

from instella.errors import BadUse
from instella.evaluation.suites import (
    SUITES,
    command_line,
    faults,
    read_suites,
    task_of,
    unknowns,
)


def test_every_task_of_the_tables_has_a_protocol(suites, published):
    counts = {name: len(suite.tasks) for name, suite in suites.items()}
    assert counts == {"base": 11, "instruct": 9, "math": 8, "ttt_bench": 4}
    for table in ("base", "instruct", "math"):
        for benchmark in published.protocols.suites[table].tasks:
            assert task_of(suites, table, benchmark) is not None, benchmark
    assert task_of(suites, "long", "NQ") is None


def test_the_files_agree_with_evaluation_yaml_and_the_printed_scores(suites, published):
    assert faults(suites, published) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"shots": 4}, "shots is 4, evaluation.yaml says 8"),
        ({"metric": "acc_raw"}, "metric is 'acc_raw'"),
        ({"task": "gsm8k"}, "task is 'gsm8k'"),
        ({"items": 1318}, "is no whole number of 1318 items"),
        ({"items": None}, "counted, but without a number of items"),
        ({"sources": ("XX",)}, "source 'XX' has no legend"),
    ],
)
def test_a_changed_protocol_is_noticed(suites, published, change, said):
    base = suites["base"]
    tasks = {**base.tasks, "GSM8K": replace(base.tasks["GSM8K"], **change)}
    found = faults({**suites, "base": replace(base, tasks=tasks)}, published)
    assert any(said in line for line in found), found


def test_a_missing_task_is_noticed(suites, published):
    base = suites["base"]
    tasks = {name: task for name, task in base.tasks.items() if name != "BBH"}
    found = faults({**suites, "base": replace(base, tasks=tasks)}, published)
    assert found == ["suites: base: no protocol of BBH"]


def test_what_nobody_published_is_unknown(suites):
    """No revision of any data set is pinned in public, and no seed of the math sampling."""
    for suite in suites.values():
        for benchmark, task in suite.tasks.items():
            assert "revision" in unknowns(suite, task), benchmark
    assert "seed" in unknowns(suites["math"], suites["math"].tasks["AIME24"])
    assert "limit" in unknowns(suites["base"], suites["base"].tasks["MMLU"])
    assert "limit" not in unknowns(suites["base"], suites["base"].tasks["ARC-Easy"])


def test_the_math_protocol(suites):
    for name in ("math", "ttt_bench"):
        sampling = suites[name].generation
        wanted = {"samples": 16, "temperature": 0.6, "top_p": 0.95, "max_response_tokens": 28000}
        assert {key: sampling[key] for key in wanted} == wanted
        assert {task.metric for task in suites[name].tasks.values()} == {"pass@1"}
    sizes = [task.items for name in ("math", "ttt_bench") for task in suites[name].tasks.values()]
    assert sizes == [30, 30, 500, 83, 272, 675, 1319, 198, 108, 100, 90, 120]


def test_only_mt_bench_has_a_scale_of_its_own(suites):
    odd = {b: t.scale for s in suites.values() for b, t in s.tasks.items() if t.scale != (0, 100)}
    assert odd == {"MT-Bench": (1, 10)}


def test_the_commands_are_rendered():
    suites = read_suites(FOLDER)
    values = {"model": "amd/Instella-3B", "output": "a b", "batch": "auto", "model_args": "{}"}
    assert command_line(suites["base"], ("ARC-Easy", "MMLU"), values) == [
        "olmes", "--model", "amd/Instella-3B", "--task", "arc_easy::olmo1", "mmlu:mc::olmes",
        "--batch-size", "auto", "--output-dir", "a b", "--model-args", "{}",
    ]  # fmt: skip
    assert command_line(suites["ttt_bench"], ("TTT-Bench oTTT",), values)[4:6] == [
        "--datasets", "ttt_bench_ottt",
    ]  # fmt: skip
    with pytest.raises(BadUse, match="GSM9K: no task of the suite"):
        command_line(suites["base"], ("GSM9K",), values)
    with pytest.raises(BadUse, match="give a value for output"):
        command_line(suites["math"], ("AIME24",), {"model": "m"})


def test_a_scale_that_is_none_is_refused(tmp_path):
    folder = tmp_path / "suites"
    folder.mkdir()
    for name in SUITES:
        text = (FOLDER / "suites" / f"{name}.yaml").read_text()
        (folder / f"{name}.yaml").write_text(text.replace("scale: [1, 10]", "scale: [10, 1]"))
    with pytest.raises(BadUse, match="MT-Bench: scale has to be"):
        read_suites(tmp_path)
