"""The stages themselves, on small sources."""

import json
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokens_helpers import (
    CHATS,
    PAIRS,
    PROBLEMS,
    SUFFIX,
    TEXTS,
    digests,
    job,
    lines,
    part,
    report_of,
)

from instella.artifacts.job import Job
from instella.canonical import write_bytes, write_jsonl
from instella.data.chat import render_row, with_suffix
from instella.data.documents import Message
from instella.data.tokenizer import Encoder, load
from instella.data.units import Units
from instella.errors import BadUse, VerificationError
from instella.recipe.settings import ChatData, Part, PretrainData, PromptData, Tokenizer
from instella.stages import tokenizer as tokenizer_stage
from instella.stages import tokens_chat, tokens_preference, tokens_prompts, tokens_text


def test_text_is_packed_and_repeatable(
    tmp_path: Path, inputs: dict[str, Path], learned: Encoder
) -> None:
    data = PretrainData(sequence_length=32, parts=(part("texts", "text_rows"),), seed=3)
    run = job(tmp_path, "tokens_a", {"data": data}, inputs)
    tokens_text.run(run)
    tokens = np.load(run.output / "tokens.npy", allow_pickle=False)
    ledger, report = lines(run.output / "documents.jsonl"), report_of(run)
    assert tokens.dtype == np.uint16 and tokens.ndim == 1 and len(tokens) % 32 == 0
    assert report["contaminated"] == {"exam": 1} and report["dropped"] == {"empty": 1}
    assert report["tokens"] == len(tokens) + report["tokens_cut"]
    assert report["documents"] == len(TEXTS)
    assert ledger[-1]["end"] == len(tokens)
    for item in ledger[:-1]:
        text = TEXTS[int(item["key"].split("#")[1]) - 1]["text"]
        found = learned.decode(tokens[item["start"] : item["end"] - 1])
        assert found == unicodedata.normalize("NFC", text)
    assert list(run.scratch.iterdir()) == []
    again = job(tmp_path, "tokens_b", {"data": data}, inputs)
    tokens_text.run(again)
    assert digests(again.output) == digests(run.output)


KINDS: dict[str, tuple[Any, Any]] = {
    "text": (tokens_text, PretrainData(32, (Part("many", "text_rows", fraction=0.7),))),
    "text_cut": (tokens_text, PretrainData(32, (Part("many", "text_rows"),), max_tokens=3000)),
    "chat": (tokens_chat, ChatData(96, (Part("chats", "chat_rows", repeat=3),), seed=5)),
    "preference": (tokens_preference, ChatData(64, (Part("pairs", "preference_rows"),))),
    "prompts": (tokens_prompts, PromptData(120, (Part("problems", "problem_rows"),))),
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_number_of_workers_and_units_changes_nothing(
    tmp_path: Path, inputs: dict[str, Path], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"text": f"Document {n} has {n % 9} legs. " * (n % 30)} for n in range(250)]
    (tmp_path / "many").mkdir()
    write_jsonl(tmp_path / "many" / "rows.jsonl", rows)
    inputs["source_many"] = tmp_path / "many"
    module, data = KINDS[kind]
    whole = job(tmp_path, "whole", {"data": data}, inputs)
    module.run(whole)
    # Units so small that there are many; the workers find them in the spool.
    monkeypatch.setattr("instella.data.mixture.SMALLEST_UNIT", 6000 if "text" in kind else 200)
    for workers in (1, 2, 3) if kind == "text" else (1, 2):
        run = job(tmp_path, f"workers_{workers}", {"data": data}, inputs, workers)
        module.run(run)
        assert digests(run.output) == digests(whole.output)
        assert list(run.scratch.iterdir()) == []


