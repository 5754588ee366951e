# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Foreign bound pods: requests and traits by node, and routers, which belong to services."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Set
from itertools import chain
from typing import Final

from ullage.cluster.cache.stores import Context, Store, uid_of
from ullage.cluster.projection.pod import (
    ForeignUse,
    project_foreign,
    project_router_pod,
    project_unprepared,
)
from ullage.cluster.records.pod import ForeignPod
from ullage.cluster.records.pod_rules import AlikePods, PodTraits
from ullage.cluster.records.pod_shape import Resources
from ullage.cluster.records.router import RouterPod
from ullage.ports import JsonObject

HOLDERS_NAMED: Final = 3
"""Foreign pods named per node that hold device slots: as many as a refusal names."""


class ForeignTable:
    """Requests of foreign bound pods on each node, kept as exact running sums.

    Every bound pod is counted, whatever its node, because the node may become ours later; only
    the sums of our nodes reach a snapshot.
    """

    def __init__(self) -> None:
        self._pods: dict[str, ForeignUse] = {}
        self._sums: dict[str, Counter[str]] = {}
        self._built: dict[str, Resources] = {}
        self._holders: dict[str, set[str]] = {}
        self._traits: dict[str, dict[str, PodTraits]] = {}
        """By node, then uid."""
        self._alike: dict[str, tuple[AlikePods, ...]] = {}
        self._repelling: Counter[str] = Counter()
        """By node: pods with anti-affinity against others."""

    def __len__(self) -> int:
        return len(self._pods)

    def keys(self) -> Iterable[str]:
        """Uid of every counted pod."""
        return self._pods.keys()

    def put(self, uid: str, use: ForeignUse | None) -> set[str]:
        """Update the count of a pod (``None`` = removed); returns the changed nodes."""
        before = self._pods.get(uid)
        if before == use:
            return set()
        touched = set()
        if before is not None:
            self._count(before, -1)
            self._look(uid, before, -1)
            touched.add(before.node)
            del self._pods[uid]
        if use is not None:
            self._count(use, 1)
            self._look(uid, use, 1)
            touched.add(use.node)
            self._pods[uid] = use
        return touched

    def use(self, node: str) -> Resources | None:
        """The sum on a node; ``None`` if nothing runs."""
        built = self._built.get(node)
        sums = self._sums.get(node)
        if built is not None or not sums:
            return built
        extended = (
            (name.removeprefix("="), amount)
            for name, amount in sums.items()
            if name.startswith("=") and amount
        )
        built = Resources(
            cpu_milli=sums["cpu"],
            memory_bytes=sums["memory"],
            pods=sums["pods"],
            extended=tuple(sorted(extended)),
        )
        self._built[node] = built
        return built

    def slot_holders(self, node: str) -> Set[str]:
        """Pods on a node that request device slots, by namespace and name."""
        return self._holders.get(node, frozenset())

    def repels(self, uid: str) -> bool:
        """True when a pod has anti-affinity against others."""
        use = self._pods.get(uid)
        return use is not None and use.traits is not None and bool(use.traits.anti_affinity)

    def nodes(self) -> Iterable[str]:
        """Nodes with pods relevant to rules."""
        return self._traits.keys()

    def repelling(self) -> Iterable[str]:
        """Nodes with pods that have anti-affinity against others."""
        return self._repelling.keys()

    def alike(self, node: str) -> tuple[AlikePods, ...]:
        """The pods on a node as seen by rules, equal ones combined."""
        alike = self._alike.get(node)
        if alike is None:
            counts = Counter(self._traits.get(node, {}).values())
            alike = tuple(AlikePods(traits=traits, count=count) for traits, count in counts.items())
            alike = self._alike[node] = tuple(sorted(alike, key=repr))
        return alike

    def _look(self, uid: str, use: ForeignUse, sign: int) -> None:
        """Record a pod's traits for rules, or its removal."""
        traits = use.traits
        if traits is None:
            return
        self._alike.pop(use.node, None)
        on_node = self._traits.setdefault(use.node, {})
        if sign > 0:
            on_node[uid] = traits
        else:
            del on_node[uid]
        if traits.anti_affinity:
            self._repelling[use.node] += sign
            if not self._repelling[use.node]:
                del self._repelling[use.node]
        if not on_node:
            del self._traits[use.node]

    def _count(self, use: ForeignUse, sign: int) -> None:
        self._built.pop(use.node, None)
        if use.slot_holder:
            self._hold(use.node, use.slot_holder, sign)
        sums = self._sums.setdefault(use.node, Counter())
        sums["cpu"] += sign * use.requests.cpu_milli
        sums["memory"] += sign * use.requests.memory_bytes
        sums["pods"] += sign * use.requests.pods
        for name, amount in use.requests.extended:
            sums["=" + name] += sign * amount
        if not sums["pods"]:
            del self._sums[use.node]

    def _hold(self, node: str, holder: str, sign: int) -> None:
        """Record a holder of slots on a node, or that it holds none any more."""
        if sign > 0:
            self._holders.setdefault(node, set()).add(holder)
            return
        holders = self._holders.get(node, set())
        holders.discard(holder)
        if not holders:
            self._holders.pop(node, None)


