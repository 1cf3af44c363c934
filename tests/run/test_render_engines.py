"""A finished run's GRPO stage as verl would take it."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from run_helpers import Run

from instella.canonical import read_jsonl
from instella.prove.processes import instella

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


def test_a_finished_runs_stage_is_rendered_from_its_own_artifacts(
    nano_run: Run, tmp_path: Path
) -> None:
    output = tmp_path / "rendered"
    done = instella(nano_run.folder, "engines", "render", "grpo2", "--output", str(output))
    assert done.code == 0, done.err
    assert sorted(path.name for path in output.iterdir()) == [
        "environment.sh", "overrides.txt", "run.sh", "train.parquet", "validation.parquet",
    ]  # fmt: skip
    policy = nano_run.graph()["grpo2"].settings["policy"]
    rows = pq.read_table(output / "train.parquet").to_pylist()
    steps = read_jsonl(nano_run.results / "grpo2" / "steps.jsonl")
    assert len(rows) == len(steps) * policy.prompts_per_step
    asked = {row["key"]: row for row in read_jsonl(nano_run.results / "tokens_grpo2/prompts.jsonl")}
    for row in rows:
        prompt = asked[row["extra_info"]["key"]]
        assert prompt["question"] in row["prompt"][0]["content"]
        assert row["reward_model"]["ground_truth"] == prompt["answer"]
    held = read_jsonl(nano_run.results / "heldout" / "sums.jsonl")
    assert pq.read_table(output / "validation.parquet").num_rows == len(held)