def test_finished_units_are_used_again_unless_damaged(
    tmp_path: Path, inputs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("instella.data.mixture.SMALLEST_UNIT", 600)
    data = PretrainData(sequence_length=32, parts=(part("texts", "text_rows"),), seed=3)
    expected = job(tmp_path, "whole", {"data": data}, inputs)
    tokens_text.run(expected)
    run = job(tmp_path, "cut_off", {"data": data}, inputs)
    written: list[int] = []
    real = Units.write

    def write(units: Units, number: int, *rest: Any) -> None:
        if number == 5 and 5 not in written:
            written.append(5)
            raise KeyboardInterrupt
        written.append(number)
        real(units, number, *rest)

    monkeypatch.setattr(Units, "write", write)
    with pytest.raises(KeyboardInterrupt):
        tokens_text.run(run)
    assert written == [0, 1, 2, 3, 4, 5]
    unit = next((run.scratch / "units").glob("*2.tokens"))
    unit.write_bytes(unit.read_bytes()[:-2])
    written.clear()
    written.append(5)
    tokens_text.run(run)
    assert written[1:4] == [2, 5, 6]
    assert digests(run.output) == digests(expected.output)


def test_what_was_selected_is_reported(tmp_path: Path, inputs: dict[str, Path]) -> None:
    parts = (
        part("texts", "text_rows", fraction=0.5, repeat=2),
        part("texts", "text_rows", max_documents=4),
    )
    run = job(tmp_path, "tokens", {"data": PretrainData(32, parts)}, inputs)
    tokens_text.run(run)
    report = report_of(run)
    first, second = report["parts"]
    assert first["read"] == 62 and 15 < first["selected"] < 47
    assert first["drawn"] == 2 * first["selected"]
    assert (second["read"], second["selected"], second["drawn"]) == (4, 4, 4)
    for item in report["parts"]:
        met = item["documents"] + sum((item["contaminated"] | item["dropped"]).values())
        assert met == item["drawn"]
    assert report["drawn"] == first["drawn"] + 4


def test_max_tokens_bounds_the_windows(tmp_path: Path, inputs: dict[str, Path]) -> None:
    data = PretrainData(sequence_length=32, parts=(part("texts", "text_rows"),), max_tokens=100)
    run = job(tmp_path, "tokens", {"data": data}, inputs)
    tokens_text.run(run)
    assert len(np.load(run.output / "tokens.npy")) == 96
    assert report_of(run)["windows"] == 3
    assert lines(run.output / "documents.jsonl")[-1]["end"] == 96


def test_less_than_one_window_is_an_error(tmp_path: Path, inputs: dict[str, Path]) -> None:
    data = PretrainData(sequence_length=100_000, parts=(part("texts", "text_rows"),))
    with pytest.raises(VerificationError, match="less than one window of 100000"):
        tokens_text.run(job(tmp_path, "tokens", {"data": data}, inputs))


def test_chat_rows(tmp_path: Path, inputs: dict[str, Path], learned: Encoder) -> None:
    data = ChatData(sequence_length=96, parts=(part("chats", "chat_rows"),), seed=5)
    run = job(tmp_path, "tokens_sft", {"data": data}, inputs)
    tokens_chat.run(run)
    ids = np.load(run.output / "input_ids.npy", allow_pickle=False)
    mask = np.load(run.output / "label_mask.npy", allow_pickle=False)
    ledger, report = lines(run.output / "documents.jsonl"), report_of(run)
    assert ids.dtype == np.uint16 and mask.dtype == np.bool_ and ids.shape == mask.shape
    assert [item["row"] for item in ledger] == list(range(4)) and len(ids) == 4
    for item in ledger:
        turns = CHATS[int(item["key"].split("#")[1]) - 1]
        row = render_row([Message(*turn) for turn in turns], learned, 96)
        assert row is not None
        assert ids[item["row"]].tolist() == row[0].tolist()
        assert mask[item["row"]].tolist() == row[1].tolist()
    assert report["labels"] == mask.sum()
    assert report["contaminated"] == {"exam": 1}
    assert report["dropped"] == {"no_label": 1, "no_label_after_cut": 1}
    assert report["noted"] == {
        "cut": 1, "empty_content": 1, "no_answer_at_end": 1, "repeated_role": 1,
    }  # fmt: skip


def test_suffix_goes_to_user_turns_of_math_parts_only(
    tmp_path: Path, inputs: dict[str, Path], learned: Encoder
) -> None:
    math = part("chats", "chat_rows", options={"math_prompt": True}, max_documents=1)
    data = ChatData(sequence_length=128, parts=(math,))
    run = job(tmp_path, "tokens_math", {"data": data}, inputs)
    tokens_chat.run(run)
    ids = np.load(run.output / "input_ids.npy")[0]
    text = learned.decode(ids[ids != learned.pad_id])
    assert text == (
        f"<|endoftext|><|user|>\nHow many legs? {SUFFIX}\n<|assistant|>\nEight legs.<|endoftext|>\n"
    )


def test_chat_stage_refuses_texts(tmp_path: Path, inputs: dict[str, Path]) -> None:
    data = ChatData(sequence_length=64, parts=(part("texts", "text_rows"),))
    with pytest.raises(BadUse, match="yields Text, this stage needs Conversation"):
        tokens_chat.run(job(tmp_path, "tokens", {"data": data}, inputs))


def test_preference_pairs(tmp_path: Path, inputs: dict[str, Path], learned: Encoder) -> None:
    data = ChatData(sequence_length=64, parts=(part("pairs", "preference_rows"),))
    run = job(tmp_path, "tokens_dpo", {"data": data}, inputs)
    tokens_preference.run(run)
    arrays = {path.stem: np.load(path) for path in run.output.glob("*.npy")}
    assert {name: (a.shape, a.dtype.name) for name, a in arrays.items()} == {
        "chosen_input_ids": ((2, 64), "uint16"),
        "chosen_label_mask": ((2, 64), "bool"),
        "rejected_input_ids": ((2, 64), "uint16"),
        "rejected_label_mask": ((2, 64), "bool"),
    }
    for item in lines(run.output / "documents.jsonl"):
        question, *answers = PAIRS[int(item["key"].split("#")[1]) - 1]
        for name, answer in zip(("chosen", "rejected"), answers, strict=True):
            ids = arrays[f"{name}_input_ids"][item["row"]]
            mask = arrays[f"{name}_label_mask"][item["row"]]
            assert learned.decode(ids[mask]) == f"{answer}<|endoftext|>"
            prompt = learned.decode(ids[: np.argmax(mask)])
            assert prompt == f"<|endoftext|><|user|>\n{question}\n<|assistant|>\n"
            assert (ids[np.flatnonzero(mask)[-1] + 1 :] == learned.pad_id).all()
    report = report_of(run)
    assert report["pairs"] == 2 and report["contaminated"] == {"exam": 1}
    assert report["dropped"] == {"no_question": 1, "same_answers": 1, "too_long": 1}
    assert report["noted"] == {"empty_chosen": 1}


def test_prompts(tmp_path: Path, inputs: dict[str, Path], learned: Encoder) -> None:
    data = PromptData(max_prompt_tokens=120, parts=(part("problems", "problem_rows"),), seed=1)
    run = job(tmp_path, "tokens_grpo1", {"data": data}, inputs)
    tokens_prompts.run(run)
    prompts = lines(run.output / "prompts.jsonl")
    assert sorted(item["question"] for item in prompts) == ["1 + 1?", "3 + 4?"]
    for item in prompts:
        asked = with_suffix(item["question"], SUFFIX)
        expected = f"<|endoftext|><|user|>\n{asked}\n<|assistant|>\n"
        assert learned.decode(item["ids"]) == expected and item["ids"].count(0) == 1
        assert (item["question"], item["answer"]) in PROBLEMS
    ledger = lines(run.output / "documents.jsonl")
    assert [item["key"] for item in ledger] == [item["key"] for item in prompts]
    assert [item["row"] for item in ledger] == [0, 1] and ledger[0]["source"] == "problems"
    report = report_of(run)
    assert report["dropped"] == {"no_answer": 1, "no_question": 1, "too_long": 1}
    assert report["contaminated"] == {"exam": 1}
    assert report["longest"] == max(len(item["ids"]) for item in prompts)


def test_prompts_without_the_suffix(
    tmp_path: Path, inputs: dict[str, Path], learned: Encoder
) -> None:
    plain = part("problems", "problem_rows", options={"math_prompt": False}, max_documents=1)
    data = PromptData(max_prompt_tokens=120, parts=(plain,))
    run = job(tmp_path, "tokens_grpo1", {"data": data}, inputs)
    tokens_prompts.run(run)
    ids = lines(run.output / "prompts.jsonl")[0]["ids"]
    assert learned.decode(ids) == "<|endoftext|><|user|>\n1 + 1?\n<|assistant|>\n"


def test_nothing_left_is_an_error(tmp_path: Path, inputs: dict[str, Path]) -> None:
    data = PromptData(max_prompt_tokens=2, parts=(part("problems", "problem_rows"),))
    with pytest.raises(VerificationError, match=r"no document is left .*'too_long': 3"):
        tokens_prompts.run(job(tmp_path, "tokens", {"data": data}, inputs))


def learn(tmp_path: Path, name: str, inputs: dict[str, Path], **fields: Any) -> Job:
    parts = (part("texts", "text_rows"), part("chats", "chat_rows"))
    settings = Tokenizer(**{"kind": "bpe", "vocab_size": 512, "parts": parts, **fields})
    run = job(tmp_path, name, {"tokenizer": settings}, inputs)
    tokenizer_stage.run(run)
    return run


def test_tokenizer_merges_role_tags_and_suffix(tmp_path: Path, inputs: dict[str, Path]) -> None:
    run = learn(tmp_path, "tokenizer", inputs)
    encoder = load(run.output)
    for role in ("user", "assistant", "system"):
        assert len(encoder.encode(f"<|{role}|>\n")) == 4  # <| role |> newline
    words = ["Let", "'s", *SUFFIX[5:].replace("\\", "\\ ").replace("{", " {").split()]
    assert len(encoder.encode(f" {SUFFIX}")) == len(words)
    report = report_of(run)
    assert report["contaminated"] == {"exam": 2}
    assert len(lines(run.output / "documents.jsonl")) == report["documents"]
    assert report["entries"] == encoder.vocab_size <= 512
    assert set(digests(run.output)) == {
        "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "documents.jsonl",
        "report.json",
    }  # fmt: skip
    assert digests(learn(tmp_path, "again", inputs).output) == digests(run.output)


def test_tokenizer_reads_parts_evenly_up_to_the_limit(
    tmp_path: Path, inputs: dict[str, Path]
) -> None:
    report = report_of(learn(tmp_path, "tokenizer", inputs, max_characters=400))
    assert 400 <= report["characters"] < 700
    first, second = (item["characters"] for item in report["parts"])
    assert min(first, second) >= 100


def test_published_tokenizer_is_taken_as_it_is(
    tmp_path: Path, inputs: dict[str, Path], learned_folder: Path
) -> None:
    folder = tmp_path / "files"
    (folder / "data").mkdir(parents=True)
    original = json.dumps(json.loads((learned_folder / "tokenizer.json").read_bytes()), indent=1)
    write_bytes(folder / "data" / "neox.json", original.encode())
    inputs = {**inputs, "source_files": folder}
    settings = Tokenizer(kind="file", source="files", member="data/neox.json")
    run = job(tmp_path, "tokenizer", {"tokenizer": settings}, inputs)
    tokenizer_stage.run(run)
    assert (run.output / "tokenizer.json").read_bytes() == original.encode()
    assert load(run.output).encode("the spider") == load(learned_folder).encode("the spider")


@pytest.mark.parametrize(
    ("fields", "kind", "message"),
    [
        ({"kind": "file"}, BadUse, "needs source and member"),
        ({"kind": "file", "source": "texts", "member": "../x"}, BadUse, "leaves source texts"),
        ({"kind": "file", "source": "texts", "member": "x"}, VerificationError, "no file 'x'"),
        ({"kind": "bpe", "vocab_size": 300, "parts": ()}, BadUse, "needs parts"),
    ],
)
def test_wrong_tokenizers_are_refused(
    tmp_path: Path, inputs: dict[str, Path], fields: dict[str, Any], kind: type, message: str
) -> None:
    run = job(tmp_path, "tokenizer", {"tokenizer": Tokenizer(**fields)}, inputs)
    with pytest.raises(kind, match=message):
        tokenizer_stage.run(run)
