# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pods by node while a plan is made, counted for the rules that match them.

Covers all nodes of the cluster and all bound pods, ours and those of others: topology domains
extend beyond the nodes with devices. A count is made when a rule first needs it, and updated as our
pods are added and removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from ullage.api.reasons import Reason
from ullage.cluster.records.node import NodeRecord
from ullage.cluster.records.pod import PodRecord
from ullage.cluster.records.pod_rules import Labels, LabelSelector, PodTerm, PodTraits
from ullage.cluster.records.snapshot import Snapshot
from ullage.scheduling.inventory.inventory import Flags, Ints
from ullage.scheduling.prediction.effort import Effort

_LOOKED_AT: Final = 256
"""Distinct pods matched in about the time of one check (unmeasured)."""
_PASSED: Final = 4096
"""Pods counted in that time (unmeasured)."""
_NAME_LABEL: Final = "kubernetes.io/metadata.name"
Look = Callable[[PodTraits], bool]
"""Predicate: a rule counts a pod."""
Placed = Callable[[], Iterable[tuple[str, PodRecord]]]
"""Our pods, each with the name of its present or planned node."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A rule, the nodes that it excludes, and the text for one of these nodes."""

    reason: Reason
    nodes: Flags
    """By node of the cluster."""
    why: Callable[[int], str]


@dataclass(frozen=True, slots=True)
class _PodCount:
    """Number of pods that a rule matches, by node."""

    spaces: frozenset[str] | None
    """Their possible namespaces; ``None`` = all."""
    look: Look
    pods: Ints


