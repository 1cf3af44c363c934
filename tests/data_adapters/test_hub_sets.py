"""Each data set of the published recipe, from files of its public schema."""

import copy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from instella.data.adapter_names import ADAPTER_NAMES
from instella.data.adapters import ADAPTERS, read, read_all
from instella.data.adapters.hub_sets import HUB_SETS
from instella.data.adapters.rows import read_rows
from instella.data.documents import (
    Conversation,
    Document,
    Dropped,
    Message,
    Preference,
    Problem,
    Text,
)
from instella.errors import BadUse, VerificationError
from instella.recipe.settings import Part

from .samples import PACK, SAMPLES, Sample, json_text, pair, turn, write

EVERY = pytest.mark.parametrize("name", SAMPLES)
# Where to break a row of each set: every column that its adapter reads.
COLUMNS = [
    (name, column)
    for name, sample in SAMPLES.items()
    for column in (
        ["train"]
        if sample.adapter == "mmlu_auxiliary"
        else [*HUB_SETS[sample.adapter].columns, HUB_SETS[sample.adapter].identity]
    )
    if column is not None
]
TURNS = [
    (name, column) for name, column in COLUMNS if isinstance(SAMPLES[name].rows[0][column], list)
]


def everything(folder: Path, adapter: str, **options: Any) -> list[Document | Dropped]:
    return list(read_all(Part("s", adapter, options or None), folder))


def sample_of(name: str, folder: Path) -> list[Document | Dropped]:
    sample = SAMPLES[name]
    write(folder, sample.file, sample.rows)
    return everything(folder, sample.adapter)


def broken(sample: Sample, change: Any, at: int = 1) -> list[dict[str, Any]]:
    rows = copy.deepcopy(list(sample.rows))
    change(rows[at])
    return rows


def refused(folder: Path, sample: Sample, rows: Any) -> str:
    """The one line that a file of ``rows`` ends with; JSON where Parquet cannot hold them."""
    file = sample.file.replace(".parquet", ".jsonl")
    write(folder, file, rows)
    with pytest.raises(VerificationError) as caught:
        everything(folder, sample.adapter)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_every_adapter_is_named_for_the_recipe_reader() -> None:
    assert tuple(sorted(ADAPTERS)) == ADAPTER_NAMES
    assert {sample.adapter for sample in SAMPLES.values()} == {*HUB_SETS, "mmlu_auxiliary"}


@EVERY
def test_rows_of_the_public_schema(name: str, tmp_path: Path) -> None:
    items = sample_of(name, tmp_path)
    assert len(items) == len(SAMPLES[name].rows)
    assert len({item.key for item in items}) == len(items)
    documents = [item for item in items if not isinstance(item, Dropped)]
    assert list(read(Part("s", SAMPLES[name].adapter), tmp_path)) == documents
    assert documents


@EVERY
def test_keys_depend_on_neither_the_order_of_rows_nor_the_name_of_the_file(
    name: str, tmp_path: Path
) -> None:
    sample = SAMPLES[name]
    items = sample_of(name, tmp_path / "a")
    write(tmp_path / "b", f"other-{Path(sample.file).name}", reversed(sample.rows))
    others = everything(tmp_path / "b", sample.adapter)
    assert others == items[::-1]
    assert [item.key for item in others] == [item.key for item in items[::-1]]


