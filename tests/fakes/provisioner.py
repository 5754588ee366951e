# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""An autoscaler in small: a node for every pending order, nodes taken by a preemption trace.

Pure: pods and nodes as the API stores them in, bodies of nodes to create and names to delete out.
Nodes it makes are ones that KWOK plays on a real control plane. It buys only for pods whose node
affinity no node satisfies, as a real one does, and only in pools that it knows. It refuses what
Karpenter 1.12 refuses (its ``provisioner.Validate`` and ``IsRestrictedLabel``).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ullage.api.contract import LABEL_ORDER, SLOT_RESOURCE

Json = dict[str, Any]
HOSTNAME = "kubernetes.io/hostname"
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte")
WELL_KNOWN = ("karpenter.sh/nodepool", "karpenter.sh/capacity-type")
"""Labels of Karpenter's domain that pods may name."""
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


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
        most: Nodes that it buys in all.
        broken: Pools of which nothing can be had.
    """

    labels: Mapping[str, Mapping[str, str]]
    most: int = 100
    broken: frozenset[str] = frozenset()
    bought: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def turn(self, pods: Iterable[Json], nodes: Sequence[Json]) -> Moves:
        """Nodes for the orders that fit nowhere; one for each."""
        free = [one for one in nodes if one["metadata"]["name"] not in self._taken(pods)]
        create: list[Json] = []
        for pod in sorted(pending_orders(pods), key=lambda one: str(one["metadata"]["name"])):
            place = next((one for one in free if accepts(one, pod)), None)
            if place is not None:
                free.remove(place)  # kube-scheduler will bind it there
                continue
            pool = self._pool_of(pod)
            if refusal(pod):
                self.refused.append(refusal(pod))
                continue
            if pool is None or pool in self.broken or len(self.bought) >= self.most:
                continue
            name = f"{pool}-{len(self.bought)}"
            self.bought.append(name)
            create.append(machine(name, self.labels[pool]))
        return Moves(create=tuple(create))

    def lose(self, pool: str, nodes: Sequence[Json]) -> Moves:
        """All machines of a pool go at once, as spot does."""
        wanted = self.labels[pool].items()
        return Moves(
            delete=tuple(
                one["metadata"]["name"]
                for one in nodes
                if wanted <= one["metadata"].get("labels", {}).items()
            )
        )

    def _pool_of(self, pod: Json) -> str | None:
        selector = pod["spec"].get("nodeSelector", {}).items()
        return next((name for name in sorted(self.labels) if selector <= self._as(name)), None)

    def _as(self, pool: str) -> Any:
        return dict(self.labels[pool]).items()

    def _taken(self, pods: Iterable[Json]) -> set[str]:
        """Nodes that an order is bound to: two orders never share one."""
        return {
            pod["spec"]["nodeName"] for pod in pods if is_order(pod) and pod["spec"].get("nodeName")
        }


def refusal(pod: Json) -> str:
    """Why Karpenter would buy nothing for a pod; empty where it would."""
    spec = pod["spec"]
    affinity = (spec.get("affinity") or {}).get("nodeAffinity", {})
    terms = (affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or []
    if any(term.get("matchFields") for term in terms):
        return "node selector term with matchFields is not supported"
    stated = [one for term in terms for one in term.get("matchExpressions") or []]
    for one in stated:
        if one["operator"] not in OPERATORS:
            return f"operator {one['operator']} is not supported"
        if (one["key"], one["operator"]) == ("karpenter.sh/nodepool", "DoesNotExist"):
            return "configured to not run on a Karpenter provisioned node"
    for key in (*spec.get("nodeSelector", {}), *(one["key"] for one in stated)):
        domain = key.rpartition("/")[0]
        ours = domain == "karpenter.sh" or domain.endswith(".karpenter.sh")
        if key not in WELL_KNOWN and (ours or key == HOSTNAME):
            return f"using label {key} is not allowed"
    return ""


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


def accepts(node: Json, pod: Json) -> bool:
    """Whether kube-scheduler would bind an order to a node: its selector and required affinity."""
    labels = node["metadata"].get("labels") or {}
    if not pod["spec"].get("nodeSelector", {}).items() <= labels.items():
        return False
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity", {})
    terms = (affinity.get(REQUIRED) or {}).get("nodeSelectorTerms")
    return not terms or any(_matches(term, labels) for term in terms)


def _matches(term: Json, labels: Mapping[str, str]) -> bool:
    for one in term.get("matchExpressions") or []:
        value = labels.get(one["key"])
        there = value in (one.get("values") or [])
        match one["operator"]:
            case "In" if not there:
                return False
            case "NotIn" if there:
                return False
            case "Exists" if value is None:
                return False
            case "DoesNotExist" if value is not None:
                return False
    return True


def machine(name: str, labels: Mapping[str, str]) -> Json:
    """A node that KWOK plays."""
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", SLOT_RESOURCE: "16"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**labels, HOSTNAME: name, "ullage.dev/node": "true", "type": "kwok"},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {},
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def preemptions(seed: int, mean_up_s: float, seconds: float) -> Iterator[float]:
    """Moments at which a pool loses everything it has, seconds from the start (exponential)."""
    source, at = random.Random(seed), 0.0
    while (at := at + source.expovariate(1 / mean_up_s)) < seconds:
        yield at
