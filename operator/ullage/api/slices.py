# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Slices as the operator wants them and as a node reports them, and what both sides agree on.

Every process of the product loads this module, so it uses the standard library only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from ullage.api.codec import Wire, derived
from ullage.api.dataio import ObservedLoader
from ullage.api.loads import ObservedLoad
from ullage.api.observations import LatencyObjective
from ullage.api.readers import JsonObject, WireError
from ullage.api.usage import ObservedUsage
from ullage.api.wire_fields import (
    CLASS,
    IF_KNOWN,
    INT32,
    INT32_MAX,
    INT64,
    KEPT,
    NEEDED,
    Count,
    Counted,
    Embedded,
    Flag,
    Kind,
    Listed,
    Name,
    Percent,
    Schema,
    Text,
    Word,
    at_most,
    atomic,
    between,
    known_word,
    word,
)

WIRE_VERSION: Final = 2
"""Version of the records exchanged between operator and node agent; since 2 an agent finds the
slices of a pod by the reservation that the pod bears."""
RESERVING_VERSION: Final = 2
EMULATED_MODEL: Final = "emulated"
MAX_EPOCH: Final = 2**53
"""No leader comes near; the next one is a larger number, and must still fit."""
MAX_MEMORY_MIB: Final = 2**31 - 1
"""Of a device: two pebibytes."""
MAX_LANE: Final = 1023
"""More lanes than a device takes containers."""
UNBOUNDED: Final = Schema(minimum=None, maximum=None)


class SlicePhase(StrEnum):
    """Progress of a node with a slice."""

    RESERVED = "Reserved"
    REFUSED = "Refused"
    PREPARED = "Prepared"
    ATTACHED = "Attached"
    VIOLATING = "Violating"
    FROZEN = "Frozen"
    FAILED = "Failed"

    @property
    def holds_capacity(self) -> bool:
        """True when a slice in this phase counts against its device."""
        return self is not SlicePhase.REFUSED

    @property
    def started(self) -> bool:
        """True when a container may have been created from the slice."""
        return self not in (SlicePhase.RESERVED, SlicePhase.REFUSED)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SliceKey(Wire):
    """Identity of a slice: the pod, the device container in it, and which of its devices."""

    pod_uid: Annotated[Word, NEEDED]
    """UID of the pod. Slices of a pod that does not exist yet bear the id of their reservation
    instead, which the pod will have in the annotation `ullage.dev/reservation`."""
    container: Annotated[Name, at_most(63)]
    """Container that gets the device."""
    index: Annotated[int, between(0, INT32_MAX), KEPT, Schema(default=0)] = 0
    """Index of the device within the container, from 0."""

    @property
    def directory(self) -> str:
        """Name of the step record's directory and value of ``ULLAGE_SLICE``."""
        return f"{self.pod_uid}_{self.container}"


