"""Packed log-likelihoods: those of padded rows, whatever shares the batch."""

import math

import numpy as np
import pytest
import torch

from instella.errors import BadUse, KitError
from instella.evaluation.likelihood import Scored, logprobs
from instella.evaluation.packed import Request, likelihoods
from instella.network.network import Instella
from instella.recipe.settings import Model

VOCABULARY = 272
LONGEST = 640


def network_of(numerics: str, **changes: int) -> Instella:
    """Two small layers with weights from integers, the same everywhere."""
    shape = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 2, "vocab_size": VOCABULARY, "max_position_embeddings": LONGEST,
    }  # fmt: skip
    made = Instella(Model(**(shape | changes)), numerics).eval()
    generator = np.random.Generator(np.random.PCG64(6))
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() == 2:
                values = generator.integers(-128, 128, parameter.shape) / 256.0
                parameter.copy_(torch.from_numpy(values.astype(np.float32)))
    return made


@pytest.fixture(scope="module")
def network() -> Instella:
    return network_of("portable-x86")


def mixed(count: int, longest: int, seed: int) -> list[Request]:
    """Requests of mixed lengths; most contexts come several times, some requests too."""
    generator = np.random.Generator(np.random.PCG64(seed))

    def ids(most: int) -> tuple[int, ...]:
        size = int(generator.integers(1, most + 1))
        return tuple(generator.integers(0, VOCABULARY, size).tolist())

    contexts = [ids(longest) for _ in range(count // 4)]
    found = [Request(contexts[int(generator.integers(len(contexts)))], ids(20))
             for _ in range(count)]  # fmt: skip
    return [*found, *found[:2], Request((0,), ids(longest)), Request((0,), ids(longest))]


def padded(network: Instella, request: Request, length: int) -> np.ndarray:
    ids = [*request.context, *request.continuation]
    (values,) = logprobs(network, [Scored(ids, len(request.context))], length, 1)
    return values


def test_bits_are_those_of_padded_rows(network):
    requests = mixed(60, 150, 1)
    found = likelihoods(network, requests, 64)
    for request, one in zip(requests, found, strict=True):
        for length in (192, 208):
            assert one.logprobs.tobytes() == padded(network, request, length).tobytes()


def test_batch_order_and_neighbours_change_no_bit(network):
    """Two of the requests are longer than a chain, so another kernel attends."""
    requests = mixed(40, 150, 2)
    long = tuple(np.random.Generator(np.random.PCG64(3)).integers(0, VOCABULARY, 600).tolist())
    requests += [Request(long, (5, 6)), Request(long, (7,)), Request(long[:500], long[500:])]
    alone = [likelihoods(network, [request], 1)[0] for request in requests]
    order = np.random.Generator(np.random.PCG64(4)).permutation(len(requests)).tolist()
    for per_batch in (1, 7, 64):
        shuffled = likelihoods(network, [requests[number] for number in order], per_batch)
        for number, one in zip(order, shuffled, strict=True):
            assert one.logprobs.tobytes() == alone[number].logprobs.tobytes()
            assert one.greedy == alone[number].greedy


def test_a_group_never_passes_a_chain(network):
    """Sixty continuations of one context do not fit in 512 places."""
    context = tuple(range(40))
    requests = [Request(context, (n, n + 1, n + 2)) for n in range(60)]
    together = likelihoods(network, requests, 60)
    for request, one in zip(requests, together, strict=True):
        assert one.logprobs.tobytes() == padded(network, request, 64).tobytes()


def test_the_likeliest_continuation_is_greedy(network):
    request = Request((3, 1, 4), (1, 5))
    ids = [*request.context]
    for _ in range(3):
        with torch.no_grad():
            ids.append(int(network(torch.tensor([ids]))[0, -1].argmax()))
    best = Request(request.context, tuple(ids[3:]))
    other = Request(request.context, (*ids[3:5], (ids[5] + 1) % VOCABULARY))
    assert [one.greedy for one in likelihoods(network, [best, other], 2)] == [True, False]


def test_stock_products_agree_within_rounding(network):
    """native-cpu makes no promise of bits; float32 rounds at 2**-24 of numbers below 100."""
    requests = mixed(20, 150, 5)
    stock = likelihoods(network_of("native-cpu"), requests, 8)
    for one, other in zip(likelihoods(network, requests, 8), stock, strict=True):
        assert np.abs(one.logprobs - other.logprobs).max() < 1e-4


@pytest.mark.parametrize(
    "request_",
    [Request((), (1,)), Request((1,), ()), Request((1,) * LONGEST, (1, 2))],
    ids=["no context", "no continuation", "too long"],
)
def test_what_cannot_be_scored_is_refused(network, request_):
    with pytest.raises(BadUse, match="neither may be empty, and the network reads 640"):
        likelihoods(network, [request_], 1)
    assert len(likelihoods(network, [Request((1,) * LONGEST, (1,))], 1)) == 1


def test_odd_widths_are_refused():
    with pytest.raises(BadUse, match="intermediate_size 40 is no multiple of 16"):
        likelihoods(network_of("portable-x86", intermediate_size=40), [Request((1,), (1,))], 1)
    assert likelihoods(network_of("native-cpu", intermediate_size=40), [Request((1,), (1,))], 1)


def test_a_diverged_network_is_named(network):
    broken = network_of("portable-x86")
    with torch.no_grad():
        broken.lm_head.weight[0, 0] = math.nan
    with pytest.raises(KitError, match="it has diverged"):
        likelihoods(broken, [Request((1,), (1,))], 1)
