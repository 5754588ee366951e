# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rules of pods about other pods, ports and volumes, checked before a pod is pinned to a node.

A pin that kube-scheduler rejects is a dead reservation, so the rules are checked first, in the
order of its filters. Pods that this cycle places count, and those that wait for kube-scheduler on
the node that they are pinned to. Without pods with rules there is no board, and no cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import numpy as np

from ullage.api.reasons import Reason
from ullage.cluster.records.pod import PodRecord
from ullage.cluster.records.pod_rules import HostPort, PodRules, PodTerm, PodTraits
from ullage.cluster.records.pod_shape import PodShape
from ullage.cluster.records.snapshot import Snapshot
from ullage.scheduling.feasibility.pods_on_nodes import Bar, Placed, PodsOnNodes, fits
from ullage.scheduling.feasibility.topology_rules import (
    affinity_bars,
    anti_affinity_bars,
    repelled_bars,
    spread_bars,
)
from ullage.scheduling.feasibility.volume_rules import volume_bars
from ullage.scheduling.inventory.inventory import Flags, Inventory
from ullage.scheduling.inventory.resource_usage import where_charged
from ullage.scheduling.model.changes import Changes, changed
from ullage.scheduling.model.view import View
from ullage.scheduling.prediction.effort import Effort

MOST_REPELLING: Final = 256
"""Most anti-affinity terms per pod: of its namespace, and of all (our choice)."""
_NO_RULES: Final = PodRules()
_ANY_IP: Final = "0.0.0.0"


@dataclass(frozen=True, slots=True)
class RuledPod:
    """The rules that apply to a pod, its own and others'; equal ones are checked once."""

    namespace: str
    rules: PodRules
    spread_itself: tuple[bool, ...] = ()
    """By constraint: true when it counts the pod itself."""
    near_itself: bool = False
    """True when it matches all of its own affinity terms."""
    repelled_by: tuple[PodTerm, ...] = ()
    """Anti-affinity terms of other pods that match it."""


class RuleBoard:
    """The rules in force in one cycle."""

    def __init__(
        self,
        snapshot: Snapshot,
        inventory: Inventory,
        ruled: Iterable[PodRecord],
        placed: Placed,
        effort: Effort,
    ) -> None:
        """``ruled`` are our pods with rules, ``placed`` those with a node."""
        self.pods = PodsOnNodes(snapshot, placed, effort)
        self._claims = snapshot.claims
        self._names = [node.name for node in inventory.nodes]
        at = [self.pods.index.get(name, -1) for name in self._names]
        self._at = np.array(at, dtype=np.int64)
        self._ruled: dict[str, tuple[PodRecord, RuledPod | None]] = {}
        ours = (
            term
            for pod in ruled
            if pod.rules is not None and not pod.stage.finished
            for term in pod.rules.anti_affinity
        )
        self._terms = _by_namespace(chain(self.pods.terms(), ours))

    def copy(self) -> RuleBoard:
        """An independent copy."""
        new = object.__new__(RuleBoard)
        new.__dict__.update(self.__dict__)
        new.pods = self.pods.copy()
        return new

    def put(self, uid: str, node: int) -> None:
        """Place a pod of ours on a node."""
        self.pods.put(uid, self._names[node])

    def ruled(self, pod: PodRecord) -> RuledPod | None:
        """The rules that apply to a pod; ``None`` without any."""
        entry = self._ruled.get(pod.uid)
        if entry is None or entry[0] is not pod:
            entry = self._ruled[pod.uid] = pod, self._read(pod)
        return entry[1]

    def allowed(self, pod: RuledPod, shape: PodShape) -> Flags:
        """By node of the inventory: true when every rule allows pinning the pod there."""
        allowed = np.ones(len(self.pods.nodes) + 1, dtype=np.bool_)
        for bar in self._bars(pod, shape):
            allowed[:-1] &= ~bar.nodes
        return allowed[self._at]

    def barred(self, pod: RuledPod, shape: PodShape) -> Iterator[tuple[Reason, Flags]]:
        """Each rule's reason and the nodes of the inventory that it excludes."""
        for bar in self._bars(pod, shape):
            yield bar.reason, np.append(bar.nodes, False)[self._at]

    def why(self, pod: RuledPod, shape: PodShape, node: int) -> str:
        """The text of the first rule that excludes a node of the inventory."""
        at = self._at.item(node)
        for bar in self._bars(pod, shape):
            if at >= 0 and bar.nodes[at]:
                return bar.why(at)
        return ""

    def _bars(self, pod: RuledPod, shape: PodShape) -> Iterator[Bar]:
        """The nodes that each rule excludes, in the order of kube-scheduler's filters."""
        rules, pods = pod.rules, self.pods
        if rules.unjudged:
            nodes = np.ones(len(pods.nodes), dtype=np.bool_)
            yield Bar(Reason.POD_RULES_TOO_LARGE, nodes, lambda at: rules.unjudged)
        yield from _port_bars(pods, rules.ports)
        if rules.claims:
            yield from volume_bars(pods, self._claims, pod.namespace, rules.claims)
        yield from spread_bars(
            pods, shape, rules.spread, namespace=pod.namespace, itself=pod.spread_itself
        )
        yield from repelled_bars(pods, pod.repelled_by)
        yield from anti_affinity_bars(pods, rules.anti_affinity)
        yield from affinity_bars(pods, rules.affinity, itself=pod.near_itself)

    def _read(self, pod: PodRecord) -> RuledPod | None:
        rules, labels = pod.rules or _NO_RULES, dict(pod.labels)
        terms = (*self._terms.get(pod.namespace, ()), *self._terms.get("", ()))
        self.pods.effort.spent += len(terms) // MOST_REPELLING
        repelled_by = tuple(term for term in terms if self._concerns(term, pod))
        if pod.rules is None and not repelled_by:
            return None
        return RuledPod(
            namespace=pod.namespace,
            rules=rules,
            spread_itself=tuple(
                rule.selector is not None and rule.selector.matches(labels) for rule in rules.spread
            ),
            near_itself=all(self._concerns(term, pod) for term in rules.affinity),
            repelled_by=repelled_by,
        )

    def _concerns(self, term: PodTerm, pod: PodRecord) -> bool:
        """True when a term matches the pod."""
        spaces = self.pods.selected(term)
        return (spaces is None or pod.namespace in spaces) and fits(term, pod.labels)


