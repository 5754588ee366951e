# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Takes the batches of a torch DataLoader from the global batch, in the sizes of a plan.

Stands in for the loader's batch sampler while batches are drawn. As long as sizes are even it
gives exactly the batches of the program's own DistributedSampler.
"""

from __future__ import annotations

import copy
import sys
import weakref
from array import array
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol

from ullage_run.uneven_agreement import Plan, Position
from ullage_run.uneven_plan import positions

ORDER_MOST: Final = 1 << 26
"""Samples of an epoch whose order is held, 512 MiB."""
EVEN_LEAST: Final = 2
"""Samples a batch of a rank must have: one cannot be divided."""


class Cut(NamedTuple):
    """One batch of this rank."""

    at: Position
    own: int
    """Its samples."""
    total: int
    """Samples of all ranks' batches."""
    plan: int
    """Number of the plan that it was cut by."""


class Planner(Protocol):
    """Knows the sizes of batches."""

    def plan_at(self, source: Source, position: Position) -> Plan:
        """The plan of a full batch that is about to be taken."""
        ...


class Source:
    """Batches of one loader.

    Args:
        loader: A loader that :func:`can_divide`.
        planner: Asked for each full batch.
        number: Number of the loader in the program.
    """

    def __init__(self, loader: Any, planner: Planner, number: int) -> None:
        self._loader = weakref.ref(loader)
        self.planner = planner
        self.number = number
        self.epochs = 0
        """Iterations that were begun."""
        self.following = Position(0, 0)
        """The first batch that was not taken yet."""
        self.data = ""
        """Describes data and order of the last iteration."""

    @property
    def loader(self) -> Any:
        """The loader; it exists as long as one iterates it."""
        return self._loader()

    @property
    def even(self) -> int:
        """Samples of a full batch of each rank."""
        return int(self.loader.batch_size)

    def __len__(self) -> int:
        return len(self.loader.batch_sampler)

    def __iter__(self) -> Stream:
        stream = Stream(self, self.epochs)
        self.epochs += 1
        return stream


class Stream:
    """One iteration of a loader's batches; keeps the cuts that the program has not got yet."""

    def __init__(self, source: Source, epoch: int) -> None:
        loader = source.loader
        sampler = loader.sampler
        self.source = source
        self.epoch, self.index = epoch, 0
        self.taken: deque[Cut] = deque()
        self.delivered = self.used = 0
        """Batches that the program got, and that its model saw."""
        self._rank, self._world = int(sampler.rank), int(sampler.num_replicas)
        self._even, self._drop_last = int(loader.batch_size), bool(loader.drop_last)
        self._order = global_order(sampler)
        self._places: tuple[tuple[int, ...], list[int]] | None = None
        source.following = Position(epoch, 0)
        shuffle = sampler.shuffle and (sampler.seed, sampler.epoch)
        source.data = repr(
            (source.number, epoch, len(self._order), self._world, self._even, shuffle)
        )

    def __iter__(self) -> Iterator[list[int]]:
        return self

    def __next__(self) -> list[int]:
        whole = self._even * self._world
        begin = self.index * whole
        block = self._order[begin : begin + whole]
        if not block or (self._drop_last and len(block) < whole):
            raise StopIteration
        at = Position(self.epoch, self.index)
        if len(block) == whole:
            plan = self.source.planner.plan_at(self.source, at)
            sizes, number = plan.sizes, plan.number
        else:  # the last batch of an epoch
            sizes, number = (len(block) // self._world,) * self._world, 0
        if self._places is None or self._places[0] != sizes:
            self._places = (sizes, positions(sizes, self._rank))
        self.index += 1
        self.source.following = Position(self.epoch, self.index)
        self.taken.append(Cut(at, sizes[self._rank], len(block), number))
        return [block[place] for place in self._places[1]]


def global_order(sampler: Any) -> array[int]:
    """Samples of all ranks in their order: rank r has those at r, r + world and so on.

    The sampler itself gives it to a copy that is told to be the only rank.
    """
    alone = copy.copy(sampler)
    alone.rank, alone.num_replicas = 0, 1
    alone.num_samples = sampler.total_size
    return array("q", alone)


def can_divide(loader: Any, rank: int, world: int) -> bool:
    """True for a loader whose batches are those of a plain DistributedSampler over these ranks."""
    samplers: Any = sys.modules.get("torch.utils.data.sampler")
    distributed: Any = sys.modules.get("torch.utils.data.distributed")
    if samplers is None or distributed is None:
        return False
    batches, sampler = getattr(loader, "batch_sampler", None), getattr(loader, "sampler", None)
    plain = distributed.DistributedSampler
    return (
        type(batches) is samplers.BatchSampler
        and batches.sampler is sampler
        and isinstance(sampler, plain)
        and type(sampler).__iter__ is plain.__iter__
        and getattr(loader, "in_order", True)
        and batches.batch_size == loader.batch_size
        and loader.batch_size >= EVEN_LEAST
        and (sampler.rank, sampler.num_replicas) == (rank, world)
        and sampler.total_size <= ORDER_MOST
    )