class ForeignStore(Store[str]):
    """Foreign bound pods: sums on our nodes, and routers, which belong to services."""

    def __init__(self, stream: str, context: Context, wanted: Callable[[str], bool]) -> None:
        super().__init__(stream, context)
        self.table = ForeignTable()
        self._besides = ForeignTable()
        self._wanted = wanted
        self._shown: dict[str, tuple[AlikePods, ...]] = {}
        self.unprepared: dict[str, ForeignPod] = {}
        """Pods whose labels request a device, and that no admission policy prepared; by uid."""
        self.routers: dict[str, RouterPod] = {}
        """Pods that claim to route requests of a service; by uid."""

    def __len__(self) -> int:
        return len(self.table)

    def keys(self) -> Iterable[str]:
        """Uid of every counted pod."""
        return self.table.keys()

    def key(self, raw: JsonObject) -> str:
        """Uid of the pod."""
        return uid_of(raw)

    def put(self, raw: JsonObject, now: float) -> bool:
        """Update the count of a pod."""
        uid, use = project_foreign(raw, self.context.share)
        unprepared = project_unprepared(raw) if use is not None else None
        if unprepared is None:
            self.unprepared.pop(uid, None)
        else:
            self.unprepared[uid] = unprepared
        routes = self._route(uid, project_router_pod(raw) if use is not None else None)
        return self._count(self.table, uid, use) or routes

    def drop(self, key: str) -> bool:
        """Stop counting a pod."""
        self.unprepared.pop(key, None)
        routes = self._route(key, None)
        return self._count(self.table, key, None) or routes

    def count_besides(self, uid: str, use: ForeignUse | None) -> bool:
        """Count a pod of another stream that was found to be foreign (``None`` = no longer)."""
        return self._count(self._besides, uid, use)

    def use(self, node: str) -> Resources | None:
        """Requests of foreign pods on a node; ``None`` if none runs."""
        use, besides = self.table.use(node), self._besides.use(node)
        return use + besides if use is not None and besides is not None else use or besides

    def slot_holders(self, node: str) -> tuple[str, ...]:
        """Some of the foreign pods that hold device slots of a node, by name."""
        holders = self.table.slot_holders(node) | self._besides.slot_holders(node)
        return tuple(sorted(holders)[:HOLDERS_NAMED])

    def alike(self, *, all_pods: bool) -> dict[str, tuple[AlikePods, ...]]:
        """Pods by node as seen by rules; else only on nodes with some that repel others."""
        tables = (self.table, self._besides)
        nodes = {
            node for table in tables for node in (table.nodes() if all_pods else table.repelling())
        }
        shown: dict[str, tuple[AlikePods, ...]] = {}
        for node in sorted(nodes):
            parts = [part for table in tables if (part := table.alike(node))]
            alike = parts[0] if len(parts) == 1 else tuple(chain.from_iterable(parts))
            before = self._shown.get(node)
            shown[node] = before if before is not None and before == alike else alike
        self._shown = shown
        return shown

    def _route(self, uid: str, pod: RouterPod | None) -> bool:
        """Store a router; returns True if decisions see a change."""
        before = self.routers.pop(uid, None)
        if pod is not None:
            self.routers[uid] = pod
        if (before.fault if before else "") == (pod.fault if pod else ""):
            return False
        self.context.touch()
        return True

    def _count(self, table: ForeignTable, uid: str, use: ForeignUse | None) -> bool:
        """Update the count of a pod; returns True if a decision could see the change."""
        repels = table.repels(uid)
        nodes = table.put(uid, use)
        repels = bool(nodes) and (repels or table.repels(uid))
        visible = repels or any(self._wanted(node) for node in nodes)
        if visible:
            self.context.touch()
        return visible
