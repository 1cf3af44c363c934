"""Reading: good files give the right values, bad ones one line with file and line."""

import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from instella.errors import BadUse
from instella.recipe.reader import read_recipe
from instella.recipe.settings import Optimizer

ROOT = Path(__file__).resolve().parents[2]
SMALL = Path(__file__).with_name("small.yaml")
TEXT = SMALL.read_text(encoding="utf-8")


def line_of(text: str, part: str, occurrence: int = 1) -> int:
    """Line number, from 1, of an occurrence of ``part``."""
    position = -1
    for _ in range(occurrence):
        position = text.index(part, position + 1)
    return text.count("\n", 0, position) + 1


def fault(tmp_path: Path, data: bytes) -> str:
    """The message of reading ``data`` as a recipe."""
    path = tmp_path / "bad.yaml"
    path.write_bytes(data)
    with pytest.raises(BadUse) as caught:
        read_recipe(path)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_values_have_the_types_of_the_settings() -> None:
    recipe = read_recipe(SMALL)
    assert recipe.stages.pretrain_stage2.seeds == (5796, 6198)
    assert recipe.stages.dpo.training.optimizer == Optimizer(learning_rate=1e-4, max_grad_norm=None)
    # An integer where a number is asked for, and "1e-3" without a dot.
    assert recipe.stages.sft.training.optimizer.learning_rate == 1.0
    assert isinstance(recipe.stages.sft.training.optimizer.learning_rate, float)
    assert recipe.stages.pretrain_stage1.training.optimizer.learning_rate == 0.005
    options = recipe.sources["sums"].options
    assert options == {"min_terms": 2, "max_terms": 3, "names": ["a", "1"], "share": 0.001}
    assert recipe.sources["rows"].revision is None
    assert recipe.prompt_suffix == ""


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + TEXT.encode(),
        TEXT.replace("\n", "\r\n").encode(),
        ("%YAML 1.1\n---\n" + TEXT + "...\n").encode(),
    ],
    ids=["bom", "crlf", "directive"],
)
def test_the_same_settings_in_another_dress(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "dressed.yaml"
    path.write_bytes(data)
    assert read_recipe(path) == read_recipe(SMALL)


def test_minus_zero_is_zero(tmp_path: Path) -> None:
    path = tmp_path / "zero.yaml"
    path.write_text(TEXT.replace("weight_decay: 0}", "weight_decay: -0.0}"), encoding="utf-8")
    value = read_recipe(path).stages.grpo1.training.optimizer.weight_decay
    assert str(value) == "0.0"


def test_anchors_and_merge_keys_stand_for_what_they_name(tmp_path: Path) -> None:
    part = "[{source: sums, adapter: worked_sums}]"
    first = TEXT.index(part)
    text = TEXT[:first] + "&sums " + part + TEXT[first + len(part) :].replace(part, "*sums")
    schedule = "schedule: {kind: constant}"
    first = text.index(schedule)
    text = text[:first] + "schedule: &flat {kind: constant}" + text[first + len(schedule) :]
    text = text.replace(schedule, "schedule: {<<: *flat, kind: constant}")
    assert text.count("*sums") == 4 and text.count("<<") == 2
    path = tmp_path / "anchors.yaml"
    path.write_text(text, encoding="utf-8")
    assert asdict(read_recipe(path)) == asdict(read_recipe(SMALL))


# (id, text to replace, replacement, place of the fault: text and occurrence, part of the message)
# The replaced text is the first occurrence; the place is looked up in the changed file.
BAD_SETTINGS = [
    ("misspelt", "hidden_size: 64", "hiden_size: 64", "hiden_size", "did you mean 'hidden_size'?"),
    ("unknown", "numerics:", "zzz: 1\nnumerics:", "zzz", "unknown setting 'zzz'; choose one of"),
    ("missing", "  intermediate_size: 160\n", "", "model:", "'model.intermediate_size' is missing"),
    ("duplicate", "prompt_suffix", 'name: "b"\nprompt_suffix', 'name: "b"', "first in line 2"),
    ("bool for int", "hidden_layers: 2", "hidden_layers: true", "true", "not the boolean 'true'"),
    ("text for int", "hidden_layers: 2", 'hidden_layers: "2"', '"2"', "without quotes"),
    ("float for int", "hidden_layers: 2", "hidden_layers: 2.0", "2.0", "a whole number"),
    ("octal", "hidden_layers: 2", "hidden_layers: 010", "010", "ambiguous '010'"),
    ("underscore", "hidden_size: 64", "hidden_size: 6_4", "6_4", "ambiguous '6_4'"),
    ("huge int", "size: 100", "size: 99999999999999999999", "9999", "beyond 64 bits"),
    ("longer int", "size: 100", f"size: {'9' * 5000}", "9999", "beyond 64 bits"),
    ("number for text", "version: 1.2.3", "version: 1.2", "version: 1.2", 'quotes: "1.2"'),
    ("yes for text", "licence: CC0-1.0", "licence: yes", "licence: yes", "put it in quotes"),
    ("yes for bool", "keep_optimizer: true", "keep_optimizer: yes", "yes", "write true or false"),
    ("nan", "rms_norm_eps: 1e-5", "rms_norm_eps: .nan", ".nan", "write a finite number"),
    ("inf", "rms_norm_eps: 1e-5", "rms_norm_eps: .inf", ".inf", "write a finite number"),
    ("overflow", "rms_norm_eps: 1e-5", "rms_norm_eps: 1e999", "1e999", "write a finite number"),
    ("too small", "warmup_steps: 2", "warmup_steps: -1", "warmup_steps: -1", "write 0 or more"),
    ("not more", "learning_rate: 5e-3", "learning_rate: 0", "learning_rate: 0}", "more than 0.0"),
    ("too large", "fraction: 0.5", "fraction: 1.5", "fraction: 1.5", "write 1.0 or less"),
    ("no choice", "kind: cosine", "kind: cosin", "kind: cosin", "did you mean 'cosine'?"),
    ("null", "seed: 6198", "seed: null", "seed: null", "has no value"),
    ("empty value", "numerics: portable-x86", "numerics:", "numerics:", "has no value"),
    ("list for text", "name: small", "name: [small]", "name:", "must be text, not a list"),
    ("text for list", "[5796, 6198]", "5796", "seeds:", "must be a list"),
    ("text for mapping", "{kind: cosine, warmup_steps: 2}", "cosine", "cosine", "must be a mapping"),
    ("null in list", "[5796, 6198]", "[5796, ]\n    init_seed: ~", "init_seed", "has no value"),
    ("ambiguous option", "share: 1e-3", "share: 1:30", "1:30", "put text in quotes"),
    ("nan option", "share: 1e-3", "share: .nan", ".nan", "finite"),
    ("surrogate", "about: One", 'about: "\\ud83d One"', "about", "Unicode"),
    ("tag", "name: small", "name: !!python/name:os.system small", "!!python", "tag"),
    ("tagged mapping", "model:", "model: !thing", "!thing", "the tag '!thing'"),
    ("unknown alias", "name: small", "name: *other", "*other", "no finished anchor"),
    ("alias of its parent", "model:", "model: &m\n  x: *m", "*m", "no finished anchor"),
    ("tab", "  hidden_size: 64", "\thidden_size: 64", "\thidden", "a tab indents the line"),
    ("bad indent", "  hidden_size: 64", "  a: b: c", "a: b: c", "not YAML"),
    ("open bracket", "[book, quiz]", "[book, quiz", "math_sft2: [", "not YAML"),
    ("key is a list", "name: small", "[a, b]: small", "[a, b]", "a key is not text"),
    ("merge of text", "name: small", "<<: small", "<<", "does not merge a mapping"),
    ("control character", "One of", "One\x07 of", "One\x07", "U+0007"),
    ("line separator", "One of", "One\u2028 of", "One\u2028", "U+2028"),
    ("second document", "prompt_suffix", "---\nprompt_suffix", "---", "second document"),
]  # fmt: skip

BAD_COMBINATIONS = [
    ("bad name", "name: small", "name: Small", "name: Small", "a letter first"),
    ("bad source name", "  own:", "  Own:", "  Own:", "a letter first"),
    ("source path", "path: small.yaml", "path: /etc/passwd", "/etc", "relative to the recipe"),
    ("path above", "path: small.yaml", "path: a/../../b", "a/..", "leaves the recipe's folder"),
    ("lock above", "    lock: null", "    lock: a/../../l", "lock: a/..", "leaves the recipe's"),
    ("member path", "some_texts/book.txt]", "../book.txt]", "../book", "below its root"),
    ("sha256", "sha256: aaaa", "sha256: AAAA", "sha256: AAAA", "64 lower-case hex digits"),
    ("short sha256", "sha256: aaaa", "sha256: aa", "sha256: aaaaaa", "(62 characters)"),
    ("revision", "revision: null", "revision: main", "revision: main", "40 lower-case hex"),
    ("repository", "owner/name", "name", "repository:", "write owner/name"),
    ("field of other kind", "    seed: 3", "    path: x\n    seed: 3", "path: x", "kind 'generated'"),
    ("field of no kind", "    size: 100\n", "", "  sums:", "a source of kind 'generated' needs it"),
    ("unknown source", "source: rows,", "source: row,", "source: row,", "did you mean 'rows'?"),
    ("unknown adapter", "chat_rows", "chat_row", "chat_row}", "did you mean 'chat_rows'?"),
    ("no vocabulary", "  vocab_size: 512\n\n", "\n", "tokenizer:", "kind 'bpe' needs it"),
    ("vocabulary", "  vocab_size: 512", "  vocab_size: 600", "vocab_size: 600", "model.vocab_size"),
    ("16 bits", "  vocab_size: 512\n  max", "  vocab_size: 65536\n  max", "65536", "16 bits"),
    ("same ids", "  vocab_size: 512", "  vocab_size: 512\n  pad_id: 0", "pad_id", "write 1"),
    ("heads", "attention_heads: 2", "attention_heads: 3", "hidden_size", "multiple of 3 heads"),
    ("odd head", "hidden_size: 64", "hidden_size: 66", "hidden_size", "heads of 33"),
    ("power of two", "global_batch: 8", "global_batch: 12", "global_batch: 12", "write 8 or 16"),
    ("no multiple", "global_batch: 8", "global_batch: 9", "global_batch: 9", "power of two"),
    ("batch below", "micro_batch: 4", "micro_batch: 16", "global_batch: 8", "write 16 or 32"),
    ("long rows", "sequence_length: 256", "sequence_length: 257", "257", "max_position_embeddings"),
    ("long answers", "max_response_tokens: 32", "max_response_tokens: 193", "193", "257 tokens"),
    ("init later", "init: pretrain_stage1", "init: sft", "init: sft", "does not come before it"),
    ("init unknown", "init: dpo", "init: dpoo", "init: dpoo", "did you mean 'dpo'?"),
    ("no moments", "      keep_optimizer: true\n", "", "reset_optimizer", "keep_optimizer to true"),
    ("no seeds", "[5796, 6198]", "[]", "seeds: []", "names no seed"),
    ("same seeds", "[5796, 6198]", "[7, 7]", "[7, 7]", "must differ"),
    ("negative seed", "[5796, 6198]", "[-1]", "[-1]", "write 0 or more"),
    ("beta", "learning_rate: 5e-3", "learning_rate: 5e-3, beta1: 1", "beta1", "less than 1"),
    ("warm-ups", "warmup_ratio: 0.1", "warmup_ratio: 0.1, warmup_steps: 3", "ratio", "remove one"),
    ("warm-up", "warmup_steps: 2", "warmup_steps: 5", "warmup_steps: 5", "more than the 4 updates"),
    ("responses", "prompts_per_step: 8", "prompts_per_step: 7", "per_step: 7", "28 responses"),
    ("rounded", "      micro_batch: 4", "      precision: bfloat16\n      micro_batch: 4", "bfloat16", "float32 only"),
    ("compiled", "      micro_batch: 4", "      compile: true\n      micro_batch: 4", "compile", "write false"),
    ("compiled answers", "      micro_batch: 8", "      compile: true\n      micro_batch: 8", "compile", "write false"),
    ("kernel", "      micro_batch: 4", "      attention: flash_attention_2\n      micro_batch: 4", "flash", "no kernel for numerics portable-x86"),
    ("mean scaled", "reduce_loss: sum", "reduce_loss: mean", "loss_scale", "has no effect"),
    ("set field", "metric: acc_raw", "samples: 3", "samples: 3", "kind 'choice'"),
    ("unknown suite", "    grpo1: [prob", "    grpo9: [prob", "grpo9", "did you mean 'grpo"),
    ("unknown set", "[book, quiz]", "[book, quizz]", "quizz", "did you mean 'quiz'?"),
    ("claim set", "set: problems", "set: problem", "set: problem\n", "did you mean 'problems'?"),
    ("claim metric", "metric: pass@1", "metric: pass", "metric: pass\n", "did you mean 'pass@1'?"),
    ("rollout", "evaluation:\n", "evaluation:\n  rollout: vllm\n", "rollout: vllm",
     "is vllm, which gives other bytes on other CPUs"),
    ("claim stage", "stage: grpo1", "stage: grpo2", "stage: grpo2", "evaluation.suites.grpo2"),
    ("claim unigram", "against: math_sft2", "against: unigram", "unigram", "kind text only"),
    ("claim bound", "      interval_above: 0\n", "", "about: GRPO", "has no bound"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "place", "words"),
    [case[1:] for case in BAD_SETTINGS + BAD_COMBINATIONS],
    ids=[case[0] for case in BAD_SETTINGS + BAD_COMBINATIONS],
)
def test_a_fault_is_one_line_with_its_place(
    tmp_path: Path, old: str, new: str, place: str, words: str
) -> None:
    assert old in TEXT
    text = TEXT.replace(old, new, 1)
    message = fault(tmp_path, text.encode("utf-8"))
    lines = [i for i, line in enumerate(text.split("\n"), 1) if place.rstrip("\n") in line]
    assert "\n" not in message and message.isprintable()
    start, _, rest = message.partition(": ")
    name, _, line = start.rpartition(":")
    assert name.endswith("bad.yaml") and int(line) in lines, message
    assert words in rest, message
    assert "; " in rest, "says what to do"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("attention: flash_attention_2", "does not compute in float32"),
        ("attention: flash_attention_2\n      precision: bfloat16", None),
        ("compile: true", None),
    ],
)
def test_a_gpu_class_takes_what_it_has_kernels_for(
    tmp_path: Path, settings: str, words: str | None
) -> None:
    text = TEXT.replace("numerics: portable-x86", "numerics: gfx942")
    text = text.replace("      micro_batch: 4", f"      {settings}\n      micro_batch: 4", 1)
    if words is not None:
        assert words in fault(tmp_path, text.encode())
        return
    (tmp_path / "good.yaml").write_text(text)
    read_recipe(tmp_path / "good.yaml")


