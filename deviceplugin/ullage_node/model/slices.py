# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The values that the slice logic works on: devices, pods, held slices, refusals.

Only frozen records and their readers; no I/O, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ullage.api.reasons import Reason, Standing
from ullage.api.slices import DesiredSlice, SlicePhase, default_trust_domain
from ullage_node.model.devices import ContainerKey
from ullage_node.model.endpoints import MetricsEndpoint
from ullage_node.model.standstill import Standstill


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneReading:
    """One container's waiting time, and its reported peak memory, MiB."""

    wait_percent: int = 0
    persistent_peak_mib: int = 0
    ephemeral_peak_mib: int = 0
    suspended: bool = False
    """True if its memory is not on the device."""


def class_seen_from(namespace: str, other: str, workload_class: str) -> str:
    """A neighbour's class, as named in a row of ``namespace``.

    Classes are scoped by namespace: one of another namespace has that namespace as prefix.

    Args:
        namespace: of the row's own class.
        other: of the neighbour.
        workload_class: of the neighbour, "" = none.
    """
    if other == namespace or not workload_class:
        return workload_class
    return f"{other}/{workload_class}"


WHOLE_PERCENT: Final = 100
REFUSAL_LENGTH: Final = 200
"""Longest refusal text that kubelet's event shows whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRefusal:
    """The reason of a refusal: the violated limit and by how much."""

    reason: Reason
    message: str

    @property
    def lasting(self) -> bool:
        """True if only a new decision of the operator can lift it."""
        return Standing.LASTING in self.reason.standing

    @property
    def text(self) -> str:
        """One stable line of at most 200 characters, as used in the pod's event."""
        tail = "; retrying"
        line = re.sub(r"\s+", " ", f"{self.reason.value}: {self.message}").strip()
        room = REFUSAL_LENGTH - len(tail)
        return (line if len(line) <= room else f"{line[: room - 3]}...") + tail


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDevice:
    """A device, with the data that slices need; memory without context overhead."""

    uuid: str
    memory_mib: int
    contexts: int
    """Containers that may hold a slice at once."""
    context_limit: int = 0
    """Most contexts without the spare ones, 0 = as many as containers."""
    contexts_used: int = 0
    """Current contexts: a container may have several processes."""
    equal_turns: bool = False
    """Its tenants take turns of the same length: no share is enforced."""
    overhead_mib: int = 0
    """Memory of a context beside its tenant's, where the tenant's slice does not give it."""
    refusal: SliceRefusal | None = None
    """The reason why nothing may start on it (unhealthy, lost), if any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod from the API server; ``created`` is the API's own timestamp text."""

    uid: str
    namespace: str
    name: str
    phase: str
    created: str = ""
    deleting: bool = False
    deletes_at: float = 0.0
    """End of the grace period of a pod that is being deleted, seconds since the epoch."""
    grace_seconds: int = 30
    """The grace period of its deletion."""
    node: str = ""
    reservation: str = ""
    """Id that its slices bear in the spec in place of its uid, if they were written before it."""
    endpoint: MetricsEndpoint = field(default_factory=MetricsEndpoint)
    """Its metrics endpoint."""
    images: tuple[tuple[str, str], ...] = ()
    """Container and digest of the image that it runs."""
    standstill: Standstill = field(default_factory=Standstill)
    """Bounds on pausing it."""
    python_paths: tuple[tuple[str, str | None], ...] = ()
    """Containers with a PYTHONPATH of their own; ``None`` = a reference may set it."""
    without_hook: bool = False
    """Its label keeps the step hook away."""
    priority: int = 0
    """Its priority as the API server resolved it."""

    @property
    def terminal(self) -> bool:
        """True if none of its containers will run again."""
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSlice:
    """A slice as this node holds it."""

    desired: DesiredSlice
    phase: SlicePhase
    in_spec: bool = True
    """True if the spec still names it; a started one stays until its container is gone."""
    seen: bool = False
    """True if its pod was seen bound to this node: from then on, absence means gone."""
    reason: str = ""
    message: str = ""

    @property
    def container(self) -> ContainerKey:
        """The container that owns the slice."""
        return container_of(self.desired)

    @property
    def name(self) -> str:
        """Its pod, ``namespace/name``."""
        return f"{self.desired.pod_namespace}/{self.desired.pod_name}"

    @property
    def unproven(self) -> bool:
        """True if it runs without the limits of its slice: it may take the whole device."""
        return self.phase is SlicePhase.FAILED and self.reason == Reason.UNENFORCED.value


def container_of(desired: DesiredSlice) -> ContainerKey:
    """The container that a slice is for."""
    return ContainerKey(pod_uid=desired.key.pod_uid, container=desired.key.container)


def trust_domain_of(part: DesiredSlice) -> str:
    """Trust domain whose faults a slice may share; "" = unknown."""
    if part.trust_domain or not part.pod_namespace:
        return part.trust_domain
    return default_trust_domain(part.pod_namespace)


def context_costs_mib(device: NodeDevice, slices: Sequence[DesiredSlice]) -> tuple[int, ...]:
    """Context overhead of each of these tenants of a device, in their order.

    The value that the operator counted at placement, which is included in the tenant's cap; else
    the node's setting. A tenant with a whole device has no server and no cap, so no overhead.
    """
    if [part.percent for part in slices] == [WHOLE_PERCENT]:
        return (0,)
    return tuple(part.context_overhead_mib or device.overhead_mib for part in slices)


def shares_lane(slices: Sequence[DesiredSlice]) -> bool:
    """True if a container takes turns with others: its single slice requests a lane."""
    return len(slices) == 1 and slices[0].ephemeral_mib > 0


def same_share(first: DesiredSlice, second: DesiredSlice) -> bool:
    """True if two decisions grant a container the same share on the same device."""
    return (first.gpu, first.percent, first.memory_mib) == (
        second.gpu,
        second.percent,
        second.memory_mib,
    )
