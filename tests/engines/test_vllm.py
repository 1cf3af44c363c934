"""vLLM on CPUs with the kit's model: head size 80, weights that change between two calls.

With ``INSTELLA_SOAK=1`` only: vLLM's environment takes 2.7 GB, and it starts in half a minute.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import HEADS_OF_80, SETUP_SECONDS, SOAK, checkpoint

from instella.data.tokenizer import load
from instella.engines.vllm.agree import agreements
from instella.engines.vllm.ask import Question, ask
from instella.errors import BadUse, KitError

pytestmark = pytest.mark.timeout(2 * SETUP_SECONDS)
soak = pytest.mark.skipif(not SOAK, reason="2.7 GB; INSTELLA_SOAK=1 runs it (docs/engines.md)")


@soak
def test_greedy_tokens_are_equal_before_and_after_new_weights(
    vllm_python: Path, start: Path, tmp_path: Path
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
    found = agreements(question, HEADS_OF_80.vocab_size, vllm_python)
    for agreement in found:
        assert agreement.equal == agreement.answers == len(prompts)
        assert agreement.largest < 1e-4
    answers = ask(question, vllm_python)
    assert [answer.ids for answer in answers[0]] != [answer.ids for answer in answers[1]]
    assert answers == ask(question, vllm_python)


@soak
def test_an_engine_in_a_process_of_its_own_knows_the_model(
    vllm_python: Path, start: Path, tmp_path: Path
) -> None:
    """As in production, where vLLM's processes learn of it by the plugin in PYTHONPATH."""
    folder = checkpoint(tmp_path / "one", HEADS_OF_80, 1, start)
    question = Question([folder], [[3, 4, 5], [9, 8]], 16, 0)
    assert ask(replace(question, own_process=True), vllm_python) == ask(question, vllm_python)


@soak
def test_weights_of_another_network_are_refused(
    vllm_python: Path, start: Path, tmp_path: Path
) -> None:
    one = checkpoint(tmp_path / "one", HEADS_OF_80, 1, start)
    two = checkpoint(tmp_path / "two", replace(HEADS_OF_80, intermediate_size=112), 2, start)
    with pytest.raises(KitError, match="vLLM failed"):
        ask(Question([one, two], [[3, 4, 5]], 4, 0), vllm_python)


def test_without_the_environment_one_line_says_what_to_do(start: Path, tmp_path: Path) -> None:
    with pytest.raises(BadUse, match=r"make it with \./kit setup vllm"):
        ask(Question([start], [[3]], 1, 0), tmp_path / "python")
