# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Takes the batches of a torch DataLoader from the global batch, in the sizes of a plan.

Stands in for the loader's batch sampler while batches are drawn. As long as sizes are even it
gives exactly the batches of the program's own sampler: torch's DistributedSampler, or the sampler
by which accelerate divides batches.
"""

from __future__ import annotations

import copy
import sys
import weakref
import zlib
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

from ullage_run.uneven_agreement import Position, SizePlan
from ullage_run.uneven_plan import places

ORDER_MOST: Final = 1 << 26
"""Samples of an epoch whose order is held, 512 MiB."""
LISTED_MOST: Final = 1 << 22
"""The same of accelerate, whose batches are lists."""
EVEN_LEAST: Final = 2
"""Samples a batch of a rank must have: one cannot be divided."""


class RankBatch(NamedTuple):
    """One batch of this rank."""

    at: Position
    own: int
    """Its samples."""
    even: int
    """Samples that it would have in an even division."""
    plan: int
    """Number of the plan that it was cut by."""
    full: bool
    """Not a smaller one at the end of an epoch, which is never divided."""


class Planner(Protocol):
    """Knows the sizes of batches."""

    def plan_at(self, source: BatchSource, position: Position) -> SizePlan:
        """The plan of a full batch that is about to be taken."""
        ...


class Deal(Protocol):
    """The even batches of all ranks in one epoch."""

    @property
    def digest(self) -> int:
        """The same for all ranks that read the same data in the same order."""
        ...

    def length(self, index: int, rank: int) -> int:
        """Samples of a rank in a batch; 0 = its epoch has ended."""
        ...

    def sample(self, index: int, rank: int, at: int) -> Any:
        """The sample at a place of a rank's batch."""
        ...


class Strided:
    """Batches of a DistributedSampler: rank r has samples r, r + world and so on of one order.

    Args:
        sampler: The sampler, which is left as it is.
        even: Samples of a full batch of a rank.
        drop_last: A smaller last batch is left out.
    """

    def __init__(self, sampler: Any, even: int, drop_last: bool) -> None:
        # The sampler itself gives the order to a copy that is told to be the only rank.
        alone = copy.copy(sampler)
        alone.rank, alone.num_replicas = 0, 1
        alone.num_samples = sampler.total_size
        self._order: array[int] = array("q", alone)
        self._world, self._even, self._drop_last = int(sampler.num_replicas), even, drop_last
        self.digest = zlib.crc32(self._order)

    def length(self, index: int, rank: int) -> int:
        """Samples of a rank in a batch."""
        left = len(self._order) // self._world - index * self._even
        return 0 if left < self._even and self._drop_last else max(min(left, self._even), 0)

    def sample(self, index: int, rank: int, at: int) -> int:
        """The sample at a place of a rank's batch."""
        return self._order[(index * self._even + at) * self._world + rank]


class ShardedBatches:
    """Batches of accelerate's BatchSamplerShard, from those of the sampler that it divides.

    Args:
        shard: The sampler of this rank; what it divides is drawn once, as it does itself.
    """

    def __init__(self, shard: Any) -> None:
        whole = _Batches(shard.batch_sampler)
        self._parts: list[list[list[Any]]] = []
        for rank in range(shard.num_processes):
            other = copy.copy(shard)
            other.batch_sampler, other.process_index = whole, rank
            self._parts.append(list(other))
        self.digest = zlib.crc32(repr([part[:4] + part[-1:] for part in self._parts]).encode())

    def length(self, index: int, rank: int) -> int:
        """Samples of a rank in a batch."""
        part = self._parts[rank]
        return len(part[index]) if index < len(part) else 0

    def sample(self, index: int, rank: int, at: int) -> Any:
        """The sample at a place of a rank's batch."""
        return self._parts[rank][index][at]


class _Batches:
    """Batches that can be read several times; a reader may change those that it gets."""

    def __init__(self, sampler: Any) -> None:
        self.batch_size, self.drop_last = sampler.batch_size, sampler.drop_last
        self._batches = [list(batch) for batch in sampler]

    def __iter__(self) -> Iterator[list[Any]]:
        return (list(batch) for batch in self._batches)

    def __len__(self) -> int:
        return len(self._batches)


