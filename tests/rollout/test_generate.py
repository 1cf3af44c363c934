import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from rollout_helpers import EOS, NEW, VOCABULARY, network, options, prompts

from instella.errors import BadUse, KitError
from instella.rollout.generate import generate
from instella.rollout.sample import choose
from instella.rollout.streams import uniforms

HERE = Path(__file__).parent


def run_pinned(script):
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(HERE.parent.parent),
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_CBWR": "COMPATIBLE",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, str(HERE / script)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_portable_responses_depend_on_nothing_but_prompt_and_stream():
    found = run_pinned("batch_invariance.py")
    assert found == dict.fromkeys(found, True)
    assert {"rows_1", "rows_7", "rows_64", "shuffled", "alone"} <= found.keys()


@pytest.mark.parametrize("numerics", ["native-cpu", "portable-x86"])
def test_greedy_is_the_argmax_of_the_uncached_network(numerics):
    model, texts = network(numerics), prompts(6)
    names = [["greedy", number] for number in range(6)]
    groups = generate(model, texts, stream=names, **options(samples=1, temperature=0))
    for prompt, (response,) in zip(texts, groups, strict=True):
        ids = list(prompt)
        logprobs = []
        for token in response.ids:
            with torch.no_grad():
                logits = model(torch.tensor([ids]))[0, -1]
            assert token == int(logits[:VOCABULARY].argmax())
            logprobs.append(float(torch.log_softmax(logits, -1)[token]))
            ids.append(token)
        assert np.allclose(response.logprobs, logprobs, atol=2e-5)
        assert response.logprobs.dtype == np.float32


def test_a_response_ends_with_its_end_of_text_or_is_cut():
    model, texts = network("native-cpu"), prompts(40)
    with torch.no_grad():
        model.lm_head.weight[EOS] += 0.5 * model.lm_head.weight.abs().max()
    names = [["end", number] for number in range(40)]
    groups = generate(model, texts, stream=names, **options(samples=4))
    responses = [response for group in groups for response in group]
    assert {response.finished for response in responses} == {True, False}
    for response in responses:
        assert response.finished == (response.ids[-1] == EOS)
        assert EOS not in response.ids[:-1]
        assert len(response.ids) == len(response.logprobs)
        assert response.finished or len(response.ids) == NEW
        assert max(response.ids) < VOCABULARY


def test_sampled_frequencies_are_those_of_softmax():
    # Pearson's statistic over 20 kinds has mean 19; 43.8 is its 99.9 % quantile.
    count = 40_000
    logits = torch.linspace(-2, 2, 20).expand(count, -1)
    numbers = torch.from_numpy(uniforms(["chi-square", 3], count))
    ids, logprobs = choose(logits, numbers, 0.7, 1.0, 20)
    expected = torch.softmax(logits[0] / 0.7, -1).double() * count
    observed = torch.bincount(ids, minlength=20).double()
    assert float(((observed - expected) ** 2 / expected).sum()) < 43.8
    assert torch.equal(logprobs, torch.log_softmax(logits, -1).gather(1, ids[:, None])[:, 0])


def test_the_nucleus_is_the_smallest_set_that_reaches_top_p():
    probabilities = torch.tensor([[0.1, 0.4, 0.2, 0.3]])
    logits = probabilities.log().expand(2000, -1)
    numbers = torch.from_numpy(uniforms(["nucleus"], 2000))
    for top_p, kept in ((0.35, {1}), (0.65, {1, 3}), (0.85, {1, 2, 3}), (1.0, {0, 1, 2, 3})):
        ids, _ = choose(logits, numbers, 1.0, top_p, 4)
        assert set(ids.tolist()) == kept


def test_extreme_numbers_choose_ids_of_positive_probability():
    logits = torch.tensor([[-200.0, 0.0, 0.0, -200.0, 50.0]]).expand(2, -1)
    numbers = torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)
    ids, _ = choose(logits, numbers, 1.0, 1.0, 4)
    assert ids.tolist() == [1, 2]


def test_equal_ids_of_a_nucleus_fall_out_from_the_highest():
    logits = torch.zeros(500, 4)
    numbers = torch.from_numpy(uniforms(["ties"], 500))
    ids, _ = choose(logits, numbers, 1.0, 0.5, 4)
    assert set(ids.tolist()) == {0, 1}


def test_streams_are_named_not_drawn():
    first = uniforms(["rollout", 1, 0, "key", 0], 8)
    assert uniforms(["rollout", 1, 0, "key", 0], 4).tolist() == first[:4].tolist()
    others = [
        ["rollout", 1, 0, "key", 1],
        ["rollout", 1, 1, "key", 0],
        ["rollout", 2, 0, "key", 0],
        ["rollout", 1, 0, "key2", 0],
        ["rollout", 1, "0", "key", 0],
        ["evaluate", 1, 0, "key", 0],
    ]
    assert len({tuple(uniforms(parts, 2)) for parts in others} | {tuple(first[:2])}) == 7
    # A fixed value: the numbers are part of every artifact that sampled.
    assert uniforms(["golden"], 1)[0] == 0.18392361528622192


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_prompt_tokens": 2}, "max_prompt_tokens"),
        ({"max_prompt_tokens": 65}, "max_position_embeddings"),
        ({"max_new_tokens": 60}, "max_new_tokens"),
        ({"vocabulary": 257}, "vocabulary"),
        ({"samples": 0}, "at least 1"),
        ({"temperature": -1.0}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
    ],
)
def test_bad_settings_are_refused(changes, message):
    with pytest.raises(BadUse, match=message):
        generate(network("native-cpu"), [[2] * 6], stream=[["x"]], **options(**changes))


def test_an_empty_prompt_and_a_missing_stream_are_refused():
    model = network("native-cpu")
    with pytest.raises(BadUse, match="prompt 0: 0 tokens"):
        generate(model, [[]], stream=[["x"]], **options())
    with pytest.raises(BadUse, match="1 prompts but 0 streams"):
        generate(model, [[2]], stream=[], **options())
    assert generate(model, [], stream=[], **options()) == []


def test_logits_that_are_not_numbers_stop_sampling():
    model = network("native-cpu")
    with torch.no_grad():
        model.lm_head.weight[3, 0] = float("nan")
    with pytest.raises(KitError, match="not finite"):
        generate(model, [[2, 3]], stream=[["x"]], **options())
