from pathlib import Path

import pytest

from instella.canonical import write_bytes
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