@pytest.mark.parametrize(
    ("data", "line", "words"),
    [
        (b"", 1, "the file is empty"),
        (b"# only a comment\n", 1, "the file is empty"),
        (b"- a\n- b\n", 1, "does not hold a mapping"),
        (b"text\n", 1, "does not hold a mapping"),
        (b"name: a\nabout: \xff\n", 2, "byte 0xff is not UTF-8"),
        (TEXT.encode("utf-16"), 1, "save the file as UTF-8"),
        (b"name: a\0\n", 1, "U+0000"),
        (b"a: " + b"[" * 100_000, 1, "nesting depth"),
        (b"a: " + b"{b: " * 50 + b"1" + b"}" * 50, 1, "nested deeper than 40 levels"),
        (b"a: [" + b"1," * 200_000 + b"1]", 1, "more than 100000 values"),
    ],
)
def test_files_that_are_no_recipe(tmp_path: Path, data: bytes, line: int, words: str) -> None:
    message = fault(tmp_path, data)
    assert f"bad.yaml:{line}: " in message and words in message
    assert "\n" not in message


def test_a_bomb_of_aliases_costs_nothing(tmp_path: Path) -> None:
    lines = ["a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
    started = time.process_time()
    message = fault(tmp_path, "\n".join(lines).encode())
    assert time.process_time() - started < 1.0
    assert "bad.yaml:6: more than 100000 values" in message


def test_a_chain_of_aliases_cannot_nest_for_ever(tmp_path: Path) -> None:
    lines = ["a0: &a0 [1]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 2000)]
    assert "bad.yaml:39: nested deeper" in fault(tmp_path, "\n".join(lines).encode())


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(BadUse, match=r"cannot be read \(.*\); give the path"):
            read_recipe(path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(BadUse, match="a pipe, which may never end; give the path"):
        read_recipe(tmp_path / "pipe.yaml")


def test_reading_is_fast_and_imports_nothing_heavy() -> None:
    code = (
        "import sys, time; start = time.process_time()\n"
        "from pathlib import Path\n"
        "from instella.recipe.reader import read_recipe\n"
        "read_recipe(Path('recipes/instella-3b.yaml'))\n"
        "print(time.process_time() - start)\n"
        "print({'torch', 'numpy', 'jsonschema', 'transformers', 'datasets'} & set(sys.modules))\n"
    )
    seconds = []
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
        )
        spent, heavy = done.stdout.splitlines()
        assert heavy == "set()"
        seconds.append(float(spent))
    # 0.1 s on an idle core; twice the aim leaves room for a slow or busy one.
    assert min(seconds) < 0.3
