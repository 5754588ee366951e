# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rules of a pod about other pods, ports and volumes that kube-scheduler holds it to: values.

What a pod asks of a node alone (selector, taints, requests) is its shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ullage.cluster.records.pod_shape import Requirement, SelectorTerm

Labels = tuple[tuple[str, str], ...]
"""Labels, sorted by key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSelector:
    """Labels that an object has: all requirements hold; without one it matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """True when labels fulfil it."""
        return all(requirement.holds(labels) for requirement in self.requirements)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTerm:
    """Other pods, and the part of the cluster that they are looked for in."""

    topology_key: str
    """Label of nodes; those with the same value are one domain."""
    selector: LabelSelector | None = None
    """``None`` = no pod."""
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    """Namespaces beside those that are named; ``None`` = none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadRule:
    """A topology spread constraint that must hold."""

    topology_key: str
    max_skew: int
    min_domains: int = 1
    selector: LabelSelector | None = None
    honours_affinity: bool = True
    """Only nodes that the pod's selector and affinity match are counted."""
    honours_taints: bool = False
    """Only nodes whose taints the pod tolerates are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPort:
    """A port of the node that a container takes."""

    ip: str
    protocol: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRules:
    """Demands of a pod beside its shape; a pod without any has no rules."""

    spread: tuple[SpreadRule, ...] = ()
    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    ports: tuple[HostPort, ...] = ()
    claims: tuple[str, ...] = ()
    """Names of PersistentVolumeClaims."""
    ephemeral: tuple[str, ...] = ()
    """Those of them that are made for this pod alone."""
    unjudged: str = ""
    """Reason why they are not judged: they are more than is read of one pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTraits:
    """A pod on a node, as far as the rules of others look at it; equal ones are one object."""

    namespace: str
    labels: Labels = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    ports: tuple[HostPort, ...] = ()
    claims: tuple[str, ...] = ()
    leaving: bool = False
    assumed: bool = False
    """It is ours, and kube-scheduler has not bound it yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlikePods:
    """So many pods of others on one node that rules do not tell apart."""

    traits: PodTraits
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeVolume:
    """A PersistentVolume that a claim may be bound to."""

    name: str
    nodes: tuple[SelectorTerm, ...] | None = None
    """Nodes that reach it; ``None`` = all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRecord:
    """A PersistentVolumeClaim that a pod of ours uses, and the nodes that it allows."""

    problem: str = ""
    """Reason why it can be used on no node, in words."""
    once: bool = False
    """One pod of the cluster at a time."""
    one_node: bool = False
    """Pods of one node at a time."""
    volume: str = ""
    """Name of the volume that it is bound to; empty = it waits for its first consumer."""
    nodes: tuple[SelectorTerm, ...] | None = None
    """Nodes that reach its volume; ``None`` = all."""
    zones: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Labels of its volume that a node in any zone must share: key and values."""
    selected_node: str = ""
    """Node that a volume is being made for."""
    size: int = 0
    """Bytes that it asks for."""
    candidates: tuple[FreeVolume, ...] = ()
    """Volumes that it may be bound to, the smallest first."""
    own: str = ""
    """Volume that names this claim: no other will do."""
    provisioned: bool = False
    """A volume can be made for it."""
    topologies: tuple[tuple[tuple[str, tuple[str, ...]], ...], ...] = ()
    """Places where it can be made: one of these, of each all labels; empty = everywhere."""
