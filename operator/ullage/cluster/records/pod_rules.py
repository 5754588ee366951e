# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rules of a pod about other pods, ports and volumes that kube-scheduler enforces: values.

Demands of a pod on a node alone (selector, taints, requests) are its shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ullage.cluster.records.pod_shape import Requirement, SelectorTerm

Labels = tuple[tuple[str, str], ...]
"""Labels, sorted by key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSelector:
    """A label selector: all requirements hold; without one it matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """True when labels match."""
        return all(requirement.holds(labels) for requirement in self.requirements)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTerm:
    """A term about other pods, and its topology domain."""

    topology_key: str
    """Label of nodes; those with the same value are one domain."""
    selector: LabelSelector | None = None
    """``None`` = no pod."""
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    """Namespaces beside the named ones; ``None`` = none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadRule:
    """A hard topology spread constraint."""

    topology_key: str
    max_skew: int
    min_domains: int = 1
    selector: LabelSelector | None = None
    honours_affinity: bool = True
    """True when only nodes that the pod's selector and affinity match are counted."""
    honours_taints: bool = False
    """True when only nodes whose taints the pod tolerates are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPort:
    """A host port of a container."""

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
    """Those of them created for this pod alone."""
    unjudged: str = ""
    """Reason why they are not evaluated: they exceed the bound per pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTraits:
    """A pod on a node, as seen by the rules of others; equal ones are one object."""

    namespace: str
    labels: Labels = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    ports: tuple[HostPort, ...] = ()
    claims: tuple[str, ...] = ()
    leaving: bool = False
    assumed: bool = False
    """True for one of our pods that kube-scheduler has not bound yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlikePods:
    """A number of foreign pods on one node that are equal to rules."""

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
    """A PersistentVolumeClaim of one of our pods, and its allowed nodes."""

    problem: str = ""
    """Text of the reason why it is usable on no node."""
    once: bool = False
    """One pod of the cluster at a time."""
    one_node: bool = False
    """Pods of one node at a time."""
    volume: str = ""
    """Name of its bound volume; empty = it waits for its first consumer."""
    nodes: tuple[SelectorTerm, ...] | None = None
    """Nodes that reach its volume; ``None`` = all."""
    zones: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Labels of its volume that a node in any zone must share: key and values."""
    selected_node: str = ""
    """Node for which a volume is being provisioned."""
    size: int = 0
    """Requested bytes."""
    candidates: tuple[FreeVolume, ...] = ()
    """Volumes that it may be bound to, the smallest first."""
    own: str = ""
    """Volume that names this claim: it is the only candidate."""
    provisioned: bool = False
    """True when a volume can be provisioned for it."""
    topologies: tuple[tuple[tuple[str, tuple[str, ...]], ...], ...] = ()
    """Allowed topologies: one of these, with all its labels; empty = everywhere."""