class BatchSource:
    """Batches of one loader.

    Args:
        loader: A loader whose :func:`even_size` is known.
        planner: Asked for each full batch.
        number: Number of the loader in the program.
        rank: Number of this rank.
        world: Number of ranks.
    """

    def __init__(self, loader: Any, planner: Planner, number: int, rank: int, world: int) -> None:
        self._loader = weakref.ref(loader)
        self.planner = planner
        self.number = number
        self.rank, self.world = rank, world
        self.even = even_size(loader, rank, world)
        """Samples of a full batch of each rank."""
        self.epochs = 0
        """Iterations that were begun."""
        self.following = Position(0, 0)
        """The first batch that was not taken yet."""
        self.passed_on = False
        """An outer loader takes batches before it gives them to the program."""
        self.stream: BatchStream | None = None
        """The last iteration."""

    def __len__(self) -> int:
        return len(self._loader().batch_sampler)  # type: ignore[union-attr]

    def __iter__(self) -> BatchStream:
        self.stream = BatchStream(self, self._loader(), self.epochs)
        self.epochs += 1
        return self.stream


class BatchStream:
    """One iteration of a loader's batches.

    Args:
        source: The loader's batches.
        loader: The loader.
        epoch: Number of the iteration.
    """

    def __init__(self, source: BatchSource, loader: Any, epoch: int) -> None:
        self.source = source
        self.epoch, self.index = epoch, 0
        self.taken: deque[RankBatch] = deque()
        """Batches that the loader took and did not return yet."""
        self.arrived: deque[RankBatch] = deque()
        """Batches that it returned, and that the program did not get yet."""
        self.data = ""
        """Describes data and order."""
        self.got = self.used = 0
        """Batches that the program got, and that its model saw."""
        self._loader = loader
        self._deal: Deal | None = None
        self._places: tuple[Sequence[int], list[tuple[int, int]]] = ((), [])
        source.following = Position(epoch, 0)

    def __iter__(self) -> Iterator[list[Any]]:
        return self

    def __next__(self) -> list[Any]:
        source = self.source
        deal = self._deal
        if deal is None:  # now, because a sampler draws random numbers with its first batch
            deal = self._deal = _deal(self._loader, source.even)
            size = len(self._loader.batch_sampler)
            self.data = repr((source.number, self.epoch, size, source.even, deal.digest))
        index, rank = self.index, source.rank
        at = Position(self.epoch, index)
        lengths = [deal.length(index, other) for other in range(source.world)]
        if not lengths[rank]:
            raise StopIteration
        full = min(lengths) == source.even == max(lengths)
        if full:
            plan = source.planner.plan_at(source, at)
            sizes, number = plan.sizes, plan.number
        else:
            sizes, number = tuple(lengths), 0
        self.index += 1
        source.following = Position(self.epoch, self.index)
        self.taken.append(RankBatch(at, sizes[rank], lengths[rank], number, full))
        if not full:
            return [deal.sample(index, rank, place) for place in range(lengths[rank])]
        if self._places[0] != sizes:
            self._places = (sizes, places(sizes, rank))
        return [deal.sample(index, owner, place) for owner, place in self._places[1]]


def _deal(loader: Any, even: int) -> Deal:
    batches = loader.batch_sampler
    if hasattr(batches, "num_processes"):
        return ShardedBatches(batches)
    return Strided(loader.sampler, even, bool(loader.drop_last))


def even_size(loader: Any, rank: int, world: int) -> int:
    """Samples of a full batch of each rank; 0 where the loader's batches cannot be divided.

    Args:
        loader: A DataLoader.
        rank: Number of this rank.
        world: Number of ranks.
    """
    batches = getattr(loader, "batch_sampler", None)
    if batches is None or not getattr(loader, "in_order", True):
        return 0
    samplers: Any = sys.modules["torch.utils.data.sampler"]
    shards: Any = getattr(sys.modules.get("accelerate.data_loader"), "BatchSamplerShard", None)
    size = batches.batch_size if isinstance(getattr(batches, "batch_size", None), int) else 0
    if shards is not None and type(batches) is shards:
        stock = type(batches.batch_sampler) is samplers.BatchSampler
        place = (batches.process_index, batches.num_processes)
        if not stock or place != (rank, world) or size * len(batches.batch_sampler) > LISTED_MOST:
            return 0
        size = size // world if batches.split_batches else size
        return size if size >= EVEN_LEAST else 0
    distributed: Any = sys.modules.get("torch.utils.data.distributed")
    sampler = loader.sampler
    if distributed is None or type(batches) is not samplers.BatchSampler:
        return 0
    plain = distributed.DistributedSampler
    divided = (
        isinstance(sampler, plain)
        and type(sampler).__iter__ is plain.__iter__
        and batches.sampler is sampler
        and batches.batch_size == loader.batch_size
        and batches.drop_last == loader.drop_last
        and (sampler.rank, sampler.num_replicas) == (rank, world)
        and sampler.total_size <= ORDER_MOST
    )
    return size if divided and size >= EVEN_LEAST else 0