SLICE_KEY: Final = Embedded(
    SliceKey.from_wire, SliceKey.to_wire, Schema(properties=derived(SliceKey).shape)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredSlice(Wire):
    """A share of one device, or a whole device, for one container."""

    key: Annotated[SliceKey, SLICE_KEY]
    pod_namespace: Name
    """Namespace of the pod."""
    pod_name: Name
    """Name of the pod."""
    gpu: Name
    """UUID of the device."""
    percent: Percent
    """Share of the device's compute, in percent; a whole device has 100 and no neighbours."""
    memory_mib: Annotated[int, between(0, MAX_MEMORY_MIB), NEEDED, INT64]
    """Device memory that the container may allocate, in MiB, without the overhead of its
    context."""
    priority: Annotated[int, between(-(2**31), INT32_MAX), KEPT, UNBOUNDED, Schema(default=0)] = 0
    """Priority of the pod."""
    protected: Annotated[Flag, KEPT, Schema(default=False)] = False
    """The workload has an objective, so the guard never freezes it for a neighbour."""
    workload_class: Annotated[Text, "class", CLASS] = ""
    """Workload class of the container; learned data is kept by class."""
    family: Annotated[Text, CLASS] = ""
    """Family of models that the class belongs to."""
    trust_domain: Word = ""
    """Trust domain; only tenants of one domain share a device."""
    max_slowdown_percent: Annotated[int, between(0, 100_000), INT64, Schema(minimum=100)] = 0
    """Slowdown objective relative to running alone on the whole device, in percent (130 = 1.3
    times)."""
    solo_step_micros: Count = 0
    """Step time alone on the whole device, in microseconds."""
    slo: LatencyObjective | None = None
    """Latency objective, as the user wrote it."""
    probation: Annotated[Flag, Schema(default=False)] = False
    """The class is new, so the guard freezes this container first when an objective breaks."""
    alert_only: Annotated[Flag, Schema(default=False)] = False
    """A broken objective is only reported; no neighbour is frozen for it
    (`onViolation: Alert`)."""
    reports_load: Annotated[Flag, Schema(default=False)] = False
    """The node reports the container's requests every ten seconds, because replicas follow them
    (`scaling.policy: SLO`)."""
    context_overhead_mib: Annotated[int, between(0, 65_536), INT64, Schema(minimum=1)] = 0
    """Device memory that each context of the container uses beside memoryMiB, in MiB, from the
    DeviceProfile; absent = the setting of the node's agent."""
    persistent_mib: Annotated[int, between(0, MAX_MEMORY_MIB), INT64, Schema(minimum=1)] = 0
    """Part of memoryMiB that stays between steps, of a container that shares a lane, in MiB."""
    ephemeral_mib: Annotated[int, between(0, MAX_MEMORY_MIB), INT64, Schema(minimum=1)] = 0
    """Peak of a step above persistentMiB, in MiB; absent = the container shares no lane."""
    lane: Annotated[int, between(0, MAX_LANE), Schema(minimum=1)] = 0
    """Lane of the device that the container takes turns in with those of the same number; its
    memory is counted once, with the largest step. Absent = no memory of the container is shared."""
    suspendable: Flag = False
    """The node may suspend the container between its steps (`switching: Checkpoint`): in its lane
    all its memory counts as that of its step."""
    inject: Flag = False
    """The container gets the step hook of the mounted `ullage_run` on its PYTHONPATH, because its
    pod or the SchedulingPolicy asks for it."""
    rebalance: Flag = False
    """Programs of the container may divide batches unevenly, because its pod asks for it
    (`ullage.dev/stragglers`)."""
    work_steps: Count = 0
    """Steps of the whole work of a container that shares a lane, by which lanePolicy SRTF orders
    turns; absent = not known."""
    epoch: Annotated[int, between(0, MAX_EPOCH), NEEDED]
    """Term of the leader that decided this slice."""


_PIDS: Final = Schema(type="array", items=Schema(type="integer", minimum=1), **atomic(512).keywords)


def _pids(raw: JsonObject, field: str) -> tuple[int, ...]:
    stated = raw[field] or []
    if not isinstance(stated, list):
        raise WireError(f"{field}: expected a list of whole numbers")
    return tuple(pid for pid in stated if type(pid) is int)


class Proof(StrEnum):
    """Evidence of the node that a share holds, strongest first.

    ``REPORTED``: the container reports the SM count that it sees. ``ENVIRONMENT``: the kernel shows
    that every process began with its share's variables. ``SERVER_LIST``: the MPS server lists every
    process, and more cannot be read. ``CGROUP``: the limits of an emulated device's container were
    read back.
    """

    REPORTED = "Reported"
    ENVIRONMENT = "Environment"
    SERVER_LIST = "ServerList"
    CGROUP = "Cgroup"


MAX_RANKS: Final = 16
"""Most ranks of one container that are reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRank:
    """Steps of one rank, as its program reports them; times are means of the last minute."""

    rank: Annotated[int, between(0, INT32_MAX), KEPT]
    """Number of the rank in its job, as its program knows it."""
    steps: Counted = 0
    """Steps since its process began."""
    step_micros: Counted = 0
    """Time of one step, in microseconds."""
    compute_micros: Counted = 0
    """Part of it from a batch to the last gradient of this rank, its own work."""
    wait_micros: Counted = 0
    """Part of it from there to the optimizer's step, mostly for other ranks."""
    data_wait_micros: Counted = 0
    """Part of it in the data loader."""
    throttled_percent: Annotated[int, between(0, 100), Schema(minimum=0)] = 0
    """Part of the time in which its container was stopped at its CPU limit, as it reads itself."""
    batch: Counted = 0
    """Samples of its last batch, where batches may be divided unevenly (`stragglers`)."""
    even_batch: Counted = 0
    """Samples that it would have in an even division."""
    even_reason: Word = ""
    """Why batches stay even, as one stable word."""
    even_step_micros: Counted = 0
    """Time from batch to batch while they were even, in microseconds; absent = not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedSlice(Wire):
    """Observed state of one slice."""

    key: Annotated[SliceKey, SLICE_KEY]
    phase: Annotated[SlicePhase, known_word(SlicePhase), NEEDED]
    """Phase of the slice on the node."""
    reason: Word = ""
    """Reason for the phase, as one stable word."""
    message: Annotated[Text, at_most(1024)] = ""
    """The limit that binds, and by how much."""
    gpu: Annotated[Text, KEPT, at_most(253)]
    """UUID of the device."""
    percent: Annotated[int, between(0, INT32_MAX), KEPT]
    """Share of the device's compute, in percent."""
    memory_mib: Annotated[int, between(0, MAX_MEMORY_MIB), KEPT, INT64]
    """Device memory in MiB."""
    epoch: Annotated[int, between(0, MAX_EPOCH), KEPT]
    """Term of the leader that decided the slice."""
    pids: Annotated[tuple[int, ...], Kind(_pids, list, (), schema=_PIDS)] = ()
    """Host PIDs of the container's processes that use the device."""
    sm_count: Annotated[Counted, INT32] = 0
    """Multiprocessors that the container sees."""
    proof: Annotated[Proof | None, word(Proof), IF_KNOWN] = None
    """How the node verified the share; absent if it is unverified or there is no share."""
    memory_used_mib: Counted = 0
    """Device memory in use, in MiB."""
    steps: Counted = 0
    """Steps since the container started, as the container reports them."""
    items: Counted = 0
    """Samples or tokens processed, as the container reports them."""
    step_micros: Counted = 0
    """Recent time of one step, in microseconds."""
    solo_step_micros: Counted = 0
    """Time of the same step alone on the whole device, in microseconds."""
    latency_micros: Counted = 0
    """Latency of the last window at the objective's percentile, in microseconds."""
    windows: Counted = 0
    """Windows that the guard has judged since the container started."""
    violations: Counted = 0
    """Windows above the objective."""
    load: ObservedLoad | None = None
    """Requests of the last seconds, where reportsLoad asks for them and the page was read."""
    checkpoint_age_s: Annotated[Counted, "checkpointAgeSeconds"] = 0
    """Age of the last checkpoint that the container reported, at the time of this report."""
    resumed_at: Annotated[Counted, "resumedAtStep"] = 0
    """Step of the checkpoint that the container resumed from, as it reports; steps count from
    there."""
    lane: Annotated[int, between(0, MAX_LANE), Schema(minimum=1)] = 0
    """Lane of the device that the container takes turns in."""
    persistent_mib: Annotated[int, between(0, MAX_MEMORY_MIB), INT64, Schema(minimum=1)] = 0
    """Part of memoryMiB that stays between steps, of a container that shares a lane, in MiB."""
    ephemeral_mib: Annotated[int, between(0, MAX_MEMORY_MIB), INT64, Schema(minimum=1)] = 0
    """Peak of a step above persistentMiB, in MiB."""
    lane_wait_percent: Annotated[int, between(0, 100), Schema(minimum=0)] = 0
    """Part of its time in which the container waited for its lane, in percent."""
    persistent_peak_mib: Counted = 0
    """Most memory that stayed between two steps, as the container reports it, in MiB."""
    ephemeral_peak_mib: Counted = 0
    """Most memory that a step took above it, as the container reports it, in MiB."""
    suspendable: Flag = False
    """The node may suspend the container between its steps."""
    suspended: Flag = False
    """The container's memory is not on the device: it is suspended until its next step."""
    usage: Annotated[ObservedUsage | None, KEPT] = None
    """Device time that the container held and used, on the first of its devices."""

    loader: ObservedLoader | None = None
    """Workers of its program's data loader, where the job lets them be tuned."""
    ranks: Annotated[
        tuple[ObservedRank, ...],
        Listed(most=MAX_RANKS, newest=MAX_RANKS),
        atomic(MAX_RANKS),
    ] = ()
    """Ranks of the container's programs whose steps the hook times (`runtime.inject`), the slowest
    ones where a node has many."""

    @property
    def slowdown(self) -> float:
        """Recent time of a step over that alone on the whole device; 0 = unknown.

        At least 1: where steps are shorter than alone, the time alone is wrong (measured on a busy
        machine, say), and the container gains nothing from its neighbours.
        """
        if not self.step_micros or not self.solo_step_micros:
            return 0.0
        return max(1.0, self.step_micros / self.solo_step_micros)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedLane(Wire):
    """A lane of a device as its node keeps it."""

    gpu: Annotated[Name, at_most(253)]
    """UUID of the device."""
    lane: Annotated[int, between(1, INT32_MAX), NEEDED]
    """Number of the lane, as slices name it; above 1023 are lanes that the node opened itself."""
    size_mib: Annotated[int, between(0, MAX_MEMORY_MIB), KEPT, INT64] = 0
    """Memory that the steps of the lane use one after the other, in MiB."""
    residents: Annotated[int, between(0, INT32_MAX), KEPT] = 0
    """Containers that take turns in it."""
    waiting: Annotated[int, between(0, INT32_MAX), KEPT] = 0
    """Containers of it that wait for their turn now."""
    suspended: Annotated[int, between(0, INT32_MAX)] = 0
    """Containers of it whose memory is not on the device: others needed it while they did
    nothing."""


SLOT_PATTERN: Final = re.compile(r"^slot-(\d{2,4})$")


def slot_id(number: int) -> str:
    """Name of the slot with this number: ``slot-07``. Slots are fungible; the number means nothing.

    Raises:
        ValueError: the number is outside 0..9999.
    """
    if not 0 <= number <= 9999:
        raise ValueError(f"slot number {number} is outside 0..9999")
    return f"slot-{number:02d}"


def accelerator_key(product_name: str) -> str:
    """Key of an accelerator type: the product name in lower case, other characters a dash."""
    return re.sub(r"[^a-z0-9]", "-", product_name.lower())


def default_trust_domain(namespace: str) -> str:
    """Trust domain of a workload that names none; the slash keeps users from typing it."""
    return f"namespace/{namespace}"
