"""Sampled answers of held-out problems by vLLM: the mapping, and with ``INSTELLA_SOAK=1`` the answers."""

import hashlib
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import HEADS_OF_80, QUESTIONS, SOAK, checkpoint

from instella.artifacts.code import CodeIndex
from instella.artifacts.identity import PACKAGE_FOLDER
from instella.artifacts.job import Job
from instella.canonical import read_jsonl, write_jsonl
from instella.data.tokenizer import Encoder
from instella.engines.elsewhere import python_of
from instella.engines.vllm.ask import request_of
from instella.engines.vllm.sampled import VllmSampler
from instella.errors import BadUse
from instella.progress import Reporter
from instella.recipe.graph import build_graph
from instella.recipe.settings import HeldOutSet, Part, Recipe
from instella.rollout.streams import seed_of
from instella.stages import evaluate

PROMPTS = [[3, 4], [5, 6, 7], [8]]
STREAM = [("evaluation", "0", key) for key in "abc"]
PROBLEMS = HeldOutSet(
    "problem", Part("source", "adapter"), sequence_length=96, max_new_tokens=12, samples=3
)
soak = pytest.mark.skipif(not SOAK, reason="2.7 GB; INSTELLA_SOAK=1 runs it (docs/engines.md)")


@pytest.fixture
def sampler(start: Path, encoder: Encoder) -> VllmSampler:
    return VllmSampler(start, encoder, Path("/nowhere/python"))


@pytest.fixture(scope="module")
def wide(start: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("wide") / "model", HEADS_OF_80, 1, start)


def test_a_request_holds_each_answer_with_a_seed_of_its_own(sampler: VllmSampler) -> None:
    request = request_of(sampler.question(PROMPTS, STREAM, PROBLEMS))
    assert request["prompts"] == [ids for ids in PROMPTS for _ in range(3)]
    sampling = request["sampling"]
    seeds = sampling.pop("seeds")
    assert sampling == {
        "temperature": PROBLEMS.temperature, "top_p": PROBLEMS.top_p,
        "vocabulary": sampler.encoder.vocab_size,
    }  # fmt: skip
    assert request["max_new_tokens"] == 12 and request["length"] == 3 + 12
    assert request["end"] == sampler.encoder.eos_id
    assert json.loads(json.dumps(request)) == request
    assert len(set(seeds)) == 9 and all(0 <= seed < 2**63 for seed in seeds)
    # It hangs on the item's own name and the sample's number, and on no other item.
    fewer = sampler.question(PROMPTS[1:], STREAM[1:], replace(PROBLEMS, samples=2))
    assert list(fewer.sampling.seeds) == [*seeds[3:5], *seeds[6:8]]
    assert seeds[4] == seed_of(["evaluation", "0", "b", 1])


def test_answers_come_back_in_the_order_of_problems_and_samples(
    sampler: VllmSampler, tmp_path: Path
) -> None:
    """By a stand-in for vLLM's Python that answers each request with its number."""
    end = sampler.encoder.eos_id
    texts = [[20 + n, *[end] * (n % 2)] for n in range(9)]
    row = [{"ids": ids, "logprobs": [-0.5] * len(ids)} for ids in texts]
    python = tmp_path / "python"
    reply = json.dumps([row])
    python.write_text(f"#!/bin/sh\ncat > {tmp_path}/asked\necho noise\necho '{reply}'\n")
    python.chmod(0o755)
    groups = replace(sampler, python=python)(PROMPTS, STREAM, PROBLEMS)
    assert [[response.ids[0] for response in group] for group in groups] == [
        [20, 21, 22], [23, 24, 25], [26, 27, 28],
    ]  # fmt: skip
    assert [response.finished for group in groups for response in group] == [
        bool(n % 2) for n in range(9)
    ]
    assert groups[0][1].logprobs.tolist() == [-0.5, -0.5]
    assert len(json.loads((tmp_path / "asked").read_text())["prompts"]) == 9


def test_no_problem_asks_nobody(sampler: VllmSampler) -> None:
    assert sampler([], [], PROBLEMS) == []


