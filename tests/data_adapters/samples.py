"""Invented rows in the public schema of each data set, and the files they come in."""

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Row = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """An adapter, the name of one of its files, and rows."""

    adapter: str
    file: str
    rows: tuple[Row, ...]


def turn(role: str, content: str) -> Row:
    """One turn in the usual fields."""
    return {"role": role, "content": content}


def pair(question: str, answer: str) -> list[Row]:
    """A conversation of two turns."""
    return [turn("user", question), turn("assistant", answer)]


def dolma(name: str, file: str, **more: Any) -> Sample:
    rows = [{"id": f"{name}-{n}", "text": f"Text {n} of {name}.", **more} for n in range(3)]
    return Sample("dolma_text", file, tuple(rows))


ABOUT = {
    "source": "made_up",
    "reference_answer": "4",
    "test_case": None,
    "think_content": "two and two",
    "answer_content": "4",
}


def thought(question: str) -> list[Row]:
    about = dict.fromkeys(ABOUT)
    return [
        {**turn("user", question), "info": {**about, "source": "made_up"}},
        {**turn("assistant", "<think>two and two</think><answer>4</answer>"), "info": ABOUT},
    ]


SAMPLES: dict[str, Sample] = {
    "olmoe_dclm": dolma("dclm", "data/dclm/dclm-0000.json.zst", metadata={"url": "u"}),
    "olmoe_starcoder": dolma("starcoder", "data/starcoder/starcoder-0000.json.gz", source="stack"),
    "olmoe_arxiv": dolma("arxiv", "data/arxiv/arxiv-0000.json.gz", version="v0"),
    "olmoe_pes2o": dolma("pes2o", "data/pes2o/pes2o-0000.json.gz", created="2020-01-01"),
    "olmoe_algebraic_stack": dolma("algebraic", "data/algebraic-stack/train-0000.json.gz"),
    "olmoe_open_web_math": dolma("owm", "data/open-web-math/train-0000.json.gz"),
    "olmoe_wiki": dolma("wiki", "data/wiki/wiki-0000.json.gz", added="2024-01-01"),
    "dolmino_dclm": dolma("dclm", "data/dclm/0044/dclm-0001.json.zst", attributes={"q": [[0, 1, 2.5]]}),
    "dolmino_flan": dolma("flan", "data/flan/flan-0000.json.gz"),
    "dolmino_stackexchange": dolma("se", "data/stackexchange/stackexchange-0000.json.gz"),
    "dolmino_gsm8k": dolma("gsm8k", "data/math/gsm8k/main/train/0000.jsonl.zst"),
    "dolmino_tulu_math": dolma("tulu", "data/math/tulu_math/personahub_math_v5/0000.jsonl"),
    "dolmino_metamath": dolma("metamath", "data/math/metamath-owmfilter/0000.jsonl.gz"),
    "python_edu": Sample(
        "python_edu",
        "python-edu/texts-0.jsonl.gz",
        tuple({"blob_id": f"{n:040x}", "text": f"print({n})\n"} for n in range(3)),
    ),
    "dm_maths": Sample(
        "dm_maths",
        "dm_maths/full_data_1/0.jsonl.gz",
        tuple({"text": f"Let x = {n}. What is 2*x?\n{2 * n}", "meta": {"n": n}} for n in range(3)),
    ),
    "tulu3_sft": Sample(
        "tulu3",
        "data/train-00000-of-00006.parquet",
        (
            {"id": "a_1", "messages": pair("Why?", "Because."), "source": "made/up"},
            {"id": "a_2", "messages": [turn("system", "Be brief."), *pair("And?", "Yes.")], "source": "made/up"},
            {"id": "a_3", "messages": pair("Who?", "Me.") + pair("Sure?", ""), "source": "made/up"},
        ),
    ),
    "tulu3_personas": Sample(
        "tulu3",
        "data/train-00000-of-00001.parquet",
        tuple(
            {"id": f"p_{n}", "prompt": f"Say {n}.", "messages": pair(f"Say {n}.", str(n)), "constraints": ["c"]}
            for n in range(3)
        ),
    ),
    "openhermes": Sample(
        "openhermes",
        "openhermes2_5.json",
        (
            {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}], "id": None, "skip_prompt_formatting": False},
            {"conversations": [{"from": "system", "value": "s", "weight": None}, {"from": "human", "value": "[{\"]"}, {"from": "gpt", "value": "}\\"}]},
            {"conversations": [{"from": "human", "value": "äöü"}, {"from": "gpt", "value": "€"}], "source": "made_up"},
        ),
    ),
    "webinstruct_sub": Sample(
        "webinstruct_sub",
        "data/train-00000-of-00005.parquet",
        tuple(
            {"orig_question": "raw", "orig_answer": "raw", "source": "made_up", "question": f"Q{n}?", "answer": f"A{n}.", "index": n}
            for n in range(3)
        ),
    ),
    "code_feedback": Sample(
        "code_feedback",
        "Code-Feedback.jsonl",
        tuple({"id": n, "messages": pair(f"Code {n}?", f"x = {n}")} for n in range(3)),
    ),
    "ultrachat": Sample(
        "ultrachat",
        "data/train_sft-00000-of-00003.parquet",
        tuple(
            {"prompt": f"P{n}", "prompt_id": f"{n:064x}", "messages": pair(f"P{n}", f"A{n}")}
            for n in range(3)
        ),
    ),
    "gsm8k_synthetic": Sample(
        "gsm8k_synthetic",
        "data/train_119K-00000-of-00001.parquet",
        tuple({"messages": pair(f"{n} and 1?", f"{n} + 1 = {n + 1}")} for n in range(3)),
    ),
    "smoltalk": Sample(
        "smoltalk",
        "data/all/train-00000-of-00009.parquet",
        tuple({"messages": pair(f"T{n}", f"U{n}"), "source": "made-up"} for n in range(3)),
    ),
    "openmath": Sample(
        "openmathinstruct2",
        "data/train_1M-00000-of-00003.parquet",
        tuple(
            {"problem": f"{n}+1?", "generated_solution": f"\\boxed{{{n + 1}}}", "expected_answer": str(n + 1), "problem_source": "math"}
            for n in range(3)
        ),
    ),
    "o1_journey": Sample(
        "o1_journey",
        "train.json",
        (
            {"idx": 1, "question": "2+2?", "answer": "4", "longCOT": "Two and two.\nWait: 4.\n#### 4"},
            {"idx": 2, "question": "3+3?", "answer": "6", "longCOT": "Six, by #### counting."},
            {"idx": 3, "question": "1+1?", "answer": "2", "longCOT": "Two.\n#### 2\nMore.\n#### 2"},
        ),
    ),
    "mmlu_auxiliary": Sample(
        "mmlu_auxiliary",
        "auxiliary_train/train-00000-of-00001.parquet",
        tuple(
            {"train": {"answer": n, "choices": ["one", "two", "three", "four"], "question": f"Which is {n + 1}?", "subject": ""}}
            for n in range(4)
        ),
    ),
    "olmo2_preferences": Sample(
        "olmo2_preferences",
        "data/train-00000-of-00007.parquet",
        (
            {"id": "1", "source": "made_up", "chosen": pair("Q", "good"), "rejected": pair("Q", "bad")},
            {"id": "2", "source": "made_up", "chosen": pair("Q", "A") + pair("R", "yes"), "rejected": pair("Q", "A") + pair("R", "no")},
            {"id": "3", "source": "made_up", "chosen": [turn("system", "S"), *pair("Q", "1")], "rejected": [turn("system", "S"), *pair("Q", "2")]},
        ),
    ),
    "am_deepseek": Sample(
        "am_deepseek",
        "am_0.5M.jsonl.zst",
        (
            {"messages": thought("What is the sum of 2 and 2?")},
            {"messages": thought("2 加 2 等于多少")},
            {"messages": thought("Find $x$ if $x^2 = 4$ and $x > 0$.")},
            {"messages": thought("2 + 2 = ?")},
        ),
    ),
    "big_math": Sample(
        "big_math",
        "data/train-00000-of-00001.parquet",
        tuple(
            {"problem": f"{n}*2?", "answer": str(2 * n), "source": "made_up", "domain": ["Arithmetic"], "llama8b_solve_rate": None if n == 0 else 0.5}
            for n in range(3)
        ),
    ),
    "deepmath": Sample(
        "deepmath",
        "data/train-00000-of-00010.parquet",
        tuple(
            {"question": f"{n}-1?", "final_answer": str(n - 1), "difficulty": 5.0, "topic": "Algebra", "r1_solution_1": "s"}
            for n in range(3)
        ),
    ),
    "deepscaler": Sample(
        "deepscaler",
        "deepscaler.json",
        tuple({"problem": f"{n}^2?", "answer": str(n * n), "solution": ""} for n in range(3)),
    ),
}  # fmt: skip


def zst(data: bytes) -> bytes:
    """One zstd frame."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue().to_pybytes())


PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda data: gzip.compress(data, mtime=0),
    ".zst": zst,
}


def json_text(file: str, rows: Any) -> bytes:
    """Rows as the file's name tells: an array for ``*.json``, else one a line."""
    texts = [json.dumps(row, ensure_ascii=False) for row in rows]
    if file.endswith(".json"):
        return ("[" + ", ".join(texts) + "]\n").encode()
    return "".join(text + "\n" for text in texts).encode()


def write(folder: Path, file: str, rows: Any) -> Path:
    """Write rows in the packing of the file's name."""
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    if file.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(list(rows)), path)
    else:
        pack = PACK.get(path.suffix, bytes)
        path.write_bytes(pack(json_text(file, rows)))
    return path
