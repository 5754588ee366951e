# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A pool and its nodes, looked at again and again as the operator does."""

from __future__ import annotations

from dataclasses import replace

from ullage.api.codec import wire_name
from ullage.api.interruptions import Interruption, InterruptionKind
from ullage.api.pricesource import PriceSource
from ullage.api.spec import SpecReader
from ullage.api.words import PriceSourceType
from ullage.cluster.codecs.status import pool_as_stored
from ullage.cluster.records.node import NodeRecord
from ullage.cluster.records.pod_shape import Resources, Taint
from ullage.cluster.records.pool import CapacityType, PoolRecord, PoolStatus
from ullage.cluster.records.snapshot import Snapshot
from ullage.engines.capacity.price import PriceRecord, Quote
from ullage.scheduling.capacity.hazard import Learning, observed
from ullage.scheduling.capacity.pool_status import PriceNews, current
from ullage.scheduling.inventory.instances import Sighting, Watch, look

START_S = 1_000_000.0
MINUTE_S = 60.0
HOUR_S = 3600.0


_SOURCE = SpecReader(PriceSource, "priceSource")


def price_source(word: str, **details: object) -> PriceSource:
    """``spec.priceSource`` of this type, read from what the wire says of it."""
    return _SOURCE({"type": word, wire_name(PriceSourceType(word).attribute): details})


def a_pool(name: str = "spot-a", **fields: object) -> PoolRecord:
    """A spot pool whose nodes have the label ``pool``."""
    default: dict[str, object] = {
        "name": name,
        "uid": f"uid-{name}",
        "generation": 1,
        "instance_type": "p3.2xlarge",
        "zone": "us-east-1a",
        "capacity_type": CapacityType.SPOT,
        "accelerator": "emulated",
        "node_selector": {"pool": name},
    }
    return PoolRecord(**(default | fields))  # type: ignore[arg-type]


def a_member(
    name: str, pool: str = "spot-a", *, created: float = START_S, **fields: object
) -> NodeRecord:
    """A node of a pool that was ready a minute and a half after it was made."""
    default: dict[str, object] = {
        "name": name,
        "uid": f"uid-{name}",
        "labels": {"pool": pool, "kubernetes.io/hostname": name},
        "taints": (),
        "allocatable": Resources(),
        "ready": True,
        "created": created,
        "ready_since": created + 90.0,
    }
    return NodeRecord(**(default | fields))  # type: ignore[arg-type]


def notice(kind: InterruptionKind, source: str = "") -> Interruption:
    return Interruption(kind=kind, source=source)


def tainted(node: NodeRecord, key: str) -> NodeRecord:
    return replace(node, taints=(Taint(key=key, value="", effect="NoSchedule"),))


class PoolWatch:
    """One process that looks at one pool; ``restart`` makes it a new one."""

    def __init__(self, pool: PoolRecord | None = None, learning: Learning | None = None) -> None:
        self.pool = pool or a_pool()
        self.learning = learning or Learning()
        self.now = START_S
        self.status = PoolStatus()
        self.news: PriceNews | None = None
        self._watch = Watch()

    def look(self, *nodes: NodeRecord, after_s: float = 0.0) -> Sighting:
        """Let time pass, then look at what is there."""
        self.now += after_s
        written = replace(self.pool, status=self.status)
        snapshot = Snapshot(
            version=1,
            taken_at=self.now,
            nodes={node.name: node for node in nodes},
            pools={self.pool.name: written},
        )
        self._watch, sightings = look(self._watch, snapshot, [written], self.now)
        seen = sightings[self.pool.uid]
        known = observed(self.pool, self.status, seen, self.now, self.learning)
        self.status = current(self.pool, self.status, known, self.news, self.now, self.learning)
        return seen

    def hold(self, *nodes: NodeRecord, hours: float, step_s: float = 300.0) -> None:
        """Look on while nothing happens."""
        for _ in range(round(hours * HOUR_S / step_s)):
            self.look(*nodes, after_s=step_s)

    def quote(self, price: float) -> None:
        before = self.news.record if self.news is not None else PriceRecord()
        self.news = PriceNews(record=before.quoted(Quote(price_per_hour=price, at_s=self.now)))

    def restart(self, down_s: float = 0.0) -> None:
        """A new process finds what the status says, and nothing else."""
        self.status = pool_as_stored(self.status)
        self._watch = Watch()
        self.now += down_s
