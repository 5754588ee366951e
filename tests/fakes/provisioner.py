# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""An autoscaler in small: a node for every pending order, nodes taken by a preemption trace.

Pure: pods and nodes as the API stores them in, bodies of nodes to create and names to delete out.
Nodes it makes are ones that KWOK plays on a real control plane. It buys only for pods that no node
takes, as a real one does, only in pools that it knows, and by the rules of the autoscaler that it
plays.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fakes.karpenter_rules import Karpenter
from fakes.node_affinity import accepts
from ullage.api.labels import LABEL_ORDER, SLOT_RESOURCE

Json = dict[str, Any]
HOSTNAME = "kubernetes.io/hostname"


class Autoscaler(Protocol):
    """The rules of one autoscaler."""

    def refusal(self, pod: Json) -> str:
        """Why it buys nothing for a pod, whatever pools there are; empty = it may."""

    def fits(self, pod: Json, fresh: Json, nodes: Sequence[Json]) -> bool:
        """Whether it expects a pool's next node to take a pod.

        Args:
            pod: It waits.
            fresh: A new node of the pool.
            nodes: The pool's nodes that are there.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """What a turn of the provisioner asks for."""

    create: tuple[Json, ...] = ()
    delete: tuple[str, ...] = ()


@dataclass(slots=True)
class Provisioner:
    """Buys and loses machines.

    Attributes:
        labels: By pool, the labels that its nodes get beside the host name.
        rules: Those of the autoscaler that it plays.
        most: Nodes that it buys in all.
        broken: Pools of which nothing can be had.
        copies: Nodes that it buys where one is asked for.
        delivers: By pool, the labels of what comes instead of what was ordered.
        never_ready: Pools whose machines never become ready.
        bought: Names of all that it bought.
        refused: Why it bought nothing, in words.
        served: What was bought for a pod, by its uid: nothing more while one of these is there.
    """

    labels: Mapping[str, Mapping[str, str]]
    rules: Autoscaler = field(default_factory=Karpenter)
    most: int = 100
    broken: frozenset[str] = frozenset()
    copies: int = 1
    delivers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    never_ready: frozenset[str] = frozenset()
    bought: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    served: dict[str, set[str]] = field(default_factory=dict)

    def turn(self, pods: Iterable[Json], nodes: Sequence[Json]) -> Moves:
        """Nodes for the orders that fit nowhere; one for each."""
        pods, there = list(pods), {one["metadata"]["name"] for one in nodes}
        free = [one for one in nodes if one["metadata"]["name"] not in self._taken(pods)]
        create: list[Json] = []
        for pod in sorted(pending_orders(pods), key=lambda one: str(one["metadata"]["name"])):
            place = next((one for one in free if accepts(one, pod)), None)
            if place is not None:
                free.remove(place)  # kube-scheduler will bind it there
                continue
            said = self.rules.refusal(pod)
            if said:
                self.refused.append(said)
                continue
            pool = self._pool_for(pod, nodes)
            coming = self.served.get(pod["metadata"]["uid"], set()) & there
            if pool is None or pool in self.broken or coming:
                continue
            bought = list(self._buy(pool))
            self.served[pod["metadata"]["uid"]] = {one["metadata"]["name"] for one in bought}
            create += bought
        return Moves(create=tuple(create))

    def lose(self, pool: str, nodes: Sequence[Json]) -> Moves:
        """All machines of a pool go at once, as spot does."""
        return Moves(delete=tuple(one["metadata"]["name"] for one in self._nodes(pool, nodes)))

    def _nodes(self, pool: str, nodes: Sequence[Json]) -> Sequence[Json]:
        wanted = self.labels[pool].items()
        return [one for one in nodes if wanted <= one["metadata"].get("labels", {}).items()]

    def _buy(self, pool: str) -> Iterator[Json]:
        for _ in range(min(self.copies, self.most - len(self.bought))):
            name = f"{pool}-{len(self.bought)}"
            self.bought.append(name)
            labels = self.delivers.get(pool, self.labels[pool])
            yield machine(name, labels, ready=pool not in self.never_ready)

    def _pool_for(self, pod: Json, nodes: Sequence[Json]) -> str | None:
        for name in sorted(self.labels):
            fresh = machine(f"{name}-next", self.labels[name])
            if self.rules.fits(pod, fresh, self._nodes(name, nodes)):
                return name
        self.refused.append("no pool's next node takes it")
        return None

    def _taken(self, pods: Iterable[Json]) -> set[str]:
        """Nodes that an order is bound to: two orders never share one."""
        return {
            pod["spec"]["nodeName"] for pod in pods if is_order(pod) and pod["spec"].get("nodeName")
        }


def is_order(pod: Json) -> bool:
    """Whether a pod is a placeholder for a node."""
    return LABEL_ORDER in (pod["metadata"].get("labels") or {})


def pending_orders(pods: Iterable[Json]) -> Iterator[Json]:
    """Orders that no node serves yet."""
    return (
        pod
        for pod in pods
        if is_order(pod)
        and not pod["spec"].get("nodeName")
        and not pod["metadata"].get("deletionTimestamp")
    )


def unschedulable(pod: Json) -> Json:
    """A pod of which kube-scheduler says that no node takes it."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return {**pod, "status": {"phase": "Pending", "conditions": [condition]}}


def machine(name: str, labels: Mapping[str, str], *, ready: bool = True) -> Json:
    """A node that KWOK plays."""
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", SLOT_RESOURCE: "16"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**labels, HOSTNAME: name, "ullage.dev/node": "true", "type": "kwok"},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {} if ready else {"taints": [taint]},
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def preemptions(seed: int, mean_up_s: float, seconds: float) -> Iterator[float]:
    """Moments at which a pool loses everything it has, seconds from the start (exponential)."""
    source, at = random.Random(seed), 0.0
    while (at := at + source.expovariate(1 / mean_up_s)) < seconds:
        yield at
