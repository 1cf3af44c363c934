"""What is written for verl: the golden configuration, its refusals, options, data."""

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from conftest import QUESTIONS, ROOT, STAGES, SUFFIX

from instella.canonical import read_jsonl, write_jsonl
from instella.cli import main
from instella.data.tokenizer import Encoder
from instella.engines.verl.configuration import Place, overrides
from instella.engines.verl.launch import render
from instella.engines.verl.options import SET_BY_VERL, VLLM_ARGUMENTS, Options, read_options
from instella.engines.verl.prompts import order_of, read_questions, template_of
from instella.engines.verl.words import as_words
from instella.errors import BadUse, VerificationError
from instella.recipe.settings import Recipe
from instella.wheels import locked_hashes

GOLDEN = Path(__file__).with_name("golden")
NODES = {"grpo1": 2, "grpo2": 4, "grpo3": 4}


def place(stage: str) -> Place:
    return Place(Path("/rendered") / stage, Path("/results/start of") / stage, NODES[stage], 8)


@pytest.mark.parametrize("stage", STAGES)
def test_the_published_stages_are_rendered_as_recorded(full: Recipe, stage: str) -> None:
    made = render(full, stage, Options(), place(stage), Path("/kit"))
    for name, text in made.files.items():
        assert text == (GOLDEN / stage / name).read_text(encoding="utf-8"), name


def test_the_script_is_one_that_bash_reads(full: Recipe) -> None:
    for nodes in (1, 4):
        made = render(full, "grpo1", Options(), replace(place("grpo1"), nodes=nodes))
        done = subprocess.run(
            ["bash", "-n"], input=made.files["run.sh"] + made.files["environment.sh"], text=True
        )
        assert done.returncode == 0


# Ray's command on the first node: what stands behind ``--``; or a Ray that did not start.
SRUN = """#!/bin/bash
while [ "$1" != -- ]; do echo "$1" >>words; shift; done
shift
[ -e broken ] || "$@"
exit 0
"""
PYTHON = """#!/bin/bash
printf '%s\\n' "$@" >trained
exit "$(cat status)"
"""


