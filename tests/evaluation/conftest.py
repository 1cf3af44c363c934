from pathlib import Path

import pytest
from evaluation_helpers import Bench

from instella.data.chat import CHAT_TEMPLATE
from instella.data.tokenizer import load, train_bpe, write_folder
from instella.recipe.settings import Tokenizer


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer without merges: every byte is an id."""
    folder = tmp_path_factory.mktemp("tokenizer")
    learned = train_bpe(["x"], Tokenizer("bpe", vocab_size=300))
    write_folder(folder, learned, 0, 1, CHAT_TEMPLATE)
    return folder


@pytest.fixture(scope="session")
def bench(tokenizer: Path) -> Bench:
    return Bench(load(tokenizer))
