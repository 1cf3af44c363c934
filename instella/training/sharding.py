"""FSDP2: every rank of a shard group holds some rows of each parameter.

torch's ``fully_shard`` gathers a layer's parameters before the layer runs and gives every rank
its rows of the gradients after it. What is added is added here, along the tree over the
micro-batches that ``reduction.py`` adds along where each rank holds the whole network, so the
sum has the same bits. Leaf i of a replica's block is run by rank i modulo S of its S ranks: the
lowest levels of the tree are the reduce-scatter after each micro-batch, those above are added
up by each rank for its rows, and the levels above a block are the sum over the replicas, once
an update. docs/scaling.md tells more.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from instella.errors import BadUse, VerificationError
from instella.recipe import settings
from instella.training.joining import subgroup
from instella.training.layout import Layout, Whole, take_gradient
from instella.training.ledger import numbers_digest, tensor_digest, tensor_digests, with_root
from instella.training.optimizer import STEP, Part, sum_of_squares
from instella.training.precision import DTYPES
from instella.training.reduction import ALONE, Group, Partial

DIGEST_BYTES = 32
# Adding it changes no number, not even the sign of a zero.
NOTHING = -0.0


def lay_out(
    network: nn.Module, group: Group, chosen: settings.Sharding, precision: str = "float32"
) -> Layout:
    """Shard the network over the ranks, in place, if that is wanted and there are several.

    Args:
        network: whole, float32, with the weights to start from.
        group: all processes.
        chosen: how.
        precision: a name of ``DTYPES``.

    Raises:
        BadUse: the shard groups do not fit the ranks.
    """
    size = {"none": 1, "full": group.ranks, "hybrid": chosen.ranks}[chosen.kind]
    if size is None or size > group.ranks or group.ranks % size:
        raise BadUse(
            f"sharding.ranks is {size}: hybrid sharding over {group.ranks} ranks needs a divisor "
            "of their number"
        )
    if size == 1:
        return Whole(network, group, precision)
    return Sharded(network, group, size, chosen.wrap, precision)


class TreeReduceScatter:
    """What FSDP calls for a reduce-scatter: adds along the tree.

    Args:
        shards: the ranks that share a copy.

    Attributes:
        idle: this rank repeats another's micro-batch, and its gradients do not count.
    """

    def __init__(self, shards: Group) -> None:
        self._shards = shards
        self.idle = False

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """A buffer of FSDP's."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: Any,
        op: Any,
        async_op: bool = False,
    ) -> None:
        """Fill ``output_tensor`` [n] from ``input_tensor`` [ranks * n], which is used up."""
        if self.idle:
            input_tensor.fill_(NOTHING)
        output_tensor.copy_(self._shards.scatter_sum(input_tensor.view(self._shards.ranks, -1)))


