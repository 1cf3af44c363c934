"""The plan's memory beside what an update really holds, and the network of full size."""

import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from instella.network.network import Instella
from instella.plan import memory
from instella.recipe.derived import parameter_count
from instella.recipe.settings import Model, Optimizer, Recipe, Schedule, Training
from instella.training.layout import Whole
from instella.training.loop import Trainer
from instella.training.objectives import summed_loss
from instella.training.projection import network_logprobs, recompute_activations
from instella.training.reduction import ALONE

NUMERICS = "native-cpu"
TRAINING = Training(1, 1, Optimizer(1e-3), Schedule("constant"), 0)


class Held(TorchDispatchMode):
    """Bytes of the tensors that live, each storage once, and their peak."""

    def __init__(self, tensors: list[Tensor]) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._live: dict[int, weakref.ref[Any]] = {}
        for tensor in tensors:
            self._note(tensor)

    def __torch_dispatch__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = function(*args, **(kwargs or {}))
        for item in tree_leaves(out):
            if isinstance(item, Tensor):
                self._note(item)
        return out

    def _note(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()

        def gone(_: Any) -> None:
            del self._live[key]
            self.now -= size

        if key not in self._live:
            self._live[key] = weakref.ref(storage, gone)
            self.now += size
            self.peak = max(self.peak, self.now)


def measured(model: Model, rows: int, length: int, checkpointed: bool, training: Training) -> int:
    """Peak of an update of one micro-batch, the moments being there."""
    network = Instella(model, NUMERICS)
    if checkpointed:
        recompute_activations(network)
    layout = Whole(network, ALONE, training.precision)
    trainer = Trainer(network, training.optimizer, training.schedule, 2, ALONE, layout)
    ids = torch.randint(0, model.vocab_size, (rows, length))

    def loss(network: Instella, ids: Tensor) -> tuple[Tensor, dict[str, float]]:
        value = summed_loss(network_logprobs(network, ids, training.logits_at_once)) / ids.numel()
        return value, {"loss": value.item()}

    trainer.update([ids], loss)
    with Held([*trainer.tensors().values(), *network.parameters()]) as held:
        trainer.update([ids], loss)
    return held.peak


@pytest.mark.parametrize("vocabulary", [1024, 8192])
@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_estimate_is_within_a_tenth_of_the_measured_peak(
    vocabulary: int, checkpointed: bool, precision: str
) -> None:
    """Heads of 80, as in the published network."""
    model = Model(
        hidden_size=160, intermediate_size=432, num_hidden_layers=4, num_attention_heads=2,
        vocab_size=vocabulary, max_position_embeddings=256,
    )  # fmt: skip
    training = replace(TRAINING, precision=precision)
    estimate = memory.training_bytes(model, 2 * 256, training, checkpointed)
    assert estimate == pytest.approx(measured(model, 2, 256, checkpointed, training), rel=0.1)


def test_logits_of_a_long_context_never_exist_at_once() -> None:
    """The same update with a sixteenth of the logits at once holds that much less."""
    model = Model(
        hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        vocab_size=8192, max_position_embeddings=512,
    )  # fmt: skip
    whole = measured(model, 1, 512, False, TRAINING)
    parts = replace(TRAINING, logits_at_once=512 * 8192 // 16)
    logits = 12 * 512 * 8192
    assert whole > logits
    assert measured(model, 1, 512, False, parts) < whole - logits / 2


def test_the_network_of_full_size_on_the_meta_device(recipe: Recipe) -> None:
    """Cut over a node as FSDP2 cuts rows, the fullest rank has an eighth and no part above."""
    with torch.device("meta"):
        network = Instella(recipe.model, recipe.numerics)
    parameters = list(network.parameters())
    weights = sum(item.numel() for item in parameters)
    assert weights == parameter_count(recipe.model) == 3_112_675_840
    first = sum(item.chunk(8)[0].numel() for item in parameters)
    assert 16 * first == memory.state_bytes(weights, 8)