@dataclass(slots=True)
class RuledPods:
    """Pods of ours that have rules and have not finished, kept from cycle to cycle."""

    uids: set[str] = field(default_factory=set)
    _seen: Mapping[str, PodRecord] = field(default_factory=dict)

    def update(self, pods: Mapping[str, PodRecord], changes: Changes) -> set[str]:
        """Update from a snapshot; only changed pods are read."""
        before = changes.before
        incremental = before is not None and self._seen is before.pods
        for uid in changes.pods if incremental else changed(self._seen, pods):
            pod = pods.get(uid)
            if pod is not None and pod.rules is not None and not pod.stage.finished:
                self.uids.add(uid)
            else:
                self.uids.discard(uid)
        self._seen = pods
        return self.uids


def board_of(
    view: View, inventory: Inventory, ruled: Iterable[str], effort: Effort
) -> RuleBoard | None:
    """The rules in force; ``None`` without any.

    Args:
        view: The cycle's snapshot.
        inventory: Its nodes.
        ruled: Pods of ours with rules, by uid.
        effort: Counts the cost of the checks.
    """
    snapshot = view.snapshot
    with_rules = [snapshot.pods[uid] for uid in sorted(ruled)]
    if not snapshot.pods_around and not with_rules:
        return None

    def placed() -> Iterator[tuple[str, PodRecord]]:
        for members in view.members.values():
            for member in members:
                node = where_charged(member)
                if node and member.live:
                    yield node, member.pod
        for pod in (*view.coordinators.values(), *view.orders):
            if pod.node and not pod.stage.finished:
                yield pod.node, pod

    return RuleBoard(snapshot, inventory, with_rules, placed, effort)


def _port_bars(pods: PodsOnNodes, ports: Sequence[HostPort]) -> Iterator[Bar]:
    """Nodes with one of the host ports in use."""
    for wanted in ports:

        def takes(traits: PodTraits, wanted: HostPort = wanted) -> bool:
            return any(
                (wanted.port, wanted.protocol) == (taken.port, taken.protocol)
                and (wanted.ip == taken.ip or _ANY_IP in (wanted.ip, taken.ip))
                for taken in traits.ports
            )

        taken = pods.count(wanted, None, takes)
        where = "" if wanted.ip == _ANY_IP else f" of {wanted.ip}"

        def why(at: int, wanted: HostPort = wanted, where: str = where) -> str:
            return f"host port {wanted.port}/{wanted.protocol}{where} is taken"

        yield Bar(Reason.HOST_PORT_TAKEN, taken > 0, why)


def _by_namespace(terms: Iterable[PodTerm]) -> Mapping[str, tuple[PodTerm, ...]]:
    """Terms by the namespaces that they name; those with a namespace selector under ``""``."""
    by_namespace: dict[str, dict[PodTerm, None]] = {}
    for term in dict.fromkeys(terms):
        names = term.namespaces if term.namespace_selector is None else ("",)
        for name in names:
            of_name = by_namespace.setdefault(name, {})
            if len(of_name) < MOST_REPELLING:
                of_name[term] = None
    return {name: tuple(of_name) for name, of_name in by_namespace.items()}
