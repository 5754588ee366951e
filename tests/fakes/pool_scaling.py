# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Replicas that look after pools without kopf: a test calls what its timers call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from fakes.clock import FakeClock
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.records.object_ref import ObjectRef
from ullage.handlers.ends import LeaderContext
from ullage.handlers.pool_watch import PoolWatch
from ullage.handlers.pools import PoolScaling
from ullage.ports import Clock
from ullage.prices.asked import Prices
from ullage.scheduling.capacity.pool_status import PriceNews
from ullage.scheduling.model.plan import Action, Emit, SetPoolStatus


class Quotes:
    """Stands in for the prices."""

    def __init__(self) -> None:
        self.of: dict[str, PriceNews] = {}

    def news(self, uid: str) -> PriceNews | None:
        return self.of.get(uid)


class Replica:
    """What a replica knows of pools, and what it wrote."""

    def __init__(self, state: Any, clock: FakeClock) -> None:
        self.state = cast("ClusterState", state)
        self.clock = clock
        self.synced = True
        self.quotes = Quotes()
        self.writes: list[Action] = []
        self.pokes: list[str] = []
        self.watch = PoolWatch(self.state, synced=lambda: self.synced, clock=clock)
        self.lead()

    def lead(self) -> None:
        """A leadership begins."""
        self.leader = leader_of(
            self.state, self.clock, self.watch, submit=self._submit, poke=self.pokes.append
        )
        self.scaling = PoolScaling(self.leader, cast("Prices", self.quotes))

    async def scale(self) -> list[SetPoolStatus]:
        """A turn of every pool; what was written."""
        before = len(self.writes)
        for pool in list(self.state.pools_written().values()):
            await self.scaling.scale(reference(pool.name, pool.uid))
        return [one for one in self.writes[before:] if isinstance(one, SetPoolStatus)]

    @property
    def events(self) -> list[str]:
        return [one.text for one in self.writes if isinstance(one, Emit)]

    def _submit(self, actions: Sequence[Action]) -> None:
        self.writes.extend(actions)


def reference(name: str = "spot-a", uid: str = "uid-spot-a") -> ObjectRef:
    return ObjectRef(kind="CapacityPool", namespace="", name=name, uid=uid)


def leader_of(
    state: ClusterState,
    clock: Clock,
    watch: PoolWatch | None = None,
    *,
    submit: Callable[[Sequence[Action]], None] = lambda _: None,
    poke: Callable[[str], None] = lambda _: None,
) -> LeaderContext:
    """A leader of epoch 7, which has seen no pool yet unless said otherwise."""
    return LeaderContext(
        state=state,
        pool_watch=watch or PoolWatch(state, synced=lambda: True, clock=clock),
        clock=clock,
        epoch=lambda: 7,
        submit=submit,
        poke=poke,
    )
