# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Which pods are on which nodes while a plan is made, counted by what a rule looks for.

All nodes of the cluster and all bound pods, ours and those of others: domains of a rule reach
beyond the nodes with devices. A count is made when a rule first asks for it and kept current while
pods of ours come and go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from ullage.api.reasons import Reason
from ullage.cluster.records.pod_rules import Labels, LabelSelector, PodTerm, PodTraits
from ullage.cluster.records.snapshot import NodeRecord, PodRecord, Snapshot
from ullage.scheduling.inventory.inventory import Flags, Ints
from ullage.scheduling.prediction.effort import Effort

_LOOKED_AT: Final = 256
"""Pods that differ, looked at in the time of one judgement, about (unmeasured)."""
_PASSED: Final = 4096
"""Pods gone through in that time (unmeasured)."""
_NAME_LABEL: Final = "kubernetes.io/metadata.name"
Look = Callable[[PodTraits], bool]
"""Whether a rule counts a pod."""
Placed = Callable[[], Iterable[tuple[str, PodRecord]]]
"""Pods of ours, each with the name of the node that it is on or goes to."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A rule, the nodes that it keeps a pod from, and why it does so on one of them."""

    reason: Reason
    nodes: Flags
    """By node of the cluster."""
    why: Callable[[int], str]


@dataclass(frozen=True, slots=True)
class _Count:
    """Pods that a rule looks for: by node."""

    spaces: frozenset[str] | None
    """Namespaces that they may be in; ``None`` = all."""
    look: Look
    pods: Ints