def test_an_environment_counts_only_with_the_lock_of_this_tree(tmp_path: Path) -> None:
    lock = tmp_path / "requirements/environments/some.lock"
    lock.parent.mkdir(parents=True)
    lock.write_text("a==1\n")
    folder = tmp_path / ".venvs/some"
    folder.mkdir(parents=True)
    with pytest.raises(BadUse, match=r"make it with \./kit setup some"):
        python_of("some", tmp_path)
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()
    (folder / "some.stamp").write_text(f"{digest}  -\n")
    assert python_of("some", tmp_path) == folder / "bin/python"
    lock.write_text("a==2\n")
    with pytest.raises(BadUse, match="is not set up from"):
        python_of("some", tmp_path)


def test_the_code_that_runs_in_vllms_environment_counts_for_the_stage() -> None:
    closure = CodeIndex(PACKAGE_FOLDER).closure("evaluate")
    engine = "instella.engines.vllm"
    wanted = {f"{engine}.{name}" for name in ("ask", "inside", "model", "registration", "sampled")}
    plugin = "instella/engines/vllm/plugin/instella_vllm.dist-info/entry_points.txt"
    assert wanted | {plugin, "instella.engines.elsewhere"} <= set(closure)


def test_only_stages_that_sample_take_part(small: Recipe) -> None:
    chosen = replace(small, evaluation=replace(small.evaluation, rollout="vllm"))
    sets = small.evaluation.sets
    graph = build_graph(chosen)
    sampling = {
        f"evaluate_{name}"
        for name, suite in small.evaluation.suites.items()
        if any(sets[item].kind == "problem" for item in suite)
    }
    assert {name for name, stage in graph.items() if stage.environments} == sampling
    assert not any(stage.environments for stage in build_graph(small).values())
    assert sampling and graph["evaluate_grpo3"].environments == ("vllm",)


def job_of(output: Path, start: Path, rollout: str, sets: dict[str, HeldOutSet]) -> Job:
    heldout = output / "heldout"
    heldout.mkdir(parents=True)
    items = [
        {"key": f"q{n}", "question": question, "answer": str(n)}
        for n, question in enumerate(QUESTIONS)
    ]
    write_jsonl(heldout / "sums.jsonl", items)
    made = output / "made"
    made.mkdir()
    settings = {"sets": sets, "seed": 3, "bootstrap": 100, "prompt_suffix": "", "rollout": rollout}
    return Job(
        stage="evaluate_grpo3", settings=settings, inputs={"model": start, "heldout": heldout},
        output=made, scratch=output, downloads=output, recipe_folder=output, numerics="native-cpu",
        ranks=1, report=Reporter("stage", stream=io.StringIO()),
    )  # fmt: skip


def test_without_the_environment_the_stage_says_what_to_do(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("instella.engines.elsewhere.python_of.__defaults__", (tmp_path,))
    (tmp_path / "requirements/environments").mkdir(parents=True)
    with pytest.raises(BadUse, match=r"make it with \./kit setup vllm"):
        evaluate.run(job_of(tmp_path / "job", start, "vllm", {"sums": PROBLEMS}))


@soak
@pytest.mark.timeout(3600)
def test_the_stage_gives_the_same_records_again(
    vllm_python: Path, wide: Path, tmp_path: Path
) -> None:
    made = []
    for name, rollout in (("one", "vllm"), ("two", "vllm"), ("own", "own")):
        job = job_of(tmp_path / name, wide, rollout, {"sums": PROBLEMS})
        evaluate.run(job)
        made.append(read_jsonl(job.output / "sums.jsonl"))
    one, two, own = made
    assert one == two
    assert [record["key"] for record in one] == [record["key"] for record in own]
    assert [set(record) for record in one] == [set(record) for record in own]
    assert all(len(set(record["samples"])) > 1 for record in one)


@soak
@pytest.mark.timeout(3600)
def test_an_answer_hangs_on_no_other_and_stays_in_the_vocabulary(
    vllm_python: Path, wide: Path, encoder: Encoder
) -> None:
    sampler = VllmSampler(wide, encoder, vllm_python)
    hot = replace(PROBLEMS, temperature=2.0, top_p=1.0, max_new_tokens=32)
    whole = sampler(PROMPTS, STREAM, hot)
    alone = sampler(PROMPTS[1:2], STREAM[1:2], hot)
    assert [response.ids for response in alone[0]] == [response.ids for response in whole[1]]
    ids = [token for group in whole for response in group for token in response.ids]
    # The head has rows beyond it, which an untrained network would choose too.
    assert max(ids) < encoder.vocab_size < HEADS_OF_80.vocab_size