class Sharded:
    """Rows of every parameter on each rank of a shard group; replicas of such groups.

    Args:
        network: whole, the same in every rank; sharded in place.
        group: all ranks; a shard group has ranks that follow each other.
        size: ranks of a shard group.
        wrap: ``block``: a layer is gathered at a time; ``model``: the whole network is.
        precision: a name of ``DTYPES``.
    """

    def __init__(
        self, network: nn.Module, group: Group, size: int, wrap: str, precision: str
    ) -> None:
        self.group = group
        self.rank = group.rank
        self.shards, self.replicas = _split(group, size)
        self._read = [tensor_digests(dict(network.named_parameters()))["root"]]
        shapes = {name: item.shape for name, item in network.named_parameters()}
        self._reduce = TreeReduceScatter(self.shards)
        _wrap(network, self.shards, wrap, precision, self._reduce)
        self._sources = list(network.parameters())
        self.parts = [
            Part(name, _local(item), self._rows(shapes[name], self.shards.rank).start, shapes[name])
            for name, item in network.named_parameters()
        ]
        self._numbers = {part.name: number for number, part in enumerate(self.parts)}
        self._owners = _owners([part.shape.numel() for part in self.parts], size)

    def refresh(self) -> None:
        """Nothing: each pass gathers what ``parts`` hold, and rounds it."""

    def leaves(self, count: int) -> range:
        """Every S-th of the block of this replica; a rank without one repeats another's."""
        block = self.replicas.block(count)
        active = min(self.shards.ranks, len(block))
        self._reduce.idle = self.shards.rank >= active
        return block[self.shards.rank % active :: active] if block else block

    def leaf(self, figures: dict[str, float]) -> Partial:
        """This rank's rows of the sum over the micro-batches that the group has just run."""
        names = sorted(figures)
        packed = torch.tensor([figures[name] for name in names], dtype=torch.float64)
        if self._reduce.idle:
            packed.fill_(NOTHING)
        self.shards.add_roots_([packed], self.shards.ranks)
        gradients = []
        for source, part in zip(self._sources, self.parts, strict=True):
            gradients.append(take_gradient(source).to_local().view(part.tensor.shape))
        return Partial(gradients, dict(zip(names, packed.tolist(), strict=True)))

    def combine(self, partial: Partial | None, count: int) -> Partial:
        """Add the replicas' sums; within a group ``leaf`` has added."""
        return self.replicas.combine(partial, [part.tensor for part in self.parts], count)

    def squares(self, gradients: Sequence[Tensor]) -> float:
        """Each tensor's in its owner, as ``sum_of_squares`` has it, then in one order."""
        whole = self._transposed(gradients, self._owners)
        table = torch.full([len(self.parts)], NOTHING, dtype=torch.float64)
        for number, tensor in whole.items():
            table[number] = sum_of_squares([tensor])
        self.shards.add_roots_([table], self.shards.ranks)
        total = 0.0
        for value in table.tolist():
            total += value
        return total

    def digest_together(self, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """As ``tensor_digests`` of the whole tensors; each is digested by its owner."""
        names = sorted(tensors)
        table = torch.zeros(len(names), DIGEST_BYTES, dtype=torch.uint8)
        for name, tensor in self.owned(tensors).items():
            digest = bytearray.fromhex(tensor_digest(tensor))
            table[names.index(name)] = torch.frombuffer(digest, dtype=torch.uint8)
        self.shards.add_roots_([table], self.shards.ranks)  # zero in all ranks but one
        digests = [bytes(row).hex() for row in table.tolist()]
        return with_root(dict(zip(names, digests, strict=True)))

    def start_digest(self, tensors: Mapping[str, Tensor]) -> str:
        """Of what this rank read: the group's parts together would hide which rank differs."""
        return numbers_digest("read", self._read)

    def note(self, digest: str) -> None:
        """Remember what this rank has read, for ``start_digest``."""
        self._read.append(digest)

    def cut(self, tensors: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
        """This rank's rows; names as of ``Trainer.tensors``.

        Raises:
            VerificationError: a tensor has not the parameter's shape.
        """
        self.note(tensor_digests(tensors)["root"])
        cut = {}
        for name, tensor in tensors.items():
            number = self._numbers.get(_parameter(name))
            if number is not None and tensor.shape != self.parts[number].shape:
                raise VerificationError(
                    f"{where}: {name} is {list(tensor.shape)}, the network has "
                    f"{list(self.parts[number].shape)}"
                )
            cut[name] = tensor if number is None else tensor[self.rows(name)]
        return cut

    def rows(self, name: str) -> slice | None:
        """The rows of a tensor, named as of ``Trainer.tensors``, that this rank holds."""
        number = self._numbers.get(_parameter(name))
        return None if number is None else self._rows(self.parts[number].shape, self.shards.rank)

    def gathered(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Whole tensors on rank 0; the other replicas do nothing."""
        if self.replicas.rank:
            return {}
        return self.owned(tensors, [0] * len(self.parts))

    def owned(
        self, tensors: Mapping[str, Tensor], owners: Sequence[int] | None = None
    ) -> dict[str, Tensor]:
        """The whole tensors that this rank of its shard group owns, as copies.

        Args:
            tensors: this rank's parts, named as of ``Trainer.tensors``, the same names in
                every rank; what is no part of a parameter is owned by the first rank.
            owners: rank of the group for each parameter; None for a fair share.
        """
        owned = {}
        kinds: dict[str, list[str]] = {}
        for name in sorted(tensors):
            if name == STEP:
                owned.update({name: tensors[name]} if self.shards.rank == 0 else {})
            else:
                kinds.setdefault(name.partition(".")[0], []).append(name)
        for kind, names in sorted(kinds.items()):
            order = sorted(names, key=lambda name: self._numbers[_parameter(name)])
            whole = self._transposed([tensors[name] for name in order], owners or self._owners)
            owned.update({f"{kind}.{self.parts[i].name}": item for i, item in whole.items()})
        return owned

    def _transposed(self, locals_: Sequence[Tensor], owners: Sequence[int]) -> dict[int, Tensor]:
        """From a part of every tensor to every part of some: the whole tensors owned, by number."""
        ranks, own = self.shards.ranks, self.shards.rank
        groups = [[i for i, owner in enumerate(owners) if owner == rank] for rank in range(ranks)]
        order = [i for group in groups for i in group]
        sent = torch.cat([locals_[i].detach().reshape(-1) for i in order])
        sizes = [sum(locals_[i].numel() for i in group) for group in groups]
        counts = [[self._count(i, rank) for i in groups[own]] for rank in range(ranks)]
        received = sent.new_empty(sum(map(sum, counts)))
        dist.all_to_all_single(
            received, sent, [sum(row) for row in counts], sizes, group=self.shards.members
        )
        pieces = received.split([count for row in counts for count in row])
        width = len(groups[own])
        return {
            number: torch.cat(pieces[place::width]).view(self.parts[number].shape)
            for place, number in enumerate(groups[own])
        }

    def _count(self, number: int, rank: int) -> int:
        shape = self.parts[number].shape
        rows = self._rows(shape, rank)
        return (rows.stop - rows.start) * (shape.numel() // shape[0])

    def _rows(self, shape: torch.Size, rank: int) -> slice:
        """FSDP2 cuts the first dimension as ``torch.chunk`` does."""
        step = -(-shape[0] // self.shards.ranks)
        return slice(min(rank * step, shape[0]), min((rank + 1) * step, shape[0]))


def _parameter(name: str) -> str:
    return name.partition(".")[2]


def _split(group: Group, size: int) -> tuple[Group, Group]:
    """Shard group and replicas of this rank; every rank forms all groups, in one order."""
    if size == group.ranks:
        return group, ALONE
    replicas = group.ranks // size
    own, place = divmod(group.rank, size)
    made = [subgroup(range(n * size, (n + 1) * size), n == own) for n in range(replicas)]
    across = [subgroup(range(n, group.ranks, size), n == place) for n in range(size)]
    return Group(place, size, made[own]), Group(own, replicas, across[place])


def _wrap(
    network: nn.Module, shards: Group, wrap: str, precision: str, reduce: TreeReduceScatter
) -> None:
    # half a second of import that only a sharded stage pays
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import (
        FSDPModule,
        MixedPrecisionPolicy,
        fully_shard,
        register_fsdp_forward_method,
    )

    members = shards.members or dist.group.WORLD
    assert members is not None
    mesh = DeviceMesh.from_group(members, next(network.parameters()).device.type)
    layers = [
        layer
        for module in network.modules()
        if isinstance(module, nn.ModuleList) and wrap == "block"
        for layer in module
    ]
    policy = MixedPrecisionPolicy(
        param_dtype=DTYPES[precision],
        reduce_dtype=torch.float32,
        # a layer's inputs have the dtype they need, the rotary table too, which is float32
        cast_forward_inputs=False,
    )
    for module in (*layers, network):
        fully_shard(module, mesh=mesh, mp_policy=policy)
        assert isinstance(module, FSDPModule)
        module.set_custom_reduce_scatter(reduce)  # type: ignore[arg-type]
        # the losses are divided by what they have to be; FSDP's own mean would round again
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)
    assert isinstance(network, FSDPModule)
    network.set_reduce_scatter_unused_params(True)
    # losses call these two; the head's weight stays gathered behind the first
    register_fsdp_forward_method(network, "hidden")


def _local(parameter: Any) -> nn.Parameter:
    return nn.Parameter(parameter.to_local().detach())


def _owners(sizes: Sequence[int], ranks: int) -> list[int]:
    """A rank for each tensor, the largest first and to whom has least; the same everywhere."""
    load, owners = [0] * ranks, [0] * len(sizes)
    for number in sorted(range(len(sizes)), key=lambda number: (-sizes[number], number)):
        owner = load.index(min(load))
        owners[number] = owner
        load[owner] += sizes[number]
    return owners