class PodsOnNodes:
    """Pods by node."""

    def __init__(self, snapshot: Snapshot, placed: Placed, effort: Effort) -> None:
        """``placed`` is asked for our own pods once something is to be counted."""
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
        """Pods that were put (or lifted, without a node) before our own were asked for."""
        self._own: dict[str, tuple[int, PodTraits]] = {}
        self._of_space: dict[str, dict[str, tuple[int, PodTraits]]] = {}
        self._others: dict[str, list[tuple[int, PodTraits, int]]] = {}
        self._bearers: dict[PodTerm, dict[int, int]] = {}
        self._counts: dict[object, _Count] = {}
        self._domains: dict[str, Ints] = {}
        self._judged: dict[object, tuple[object, Ints]] = {}
        self._chosen: dict[LabelSelector, frozenset[str]] = {}
        for name, alike in snapshot.pods_around.items():
            at = self.index.get(name)
            if at is None:
                continue
            for one in alike:
                others = self._others.setdefault(one.traits.namespace, [])
                others.append((at, one.traits, one.count))
                self._bear(one.traits, at, one.count)

    def copy(self) -> PodsOnNodes:
        """The same pods on the same nodes, to change apart from these."""
        new = object.__new__(PodsOnNodes)
        new.__dict__.update(self.__dict__)
        new._moves = list(self._moves)
        new._own = dict(self._own)
        new._of_space = {space: dict(pods) for space, pods in self._of_space.items()}
        new._bearers = {term: dict(nodes) for term, nodes in self._bearers.items()}
        new._counts = {
            key: _Count(one.spaces, one.look, one.pods.copy()) for key, one in self._counts.items()
        }
        return new

    def expect(self, pods: Iterable[PodRecord]) -> None:
        """Pods of ours that are not there yet may be put to nodes."""
        self._expected.update((pod.uid, pod) for pod in pods)

    def put(self, uid: str, node: str) -> None:
        """A pod of ours is to go to a node."""
        if self._placed is not None:
            self._moves.append((uid, node))
            return
        pod = self._known.get(uid) or self._expected.get(uid)
        if pod is not None and uid not in self._own:
            self._enter(pod, node)

    def lift(self, uid: str) -> None:
        """A pod of ours is, or goes, nowhere."""
        if self._placed is not None:
            self._moves.append((uid, ""))
            return
        known = self._own.pop(uid, None)
        if known is not None:
            at, traits = known
            del self._of_space[traits.namespace][uid]
            self._bear(traits, at, -1)
            self._recount(traits, at, -1)

    def terms(self) -> Iterable[PodTerm]:
        """Anti-affinity that other people's pods bear."""
        return tuple(
            dict.fromkeys(
                term
                for pods in self._others.values()
                for _, traits, _ in pods
                for term in traits.anti_affinity
            )
        )

    def bearing(self, term: PodTerm) -> Ints:
        """By node: pods that bear a term of anti-affinity."""
        self._fill()
        found = np.zeros(len(self.nodes), dtype=np.int64)
        for at, count in self._bearers.get(term, {}).items():
            found[at] = count
        return found

    def count(self, key: object, spaces: Iterable[str] | None, look: Look) -> Ints:
        """By node: pods that a rule looks for; not to be changed.

        Args:
            key: What it looks for; equal keys look for the same.
            spaces: Namespaces that they may be in; ``None`` = all.
            look: Says of a pod in one of these whether it is one.
        """
        self._fill()
        known = self._counts.get(key)
        if known is None:
            names = None if spaces is None else frozenset(spaces)
            pods = np.zeros(len(self.nodes), dtype=np.int64)
            seen, said = 0, dict[int, bool]()
            for at, traits, count in self._within(names):
                seen += 1
                wanted = said.get(id(traits))
                if wanted is None:
                    wanted = said[id(traits)] = look(traits)
                if wanted:
                    pods[at] += count
            self.effort.spent += 1 + len(said) // _LOOKED_AT + seen // _PASSED
            known = self._counts[key] = _Count(names, look, pods)
        return known.pods

    def domains(self, key: str) -> Ints:
        """By node: the number of its value of a label, -1 where it has none."""
        known = self._domains.get(key)
        if known is None:
            numbers: dict[str, int] = {}
            found = [
                -1 if (value := node.labels.get(key)) is None else numbers.setdefault(value, at)
                for at, node in enumerate(self.nodes)
            ]
            known = self._domains[key] = np.array(found, dtype=np.int64)
        return known

    def around(self, key: str, pods: Ints) -> Ints:
        """By node: pods in its whole domain; 0 where it is in none."""
        domains = self.domains(key)
        inside = domains >= 0
        sums = np.bincount(domains[inside], weights=pods[inside], minlength=len(self.nodes))
        return np.where(inside, sums.astype(np.int64)[domains], 0)

    def judged(self, key: object, rests_on: object, judge: Callable[[], Ints]) -> Ints:
        """By node: what does not depend on pods; judged once while ``rests_on`` is the object."""
        known = self._judged.get(key)
        if known is None or known[0] is not rests_on:
            known = self._judged[key] = rests_on, judge()
        return known[1]

    def selected(self, term: PodTerm) -> frozenset[str] | None:
        """Namespaces that a term looks at; ``None`` = all that have a pod."""
        chosen = term.namespace_selector
        if chosen is None:
            return frozenset(term.namespaces)
        if not chosen.requirements:
            return None
        known = self._chosen.get(chosen)
        if known is None:
            ours = {pod.namespace for pod in self._known.values()}
            names = self._spaces.keys() | self._others.keys() | ours
            known = frozenset(name for name in names if chosen.matches(self._labels_of(name)))
            self._chosen[chosen] = known
        return known.union(term.namespaces)

    def _fill(self) -> None:
        """Take in our own pods, and what became of them since."""
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

    def _labels_of(self, namespace: str) -> Mapping[str, str]:
        return {_NAME_LABEL: namespace, **dict(self._spaces.get(namespace, ()))}

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
        for known in self._counts.values():
            inside = known.spaces is None or traits.namespace in known.spaces
            if inside and known.look(traits):
                known.pods[at] += count


def fits(term: PodTerm, labels: Labels) -> bool:
    """Whether a term looks for pods with these labels, namespaces apart."""
    return term.selector is not None and term.selector.matches(dict(labels))
