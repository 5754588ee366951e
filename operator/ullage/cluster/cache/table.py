# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One kind's records, shared with snapshots and copied only when they change afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Set
from typing import Generic, TypeVar

from ullage.cluster.projection.pod import ForeignUse
from ullage.cluster.records.pod_rules import AlikePods, PodTraits
from ullage.cluster.records.pod_shape import Resources

Key = TypeVar("Key", bound=Hashable)
Record = TypeVar("Record")


class Table(Generic[Key, Record]):
    """Records by key; ``view`` hands the dict out, the next change makes a new one."""

    def __init__(self) -> None:
        self._items: dict[Key, Record] = {}
        self._lent = False

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: Key) -> Record | None:
        """The record, if there is one."""
        return self._items.get(key)

    def keys(self) -> Iterable[Key]:
        """Every key."""
        return self._items.keys()

    def values(self) -> Iterable[Record]:
        """Every record."""
        return self._items.values()

    def put(self, key: Key, record: Record) -> None:
        """Add or replace a record."""
        self._own()
        self._items[key] = record

    def pop(self, key: Key) -> Record | None:
        """Take a record out."""
        if key not in self._items:
            return None
        self._own()
        return self._items.pop(key)

    def view(self) -> Mapping[Key, Record]:
        """The records as they are now; stays as it is whatever comes later."""
        self._lent = True
        return self._items

    def _own(self) -> None:
        if self._lent:
            self._items = dict(self._items)
            self._lent = False


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
        """By node: pods that keep others away."""

    def __len__(self) -> int:
        return len(self._pods)

    def keys(self) -> Iterable[str]:
        """Uid of every pod that is counted."""
        return self._pods.keys()

    def put(self, uid: str, use: ForeignUse | None) -> set[str]:
        """Count a pod as it is now (``None`` = no more); returns the nodes that changed."""
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
        """The sum on a node; ``None`` where nothing runs."""
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
        """Pods on a node that ask for device slots, by namespace and name."""
        return self._holders.get(node, frozenset())

    def repels(self, uid: str) -> bool:
        """True when a pod keeps others away."""
        use = self._pods.get(uid)
        return use is not None and use.traits is not None and bool(use.traits.anti_affinity)

    def nodes(self) -> Iterable[str]:
        """Nodes with pods that rules can look at."""
        return self._traits.keys()

    def repelling(self) -> Iterable[str]:
        """Nodes with pods that keep others away."""
        return self._repelling.keys()

    def alike(self, node: str) -> tuple[AlikePods, ...]:
        """The pods on a node as rules look at them, those that are alike together."""
        alike = self._alike.get(node)
        if alike is None:
            counts = Counter(self._traits.get(node, {}).values())
            alike = tuple(AlikePods(traits=traits, count=count) for traits, count in counts.items())
            alike = self._alike[node] = tuple(sorted(alike, key=repr))
        return alike

    def _look(self, uid: str, use: ForeignUse, sign: int) -> None:
        """Note what rules can look at of a pod, or that it is gone."""
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
        """Note a holder of slots on a node, or that it holds none any more."""
        if sign > 0:
            self._holders.setdefault(node, set()).add(holder)
            return
        holders = self._holders.get(node, set())
        holders.discard(holder)
        if not holders:
            self._holders.pop(node, None)
