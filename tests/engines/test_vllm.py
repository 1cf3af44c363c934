"""vLLM on CPUs with the kit's model: head size 80, weights that change between two calls.

With ``INSTELLA_SOAK=1`` only: vLLM's environment takes 2.7 GB, and it starts in half a minute.
"""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import MODEL, ROOT, SETUP_SECONDS, SOAK

from instella.data.tokenizer import load
from instella.engines.vllm.agree import agreements
from instella.engines.vllm.ask import Question, ask
from instella.errors import BadUse, KitError
from instella.network.folder import save_folder
from instella.network.network import Instella
from instella.recipe.settings import Model

HEADS_OF_80 = replace(MODEL, hidden_size=160, intermediate_size=96)
pytestmark = pytest.mark.timeout(2 * SETUP_SECONDS)
soak = pytest.mark.skipif(not SOAK, reason="2.7 GB; INSTELLA_SOAK=1 runs it (docs/engines.md)")


@pytest.fixture(scope="module")
def python() -> Path:
    """Of vLLM's environment, which is made where it is not there."""
    done = subprocess.run(
        [str(ROOT / "kit"), "setup", "vllm"], capture_output=True, text=True, timeout=SETUP_SECONDS
    )
    assert done.returncode == 0, done.stderr
    return ROOT / ".venvs/vllm/bin/python"


def checkpoint(folder: Path, shape: Model, seed: int, tokenizer: Path) -> Path:
    """A network whose logits have some spread, so that no two are nearly equal."""
    torch.manual_seed(seed)
    network = Instella(shape, "native-cpu")
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.1)
    folder.mkdir()
    save_folder(folder, network, tokenizer, shape.max_position_embeddings)
    return folder


@soak
def test_greedy_tokens_are_equal_before_and_after_new_weights(
    python: Path, start: Path, tmp_path: Path
) -> None:
    encoder = load(start)
    folders = [checkpoint(tmp_path / str(n), HEADS_OF_80, n, start) for n in (1, 2)]
    generator = torch.Generator().manual_seed(4)
    prompts = [
        torch.randint(2, encoder.vocab_size, (length,), generator=generator).tolist()
        for length in (1, 5, 17, 33, 64, 64, 100, 128)
    ]
    # All rows of the head can be chosen by vLLM, which knows of no padding.
    question = Question(folders, prompts, 64, encoder.eos_id)
    found = agreements(question, HEADS_OF_80.vocab_size, python)
    for agreement in found:
        assert agreement.equal == agreement.answers == len(prompts)
        assert agreement.largest < 1e-4
    answers = ask(question, python)
    assert [answer.ids for answer in answers[0]] != [answer.ids for answer in answers[1]]
    assert answers == ask(question, python)


@soak
def test_an_engine_in_a_process_of_its_own_knows_the_model(
    python: Path, start: Path, tmp_path: Path
) -> None:
    """As in production, where vLLM's processes learn of it by the plugin in PYTHONPATH."""
    folder = checkpoint(tmp_path / "one", HEADS_OF_80, 1, start)
    question = Question([folder], [[3, 4, 5], [9, 8]], 16, 0)
    assert ask(replace(question, own_process=True), python) == ask(question, python)


@soak
def test_weights_of_another_network_are_refused(python: Path, start: Path, tmp_path: Path) -> None:
    one = checkpoint(tmp_path / "one", HEADS_OF_80, 1, start)
    two = checkpoint(tmp_path / "two", replace(HEADS_OF_80, intermediate_size=112), 2, start)
    with pytest.raises(KitError, match="vLLM failed"):
        ask(Question([one, two], [[3, 4, 5]], 4, 0), python)


def test_without_the_environment_one_line_says_what_to_do(start: Path, tmp_path: Path) -> None:
    with pytest.raises(BadUse, match=r"make it with \./kit setup vllm"):
        ask(Question([start], [[3]], 1, 0), tmp_path / "python")
