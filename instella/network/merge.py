"""Uniform mean of the weights of several networks."""

from collections.abc import Sequence

from torch import Tensor

from instella.errors import VerificationError

State = dict[str, Tensor]


def mean_state(states: Sequence[State]) -> State:
    """Mean of each tensor over ``states``: summed in their order, then divided.

    The sum is float64 and is rounded once, at the end; addition and division are exactly
    rounded, so they are the same on every processor. The published script sums in
    float32 and rounds twice more: its results differ by a unit in the last place of the
    largest summand.

    Args:
        states: state dicts with equal names, shapes and floating dtypes; at least one.

    Returns:
        the mean, in the dtype of the input.

    Raises:
        VerificationError: the states do not match.
    """
    if not states:
        raise VerificationError("mean of weights: no states given")
    first = states[0]
    for index, state in enumerate(states[1:], start=1):
        _check_same(first, state, index)
    return {name: _mean([state[name] for state in states]) for name in first}


def _mean(tensors: list[Tensor]) -> Tensor:
    total = tensors[0].double()
    for tensor in tensors[1:]:
        total = total + tensor.double()
    return (total / len(tensors)).to(tensors[0].dtype)


def _check_same(first: State, state: State, index: int) -> None:
    if first.keys() != state.keys():
        name = min(first.keys() ^ state.keys())
        raise VerificationError(f"mean of weights: {name} is not in all of states 0 and {index}")
    for name, tensor in first.items():
        other = state[name]
        if tensor.shape != other.shape or tensor.dtype != other.dtype:
            raise VerificationError(
                f"mean of weights: {name} is {tensor.dtype} {list(tensor.shape)} in state 0 "
                f"and {other.dtype} {list(other.shape)} in state {index}"
            )
        if not tensor.is_floating_point():
            raise VerificationError(f"mean of weights: {name} holds {tensor.dtype}, not floats")