class PodsOnNodes:
    """Pods by node."""

    def __init__(self, snapshot: Snapshot, placed: Placed, effort: Effort) -> None:
        """``placed`` is called at the first count."""
        self.nodes: tuple[NodeRecord, ...] = tuple(
            snapshot.nodes[name] for name in sorted(snapshot.nodes)
        )
        self.index = {node.name: at for at, node in enumerate(self.nodes)}
        self.effort = effort
        self._known = snapshot.pods
        self._expected: dict[str, PodRecord] = {}
        self._spaces = snapshot.namespaces
        self._placed: Placed | None = placed
        self._moves: list[tuple[str, str]] = []
        """Pods that were placed (or removed, without a node) before the first count."""
        self._own: dict[str, tuple[int, PodTraits]] = {}
        self._of_space: dict[str, dict[str, tuple[int, PodTraits]]] = {}
        self._others: dict[str, list[tuple[int, PodTraits, int]]] = {}
        self._bearers: dict[PodTerm, dict[int, int]] = {}
        self._counts: dict[object, _PodCount] = {}
        self._domains: dict[str, Ints] = {}
        self._judged: dict[object, tuple[object, Ints]] = {}
        self._chosen: dict[LabelSelector, frozenset[str]] = {}
        for name, alike in snapshot.pods_around.items():
            at = self.index.get(name)
            if at is None:
                continue
            for group in alike:
                others = self._others.setdefault(group.traits.namespace, [])
                others.append((at, group.traits, group.count))
                self._bear(group.traits, at, group.count)

    def copy(self) -> PodsOnNodes:
        """An independent copy."""
        new = object.__new__(PodsOnNodes)
        new.__dict__.update(self.__dict__)
        new._moves = list(self._moves)
        new._own = dict(self._own)
        new._of_space = {space: dict(pods) for space, pods in self._of_space.items()}
        new._bearers = {term: dict(nodes) for term, nodes in self._bearers.items()}
        new._counts = {
            key: _PodCount(counted.spaces, counted.look, counted.pods.copy())
            for key, counted in self._counts.items()
        }
        return new

    def expect(self, pods: Iterable[PodRecord]) -> None:
        """Add our future pods that may be placed on nodes."""
        self._expected.update((pod.uid, pod) for pod in pods)

    def put(self, uid: str, node: str) -> None:
        """Place a pod of ours on a node."""
        if self._placed is not None:
            self._moves.append((uid, node))
            return
        pod = self._known.get(uid) or self._expected.get(uid)
        if pod is not None and uid not in self._own:
            self._enter(pod, node)

    def lift(self, uid: str) -> None:
        """Remove one of our pods from its node."""
        if self._placed is not None:
            self._moves.append((uid, ""))
            return
        placed = self._own.pop(uid, None)
        if placed is not None:
            at, traits = placed
            del self._of_space[traits.namespace][uid]
            self._bear(traits, at, -1)
            self._recount(traits, at, -1)

    def terms(self) -> Iterable[PodTerm]:
        """Anti-affinity terms of pods that are not ours."""
        return tuple(
            dict.fromkeys(
                term
                for pods in self._others.values()
                for _, traits, _ in pods
                for term in traits.anti_affinity
            )
        )

    def bearing(self, term: PodTerm) -> Ints:
        """By node: pods that have a term of anti-affinity."""
        self._fill()
        bearers = np.zeros(len(self.nodes), dtype=np.int64)
        for at, count in self._bearers.get(term, {}).items():
            bearers[at] = count
        return bearers

    def count(self, key: object, spaces: Iterable[str] | None, look: Look) -> Ints:
        """By node: pods that a rule matches; callers do not change the result.

        Args:
            key: Identifies the count; equal keys mean equal ``spaces`` and ``look``.
            spaces: Namespaces that the pods may be in; ``None`` = all.
            look: Predicate of a pod in one of these: it counts.
        """
        self._fill()
        counted = self._counts.get(key)
        if counted is None:
            names = None if spaces is None else frozenset(spaces)
            pods = np.zeros(len(self.nodes), dtype=np.int64)
            seen, verdicts = 0, dict[int, bool]()
            for at, traits, count in self._within(names):
                seen += 1
                wanted = verdicts.get(id(traits))
                if wanted is None:
                    wanted = verdicts[id(traits)] = look(traits)
                if wanted:
                    pods[at] += count
            self.effort.spent += 1 + len(verdicts) // _LOOKED_AT + seen // _PASSED
            counted = self._counts[key] = _PodCount(names, look, pods)
        return counted.pods

    def domains(self, key: str) -> Ints:
        """By node: the number of its value of a label, -1 without one."""
        column = self._domains.get(key)
        if column is None:
            numbers: dict[str, int] = {}
            domains = [
                -1 if (value := node.labels.get(key)) is None else numbers.setdefault(value, at)
                for at, node in enumerate(self.nodes)
            ]
            column = self._domains[key] = np.array(domains, dtype=np.int64)
        return column

    def around(self, key: str, pods: Ints) -> Ints:
        """By node: pods in its whole domain; 0 for a node in no domain."""
        domains = self.domains(key)
        inside = domains >= 0
        sums = np.bincount(domains[inside], weights=pods[inside], minlength=len(self.nodes))
        return np.where(inside, sums.astype(np.int64)[domains], 0)

    def judged(self, key: object, rests_on: object, judge: Callable[[], Ints]) -> Ints:
        """By node: a figure that no pod changes; computed once while ``rests_on`` is the object."""
        entry = self._judged.get(key)
        if entry is None or entry[0] is not rests_on:
            entry = self._judged[key] = rests_on, judge()
        return entry[1]

    def selected(self, term: PodTerm) -> frozenset[str] | None:
        """Namespaces that a term selects; ``None`` = all that have a pod."""
        selector = term.namespace_selector
        if selector is None:
            return frozenset(term.namespaces)
        if not selector.requirements:
            return None
        selected = self._chosen.get(selector)
        if selected is None:
            ours = {pod.namespace for pod in self._known.values()}
            selected = frozenset(
                name
                for name in self._spaces.keys() | self._others.keys() | ours
                if selector.matches({_NAME_LABEL: name, **dict(self._spaces.get(name, ()))})
            )
            self._chosen[selector] = selected
        return selected.union(term.namespaces)

    def _fill(self) -> None:
        """Update with our own pods and their moves."""
        if self._placed is None:
            return
        placed, self._placed = self._placed(), None
        for name, pod in placed:
            self._enter(pod, name)
        for uid, name in self._moves:
            if name:
                self.put(uid, name)
            else:
                self.lift(uid)

    def _within(self, spaces: frozenset[str] | None) -> Iterator[tuple[int, PodTraits, int]]:
        names = self._others.keys() | self._of_space.keys() if spaces is None else spaces
        for name in names:
            yield from self._others.get(name, ())
            for at, traits in self._of_space.get(name, {}).values():
                yield at, traits, 1

    def _enter(self, pod: PodRecord, node: str) -> None:
        at = self.index.get(node)
        if at is None:
            return
        traits = pod.traits
        self._own[pod.uid] = at, traits
        self._of_space.setdefault(pod.namespace, {})[pod.uid] = at, traits
        self._bear(traits, at, 1)
        self._recount(traits, at, 1)

    def _bear(self, traits: PodTraits, at: int, count: int) -> None:
        for term in traits.anti_affinity:
            nodes = self._bearers.setdefault(term, {})
            nodes[at] = nodes.get(at, 0) + count

    def _recount(self, traits: PodTraits, at: int, count: int) -> None:
        for counted in self._counts.values():
            inside = counted.spaces is None or traits.namespace in counted.spaces
            if inside and counted.look(traits):
                counted.pods[at] += count


def fits(term: PodTerm, labels: Labels) -> bool:
    """True when a term's label selector matches; namespaces are not tested."""
    return term.selector is not None and term.selector.matches(dict(labels))
