from pathlib import Path
from typing import Any

import pytest
from tokens_helpers import CHATS, HELD, PAIRS, PROBLEMS
from tokens_helpers import TEXTS as ROWS

from instella.canonical import write_bytes, write_json, write_jsonl
from instella.data.chat import CHAT_TEMPLATE
from instella.data.tokenizer import Encoder, load, train_bpe, write_folder
from instella.recipe.settings import Tokenizer

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
PUBLISHED = SHARED / "tokenizer" / "eleuther-ai-gpt-neox-20b-pii-special.json"
REFERENCE = SHARED / "reference" / "sft_rows"

TEXTS = (
    "The spider has eight legs, and the ant has six.",
    "In 2024 there were 365 days and one more; 17 * 2 + 1 = 35.",
    "Grüße aus Köln! Café, naïve 日本語 🙂 the the the legs legs",
    "What is 12 + 30? Let's think: 12 + 30 = 42.",
)


@pytest.fixture(scope="session")
def published_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published tokenizer as a folder of ours."""
    if not PUBLISHED.is_file():
        pytest.skip(f"the published tokenizer is not at {PUBLISHED}")
    folder = tmp_path_factory.mktemp("published")
    write_folder(folder, PUBLISHED.read_bytes(), 0, 1, CHAT_TEMPLATE)
    return folder


@pytest.fixture(scope="session")
def reference() -> Path:
    """Rows that the published script made."""
    if not REFERENCE.is_dir():
        pytest.skip(f"the reference rows are not at {REFERENCE}")
    return REFERENCE


@pytest.fixture(scope="session")
def published(published_folder: Path) -> Encoder:
    return load(published_folder)


@pytest.fixture(scope="session")
def learned_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small tokenizer learned here."""
    folder = tmp_path_factory.mktemp("learned")
    data = train_bpe(TEXTS * 3, Tokenizer(kind="bpe", vocab_size=400))
    write_folder(folder, data, 0, 1, CHAT_TEMPLATE)
    return folder


@pytest.fixture(scope="session")
def learned(learned_folder: Path) -> Encoder:
    return load(learned_folder)


@pytest.fixture
def broken_folder(learned_folder: Path, tmp_path: Path) -> Path:
    """A writable copy of the small tokenizer, to be broken."""
    for path in learned_folder.iterdir():
        write_bytes(tmp_path / path.name, path.read_bytes())
    return tmp_path


@pytest.fixture
def inputs(tmp_path: Path, learned_folder: Path) -> dict[str, Path]:
    """Sources ``texts``, ``chats``, ``pairs``, ``problems``, held-out items, tokenizer."""
    rows: dict[str, list[Any]] = {
        "texts": [*ROWS, {"text": f"before {HELD} behind"}, {"text": " \n"}],
        "chats": [
            {"messages": [{"role": role, "content": text} for role, text in turns]}
            for turns in CHATS
        ],
        "pairs": [{"question": q, "chosen": c, "rejected": r} for q, c, r in PAIRS],
        "problems": [{"question": q, "answer": a} for q, a in PROBLEMS],
    }
    folders = {"tokenizer": learned_folder, "heldout": tmp_path / "heldout"}
    folders["heldout"].mkdir()
    write_jsonl(folders["heldout"] / "exam.jsonl", [{"key": "1", "text": HELD}])
    write_json(folders["heldout"] / "sets.json", {})
    for name, values in rows.items():
        folder = tmp_path / name
        folder.mkdir()
        write_jsonl(folder / "rows.jsonl", values)
        folders[f"source_{name}"] = folder
    return folders