@pytest.mark.parametrize(("status", "ray_starts"), [(0, True), (1, True), (0, False)])
def test_the_script_fails_where_verl_did_not_run_to_its_end(
    full: Recipe, tmp_path: Path, status: int, ray_starts: bool
) -> None:
    """With stand-ins for SLURM's commands and Python."""
    folder, tools = tmp_path / "a folder", tmp_path / "tools"
    folder.mkdir()
    tools.mkdir()
    made = render(full, "grpo1", Options(), replace(place("grpo1"), folder=folder))
    made.write(folder)
    for name, text in (("srun", SRUN), ("scontrol", "#!/bin/sh\necho node7\n"), ("py", PYTHON)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    (folder / "status").write_text(str(status))
    (folder / "finished").touch()
    if not ray_starts:
        (folder / "broken").touch()
    environment = {"PATH": f"{tools}:/usr/bin:/bin", "PYTHON": "py"}
    script = str(folder / "run.sh")
    outside = subprocess.run([script], env=environment, capture_output=True, text=True)
    assert outside.returncode and "inside a SLURM job of 2 nodes" in outside.stderr
    environment["SLURM_JOB_NODELIST"] = "node[7-8]"
    done = subprocess.run([script], env=environment, capture_output=True, text=True)
    assert (done.returncode == 0) == (status == 0 and ray_starts), done.stderr
    words = (folder / "words").read_text().split()
    assert words[words.index("--address") + 1] == "node7:6379"
    if ray_starts:
        trained = (folder / "trained").read_text().splitlines()
        assert trained[:2] == ["-m", "verl.trainer.main_ppo"]
        assert trained[2:] == (folder / "overrides.txt").read_text().splitlines()


def test_overrides_say_what_the_settings_say(full: Recipe) -> None:
    chosen = full.stages.grpo2
    found = overrides(full, "grpo2", Options(), place("grpo2"))
    assert found["actor_rollout_ref.actor.ppo_mini_batch_size"] * 16 == 512
    assert found["actor_rollout_ref.rollout.n"] == chosen.samples_per_prompt
    assert found["actor_rollout_ref.rollout.max_model_len"] == 512 + 16000
    assert found["+actor_rollout_ref.model.override_config.max_position_embeddings"] == 32768
    other = replace(chosen, clip_high=0.28, kl_coefficient=0.0, normalize_by_std=False)
    stages = replace(full.stages, grpo2=other)
    found = overrides(replace(full, stages=stages), "grpo2", Options(), place("grpo2"))
    assert found["actor_rollout_ref.actor.clip_ratio_high"] == 0.28
    assert found["actor_rollout_ref.actor.use_kl_loss"] is False
    assert found["algorithm.norm_adv_by_std_in_grpo"] is False


def test_words_are_quoted_for_hydra() -> None:
    words = {"a": "plain", "b": "it's /a b", "c": ["x", 1, 0.5], "d": None, "e": {"k": True}}
    assert as_words(words) == ["a=plain", r"b='it\'s /a b'", "c=[x,1,0.5]", "d=null", "e={k:true}"]
    for text in ("${oc.env:HOME}", "back\\slash", "two\nlines"):
        with pytest.raises(BadUse, match="hydra"):
            as_words({"a": text})


def changed(recipe: Recipe, training: dict[str, Any] | None = None, **policy: Any) -> Recipe:
    chosen = recipe.stages.grpo1
    chosen = replace(chosen, **policy, training=replace(chosen.training, **(training or {})))
    return replace(recipe, stages=replace(recipe.stages, grpo1=chosen))


def test_what_verl_cannot_do_as_the_settings_say_is_refused(full: Recipe) -> None:
    old = full.stages.grpo1.training
    linear = replace(old.schedule, kind="linear")
    warm = replace(old.schedule, warmup_steps=5)
    unclipped = replace(old.optimizer, max_grad_norm=None)
    cases = [
        (changed(full, {"global_batch": 260}), "mini-batch in prompts"),
        (changed(full, {"global_batch": 8}), "no multiple of 16 accelerators"),
        (changed(full, {"schedule": linear}), "constant rate"),
        (changed(full, {"schedule": warm}), "constant rate"),
        (changed(full, {"optimizer": unclipped}), "max_grad_norm"),
        (changed(full, {"reset_optimizer": False}), "new moments"),
        (changed(full, max_response_tokens=17000), "less than one row"),
    ]
    for recipe, message in cases:
        with pytest.raises(BadUse, match=message):
            overrides(recipe, "grpo1", Options(), place("grpo1"))
    with pytest.raises(BadUse, match="grpo1, grpo2, grpo3"):
        overrides(full, "dpo", Options(), place("grpo1"))


def test_names_under_engine_kwargs_are_checked(tmp_path: Path) -> None:
    """verl hands them on as they are, and takes any (test_verl_agrees)."""
    file = tmp_path / "options.yaml"
    file.write_text("vllm: {attention_backnd: TRITON_ATTN}\n")
    with pytest.raises(BadUse, match="did you mean 'attention_backend'"):
        read_options(file)
    file.write_text("vllm: {enforce_eager: true}\n")
    with pytest.raises(BadUse, match=r"vllm\.enforce_eager: verl sets this"):
        read_options(file)
    file.write_text("tokens_per_gpu: 20000\nvllm: {block_size: 16}\n")
    assert read_options(file).engine_arguments()["block_size"] == 16
    assert not set(SET_BY_VERL) & set(VLLM_ARGUMENTS)


def test_the_environment_leaves_the_accelerators_to_ray(full: Recipe) -> None:
    options = Options(environment={"ROCR_VISIBLE_DEVICES": "0"})
    with pytest.raises(BadUse, match="leave it out"):
        render(full, "grpo1", options, place("grpo1"))


def test_grading_has_the_same_packages_in_both_environments() -> None:
    """But for ANTLR's runtime, of which hydra wants an older one."""
    here = locked_hashes(ROOT / "requirements" / "run.lock")
    there = locked_hashes(ROOT / "requirements" / "environments" / "verl.lock")
    for name in ("latex2sympy2-extended", "math-verify", "mpmath", "sympy", "torch"):
        assert there[name][0] == here[name][0], name


def test_rows_are_those_of_the_kits_own_order(
    rendered: Path, small: Recipe, tokens: Path, encoder: Encoder, start: Path
) -> None:
    rows = pq.read_table(rendered / "train.parquet").to_pylist()
    order = order_of(small.stages.grpo1, len(QUESTIONS))
    wanted = [f"q{n}" for step in range(9) for n in order.at(step)[1]]
    assert [row["extra_info"]["key"] for row in rows] == wanted
    assert [row["extra_info"]["index"] for row in rows] == list(range(27))
    assert rows[0]["prompt"] == [
        {"role": "user", "content": f"{QUESTIONS[int(wanted[0][1:])]} {SUFFIX}"}
    ]


def test_a_prompt_that_verl_would_ask_otherwise_is_refused(
    tokens: Path, encoder: Encoder, start: Path, tmp_path: Path
) -> None:
    rows = read_jsonl(tokens / "prompts.jsonl")
    ledger = read_jsonl(tokens / "documents.jsonl")
    template = template_of(start)
    ids = rows[3]["ids"]
    # A question in other tokens than the tokenizer makes of its text.
    split = [*ids[:9], *_in_bytes(encoder, ids[9]), *ids[10:]]
    cases = [
        ({"ids": split}, "other ids"),
        ({"ids": ids[:-1]}, "no prompt of one user turn"),
        ({"answer": " "}, "no answer"),
        ({"key": "other"}, "not of the same rows"),
    ]
    for number, (change, message) in enumerate(cases):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_jsonl(folder / "prompts.jsonl", [*rows[:3], {**rows[3], **change}, *rows[4:]])
        write_jsonl(folder / "documents.jsonl", ledger)
        with pytest.raises(VerificationError, match=message):
            read_questions(folder, encoder, template)


def _in_bytes(encoder: Encoder, number: int) -> list[int]:
    return [encoder.encode(character)[0] for character in encoder.decode([number])]


def test_the_command_renders_into_a_new_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--config", str(ROOT / "config.yaml"), "--recipe"]
    recipe = str(ROOT / "recipes" / "instella-3b.yaml")
    words = ["engines", "render", "grpo1", "--output", str(tmp_path / "made")]
    results = ["--results", str(tmp_path / "none")]
    assert main([*common, recipe, *results, *words]) == 3
    assert "no result yet" in capsys.readouterr().err
    assert main([*common, recipe, *results, *words, "--without-data"]) == 0
    assert (tmp_path / "made" / "run.sh").stat().st_mode & 0o111
    assert main([*common, recipe, *results, *words, "--without-data"]) == 2
    assert "name a new folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["rehearse", "grpo1", "--output", "made"], 3, "no result yet"),
        (["rehearse", "dpo", "--output", "made"], 2, "the GRPO stages only"),
        (["rehearse", "grpo1", "--output", "made", "--steps", "0"], 2, "not a number from 1"),
        (["agree", "grpo3"], 3, "no result yet"),
        (["agree", "sft"], 2, "no set of problems"),
    ],
)
def test_a_rehearsal_needs_the_run_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], status: int, message: str
) -> None:
    places = ["--config", str(ROOT / "config.yaml"), "--recipe", str(ROOT / "recipes/tiny.yaml")]
    words = [str(tmp_path / "made") if word == "made" else word for word in words]
    try:
        code = main([*places, "--results", str(tmp_path / "none"), "engines", *words])
    except SystemExit as stopped:  # argparse's own refusals
        code = stopped.code
    assert code == status and message in capsys.readouterr().err
    assert not (tmp_path / "made").exists()
