# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Fields of pods and nodes that kube-scheduler's rules read: values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ullage.api.interruptions import Interruption as Interruption
from ullage.api.interruptions import InterruptionKind as InterruptionKind
from ullage.cluster.records.profile import DeviceProfileRecord as DeviceProfileRecord
from ullage.cluster.records.profile import ProfileRecord as ProfileRecord
from ullage.cluster.records.profile import SoloEntry as SoloEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Amounts of resources on a node; extended resources sorted by name."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    pods: int = 0
    extended: tuple[tuple[str, int], ...] = ()

    def __add__(self, other: Resources) -> Resources:
        """Sum, name by name."""
        extended = dict(self.extended)
        for name, amount in other.extended:
            extended[name] = extended.get(name, 0) + amount
        return Resources(
            cpu_milli=self.cpu_milli + other.cpu_milli,
            memory_bytes=self.memory_bytes + other.memory_bytes,
            pods=self.pods + other.pods,
            extended=tuple(sorted(extended.items())),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """A node's taint."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """A pod's toleration; an empty key with ``Exists`` tolerates everything."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One expression about labels."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """True when it holds for these labels; an unknown operator never does."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return self._compares(value)
            case _:
                return False

    def _compares(self, value: str | None) -> bool:
        try:
            have, bound = int(value or ""), int(self.values[0])
        except (ValueError, IndexError):
            return False
        return have > bound if self.operator == "Gt" else have < bound


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectorTerm:
    """One node selector term: all of its expressions hold; an empty term matches nothing."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAffinity:
    """The part of a pod's affinity relevant to placement.

    ``required`` is ``None`` where no required node affinity exists; the flags mark existing
    parents, because the pin must be added at the right depth.
    """

    has_affinity: bool = False
    has_node_affinity: bool = False
    required: tuple[SelectorTerm, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodShape:
    """Demands of a pod on a node; equal shapes are one shared object."""

    device_container: str
    requests: Resources = field(default_factory=Resources)
    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: NodeAffinity = field(default_factory=NodeAffinity)
    tolerations: tuple[Toleration, ...] = ()
    cpu_limit_milli: int = 0
    """CPU limit of the device container, 0 = none."""