@EVERY
def test_equal_rows_are_one_document_published_twice(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    write(tmp_path, sample.file, sample.rows + sample.rows[:1])
    items = everything(tmp_path, sample.adapter)
    assert items[0] == items[-1]
    assert len({item.key for item in items}) == len(items) - 1


@pytest.mark.parametrize(
    "name",
    [
        n
        for n, s in SAMPLES.items()
        if s.adapter != "mmlu_auxiliary" and HUB_SETS[s.adapter].identity
    ],
)
def test_one_identity_with_two_contents_gives_two_keys(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    identity = HUB_SETS[sample.adapter].identity
    rows = broken(sample, lambda row: row.update({identity: sample.rows[0][identity]}))
    write(tmp_path, sample.file, rows)
    keys = [item.key for item in everything(tmp_path, sample.adapter)][:2]
    own = f"{sample.rows[0][identity]}/"
    assert keys[0] != keys[1] and all(key.startswith(own) for key in keys)


@pytest.mark.parametrize(("name", "column"), COLUMNS)
def test_a_column_that_is_missing_null_or_of_another_type(
    name: str, column: str, tmp_path: Path
) -> None:
    sample = SAMPLES[name]
    number = 1 if sample.adapter == "mmlu_auxiliary" else 2
    place = f"{sample.file.replace('.parquet', '.jsonl')}#2: column {column}"
    for value in (None, 2.5, ["x"], {"a": 1}):
        found = refused(
            tmp_path, sample, broken(sample, lambda row, v=value: row.update({column: v}))
        )
        assert place in found
    found = refused(tmp_path, sample, broken(sample, lambda row: row.pop(column)))
    if number == 2:
        assert place in found and "missing or null" in found
    else:
        assert "#2: column question is missing or null" in found


@pytest.mark.parametrize(
    ("name", "column"), [(n, c) for n, c in COLUMNS if SAMPLES[n].file.endswith("parquet")]
)
def test_a_renamed_parquet_column_is_an_error_of_the_first_row(
    name: str, column: str, tmp_path: Path
) -> None:
    sample = SAMPLES[name]
    rows = [{(f"new_{k}" if k == column else k): v for k, v in row.items()} for row in sample.rows]
    write(tmp_path, sample.file, rows)
    with pytest.raises(VerificationError, match=r"parquet#1: column \w+ is missing or null"):
        everything(tmp_path, sample.adapter)


@pytest.mark.parametrize(("name", "column"), TURNS)
def test_turns_of_another_shape(name: str, column: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    form = HUB_SETS[sample.adapter].turns
    place = f"#2: column {column}"
    assert f"{place} is not a list of turns" in refused(
        tmp_path, sample, broken(sample, lambda row: row.update({column: []}))
    )
    assert f"{place}[1] is str" in refused(
        tmp_path, sample, broken(sample, lambda row: row[column].__setitem__(1, "hi"))
    )
    for field in (form.role, form.content):
        found = refused(
            tmp_path, sample, broken(sample, lambda row, f=field: row[column][1].pop(f))
        )
        assert f"{place}[1].{field} is missing or null" in found
        found = refused(
            tmp_path, sample, broken(sample, lambda row, f=field: row[column][1].update({f: 5}))
        )
        assert f"{place}[1].{field} is int, need a text" in found
    found = refused(
        tmp_path, sample, broken(sample, lambda row: row[column][0].update({form.role: "tool"}))
    )
    assert f"{place}[0].{form.role}: role 'tool' is unknown" in found


@pytest.mark.parametrize("name", [n for n, s in SAMPLES.items() if not s.file.endswith(".jsonl")])
def test_a_cut_file(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    path = write(tmp_path, sample.file, sample.rows)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(VerificationError, match=r"cut short|damaged"):
        everything(tmp_path, sample.adapter)


@pytest.mark.parametrize("name", [n for n, s in SAMPLES.items() if not s.file.endswith("parquet")])
def test_json_that_is_not_utf8(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    path = write(tmp_path, sample.file, sample.rows)
    data = json_text(sample.file, sample.rows)
    at = data.rindex(b'"', 0, data.rindex(b'"')) + 1
    path.write_bytes(PACK.get(path.suffix, bytes)(data[:at] + b"\xff" + data[at:]))
    with pytest.raises(VerificationError, match=rf"#{len(sample.rows)}: not canonical JSON.*utf-8"):
        everything(tmp_path, sample.adapter)


@pytest.mark.parametrize(
    ("name", "column"), [(n, c) for n, c in COLUMNS if SAMPLES[n].file.endswith("parquet")]
)
def test_parquet_that_is_not_utf8(name: str, column: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    path = tmp_path / Path(sample.file).name
    table = pa.Table.from_pylist(list(sample.rows))
    pq.write_table(table, path, compression="none", use_dictionary=False, write_statistics=False)
    data = path.read_bytes()
    victim = text_in(sample.rows[1][column]).encode()
    at = data.index(len(victim).to_bytes(4, "little") + victim) + 4
    path.write_bytes(data[:at] + b"\xff" + data[at + 1 :])
    with pytest.raises(VerificationError, match=r"parquet#\d: column \w+ is not UTF-8"):
        everything(tmp_path, sample.adapter)


def test_parquet_values_that_python_cannot_hold(tmp_path: Path) -> None:
    days = pa.array([0, 1 << 30], pa.date32())
    pq.write_table(pa.table({"text": ["a", "b"], "id": days}), tmp_path / "a.parquet")
    with pytest.raises(VerificationError, match=r"parquet#2: column id is out of range"):
        list(read_rows(tmp_path, ("*",), ("text", "id")))


def test_a_parquet_column_whose_name_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a"], "qqqq": [1]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"qqqq", b"q\xffqq"))
    with pytest.raises(VerificationError, match=r"damaged Parquet: .* can't decode") as caught:
        list(read_rows(tmp_path, ("*",), ("text",)))
    assert "\n" not in str(caught.value)


def text_in(value: Any) -> str:
    """A text inside a column's value."""
    while not isinstance(value, str):
        value = value["question"] if isinstance(value, dict) and "question" in value else value
        value = value["content"] if isinstance(value, dict) else value
        value = value[-1] if isinstance(value, list) else value
    return value


def test_texts_come_with_their_own_identity(tmp_path: Path) -> None:
    first, *_ = sample_of("dolmino_gsm8k", tmp_path)
    assert isinstance(first, Text)
    assert first.text == "Text 0 of gsm8k."
    assert first.key.startswith("gsm8k-0/") and len(first.key) == len("gsm8k-0/") + 16


def test_python_edu_as_published_says_that_it_has_no_texts(tmp_path: Path) -> None:
    rows = [
        {
            "blob_id": "ab",
            "repo_name": "r",
            "path": "/p.py",
            "length_bytes": 9,
            "score": 4.1,
            "int_score": 4,
        }
    ]
    write(tmp_path, "python-edu/train-00000-of-00002.parquet", rows)
    with pytest.raises(VerificationError, match=r"#1: column text .*Software Heritage.*kind file"):
        everything(tmp_path, "python_edu")


def test_conversations(tmp_path: Path) -> None:
    turns = sample_of("tulu3_sft", tmp_path / "t")[1]
    assert isinstance(turns, Conversation)
    assert turns.messages == (
        Message("system", "Be brief."),
        Message("user", "And?"),
        Message("assistant", "Yes."),
    )
    turns = sample_of("openhermes", tmp_path / "o")[1]
    assert isinstance(turns, Conversation)
    assert turns.messages[1:] == (Message("user", '[{"]'), Message("assistant", "}\\"))
    web = sample_of("webinstruct_sub", tmp_path / "w")[0]
    assert isinstance(web, Conversation)
    assert [message.content for message in web.messages] == ["Q0?", "A0."]


def test_o1_journey_ends_before_its_answer_line(tmp_path: Path) -> None:
    sample = SAMPLES["o1_journey"]
    bare = {"idx": 4, "question": "0?", "answer": "0", "longCOT": "\n#### 0"}
    write(tmp_path, sample.file, (*sample.rows, bare))
    *kept, last = everything(tmp_path, "o1_journey")
    answers = [item.messages[1].content for item in kept if isinstance(item, Conversation)]
    assert answers == ["Two and two.\nWait: 4.", "Six, by #### counting.", "Two."]
    assert last == Dropped(last.key, "empty_after_cut")


def test_problems(tmp_path: Path) -> None:
    for name, question, answer in (
        ("big_math", "1*2?", "2"), ("deepmath", "1-1?", "0"), ("deepscaler", "1^2?", "1"),
    ):  # fmt: skip
        problem = sample_of(name, tmp_path / name)[1]
        assert isinstance(problem, Problem)
        assert (problem.question, problem.answer) == (question, answer)


def test_am_deepseek_keeps_english_and_names_what_it_drops(tmp_path: Path) -> None:
    items = sample_of("am_deepseek", tmp_path)
    reasons = [item.reason if isinstance(item, Dropped) else None for item in items]
    assert reasons == [None, "not_english", None, "no_language"]
    assert len(list(read(Part("s", "am_deepseek"), tmp_path))) == 2


def test_preferences_share_the_turns_before_the_answers(tmp_path: Path) -> None:
    items = sample_of("olmo2_preferences", tmp_path)
    assert [
        (item.history, item.question, item.chosen, item.rejected)
        for item in items
        if isinstance(item, Preference)
    ] == [
        ((), "Q", "good", "bad"),
        ((Message("user", "Q"), Message("assistant", "A")), "R", "yes", "no"),
        ((Message("system", "S"),), "Q", "1", "2"),
    ]


def test_pairs_that_are_none_are_dropped_and_a_last_turn_of_the_user_is_refused(
    tmp_path: Path,
) -> None:
    file = "train.jsonl"
    rows = [
        {"chosen": pair("Q", "1"), "rejected": pair("P", "2")},
        {"chosen": [turn("assistant", "1")], "rejected": [turn("assistant", "2")]},
        {"chosen": pair("Q", "1")[::-1] + pair("Q", "1")[1:], "rejected": pair("Q", "1")[::-1] + pair("Q", "2")[1:]},
        {"chosen": [turn("system", "S"), turn("assistant", "1")], "rejected": [turn("system", "S"), turn("assistant", "2")]},
    ]  # fmt: skip
    write(tmp_path, file, rows)
    items = everything(tmp_path, "olmo2_preferences")
    reasons = [item.reason if isinstance(item, Dropped) else None for item in items]
    assert reasons == ["prompts_differ", "no_user_turn", None, "no_user_turn"]
    write(tmp_path, file, [{"chosen": pair("Q", "1"), "rejected": [turn("user", "Q")]}])
    with pytest.raises(VerificationError, match=r"#1: column rejected: the last turn is the user"):
        everything(tmp_path, "olmo2_preferences")


def test_an_empty_identity_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.jsonl", [{"id": "", "text": "a"}])
    with pytest.raises(VerificationError, match=r"#1: column id is empty"):
        everything(tmp_path, "dolma_text")
    write(tmp_path, "a.jsonl", [{"id": 7, "text": "a"}])
    assert everything(tmp_path, "dolma_text")[0].key.startswith("7/")


def test_files_are_chosen_by_patterns(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path, f"data/{number}.jsonl", [{"id": str(number), "text": str(number)}])
    items = everything(tmp_path, "dolma_text", files=["data/[12].jsonl"])
    assert [item.text for item in items if isinstance(item, Text)] == ["1", "2"]


@pytest.mark.parametrize("adapter", [*HUB_SETS, "mmlu_auxiliary"])
def test_an_unknown_option_is_refused_before_the_folder_is_touched(
    adapter: str, tmp_path: Path
) -> None:
    with pytest.raises(BadUse, match=r"source s, adapter .*: no such option: column"):
        read(Part("s", adapter, {"column": "x"}), tmp_path / "missing")


def test_json_with_a_key_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"id":"1","text":"a"}\n{"id":"2","text":"a","text":"b"}\n')
    with pytest.raises(VerificationError, match=r"a\.jsonl#2.*twice"):
        everything(tmp_path, "dolma_text")


def test_parquet_of_large_texts_and_small_row_groups(tmp_path: Path) -> None:
    rows = list(SAMPLES["smoltalk"].rows)
    turns = pa.list_(pa.struct([("content", pa.large_string()), ("role", pa.large_string())]))
    table = pa.table({"messages": pa.array([row["messages"] for row in rows], type=turns)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=1, compression="zstd")
    assert everything(tmp_path, "smoltalk") == sample_of("smoltalk", tmp_path / "b")
