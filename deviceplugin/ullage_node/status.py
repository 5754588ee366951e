# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Builds ``GPUNode.status`` from the agent's state.

Pure: facts in, JSON out. Two bodies that differ only in counters, rows, the heartbeat or start
phases of containers have the same :func:`urgent_digest`: counters wait for the next heartbeat, new
rows (:func:`row_ids`) and starts (:func:`start_digest`) are rate-limited, all else is written at
once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from ullage.api.checks import NodeCheck
from ullage.api.dataio import ObservedLoader, ObservedStarvation
from ullage.api.devices import Health, ObservedDevice
from ullage.api.faults import DeviceFault
from ullage.api.interruptions import Interruption
from ullage.api.labels import API_VERSION
from ullage.api.loads import ObservedLoad
from ullage.api.observations import Observation
from ullage.api.readers import JsonObject
from ullage.api.reasons import Reason
from ullage.api.slices import WIRE_VERSION, ObservedLane, ObservedRank, ObservedSlice, SlicePhase
from ullage.api.traces import ObservedTrace
from ullage_node.kubelet.registrar import Registration
from ullage_node.model.devices import Attachment, AttachState, ContainerKey, StepProgress
from ullage_node.model.guard import SliceMark, WindowTally
from ullage_node.model.slices import HeldSlice, LaneReading, SliceRefusal

COUNTERS: Final = frozenset(
    {
        "pids",
        "smCount",
        "memoryUsedMiB",
        "steps",
        "items",
        "stepMicros",
        "soloStepMicros",
        "latencyMicros",
        "load",
        "windows",
        "violations",
        "checkpointAgeSeconds",
        "resumedAtStep",
        "laneWaitPercent",
        "persistentPeakMiB",
        "ephemeralPeakMiB",
        "usage",
        "ranks",
        "loader",
    }
)
"""Fields of a slice that change continuously."""
_STARTS: Final = frozenset({"phase", "proof"})
"""Fields of a slice that change while its container starts."""
_ON_THE_WAY: Final = frozenset({SlicePhase.RESERVED, SlicePhase.PREPARED, SlicePhase.ATTACHED})
MOST_PIDS: Final = 512
MOST_RANKS: Final = 64
"""Ranks of one status, 10 KiB at most: the API server stores the whole object at every
heartbeat."""
MOST_BYTES: Final = 15 * 1024
"""Bytes of a status above which observations wait for later ones: with the names of its fields, the
API server stores 1 KiB more."""
LEAST_ROWS: Final = 2
"""Observations of a status of any size, so that none waits for ever."""
LONGEST_MESSAGE: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCondition:
    """One condition without its transition time."""

    type: str
    status: bool
    reason: Reason
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """State of the agent as a whole."""

    registration: Registration
    late_binding: bool = True
    retired: bool = False
    backend_problem: SliceRefusal | None = None
    """The reason why there are no devices to offer, if any."""
    lost_devices: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    """Parts of the spec that could not be read."""
    unshared: Mapping[str, str] = field(default_factory=dict)
    """Reasons why devices are not shared by MPS, by uuid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusFacts:
    """The content of one status."""

    name: str
    uid: str
    generation: int
    epoch: int
    version: str
    driver: str
    devices: tuple[ObservedDevice, ...]
    slices: tuple[ObservedSlice, ...]
    slots: int
    used_slots: int
    conditions: tuple[JsonObject, ...]
    observations: tuple[Observation, ...] = ()
    faults: tuple[DeviceFault, ...] = ()
    """Faults of the devices, oldest first."""
    interruption: Interruption | None = None
    """The provider's notice that is in force."""
    checks: tuple[NodeCheck, ...] = ()
    """Checks made on the node and their results."""
    lanes: tuple[ObservedLane, ...] = ()
    """Lanes in which programs take turns."""
    traces: tuple[ObservedTrace, ...] = ()
    """Orders of step traces, and what ranks answered."""
    starvations: tuple[ObservedStarvation, ...] = ()
    """Containers that get too little of a volume."""


def judge(facts: NodeFacts) -> tuple[NodeCondition, ...]:
    """The node's conditions; each False or True one has its reason."""
    degraded = _degraded(facts)
    away = SliceRefusal(reason=Reason.KUBELET_AWAY, message=facts.registration.problem)
    if facts.retired:
        unready: SliceRefusal | None = SliceRefusal(
            reason=Reason.RETIRED, message="taken out of service"
        )
    elif not facts.registration.registered:
        unready = degraded or away
    else:
        unready = degraded if facts.backend_problem else None
    conditions = [
        _condition("Ready", unready is None, unready),
        _condition("Degraded", degraded is not None, degraded),
        _condition(
            "LateBinding",
            facts.late_binding,
            None
            if facts.late_binding
            else SliceRefusal(
                reason=Reason.CDI_UNAVAILABLE,
                message="the container runtime does not honour CDI; enable it and set "
                "ULLAGE_NODE_LATE_BINDING=true",
            ),
        ),
    ]
    if facts.lost_devices:
        message = f"lost: {', '.join(facts.lost_devices)}"
        lost = SliceRefusal(reason=Reason.DEVICE_LOST, message=message)
        conditions.append(_condition("DeviceLost", True, lost))
    if facts.unshared:
        message = "; ".join(f"{uuid}: {why}" for uuid, why in sorted(facts.unshared.items()))
        sharing = SliceRefusal(reason=Reason.MPS_NOT_READY, message=message)
        conditions.append(_condition("Sharing", False, sharing))
    if facts.retired:
        conditions.append(_condition("Retired", True, unready))
    return tuple(conditions)


def _degraded(facts: NodeFacts) -> SliceRefusal | None:
    if not facts.late_binding:
        return SliceRefusal(
            reason=Reason.CDI_UNAVAILABLE, message="no slots are offered without CDI"
        )
    if facts.backend_problem is not None:
        return facts.backend_problem
    if facts.registration.foreign:
        return SliceRefusal(
            reason=Reason.FOREIGN_PLUGIN,
            message=f"another plugin offers {facts.registration.foreign} on this node; "
            "remove it or the label ullage.dev/node",
        )
    if facts.problems:
        return SliceRefusal(reason=Reason.INVALID_OBJECT, message="; ".join(facts.problems))
    return None


def _condition(kind: str, status: bool, why: SliceRefusal | None) -> NodeCondition:
    if why is None:
        return NodeCondition(type=kind, status=status, reason=Reason.REGISTERED)
    return NodeCondition(type=kind, status=status, reason=why.reason, message=why.message)


def with_transitions(
    conditions: Iterable[NodeCondition], before: Sequence[JsonObject], now: str, generation: int
) -> tuple[JsonObject, ...]:
    """The conditions as the API stores them.

    Args:
        conditions: current conditions.
        before: last reported conditions; a time changes only when the status does.
        now: RFC 3339.
        generation: of the applied spec.
    """
    times = {(old.get("type"), old.get("status")): old.get("lastTransitionTime") for old in before}
    made: list[JsonObject] = []
    for condition in conditions:
        status = "True" if condition.status else "False"
        body: dict[str, object] = {
            "type": condition.type,
            "status": status,
            "reason": condition.reason.value,
            "message": condition.message[:LONGEST_MESSAGE],
            "lastTransitionTime": times.get((condition.type, status)) or now,
        }
        made.append(body | ({"observedGeneration": generation} if generation else {}))
    return tuple(made)


def observed_slices(
    held: Iterable[HeldSlice],
    attachments: Mapping[ContainerKey, Attachment],
    progress: Mapping[ContainerKey, StepProgress],
) -> tuple[ObservedSlice, ...]:
    """Status of each slice, with the newest counters of its container."""
    stepping = sum(bool(made.ranks) for made in progress.values())
    most = max(MOST_RANKS // stepping, 1) if stepping else 0
    return tuple(
        _observed(part, attachments.get(part.container), progress.get(part.container), most)
        for part in held
    )


def _slowest(ranks: Sequence[ObservedRank], most: int) -> tuple[ObservedRank, ...]:
    """Ranks with the most work of their own, by number; the others wait for them."""
    slowest = sorted(ranks, key=lambda rank: (-rank.compute_micros, rank.rank))[:most]
    return tuple(sorted(slowest, key=lambda rank: rank.rank))


def _observed(
    part: HeldSlice, attachment: Attachment | None, progress: StepProgress | None, ranks: int
) -> ObservedSlice:
    desired = part.desired
    seen = attachment or Attachment(state=AttachState.ABSENT)
    made = progress or StepProgress()
    first = desired.key.index == 0
    return ObservedSlice(
        key=desired.key,
        phase=part.phase,
        gpu=desired.gpu,
        percent=desired.percent,
        memory_mib=desired.memory_mib,
        epoch=desired.epoch,
        reason=part.reason,
        message=part.message[:LONGEST_MESSAGE],
        pids=tuple(pid for pid in seen.pids if pid > 0)[:MOST_PIDS],
        sm_count=seen.sm_count or made.sm_count,
        proof=seen.proof,
        # A container's memory is one figure: reported once, so that sums stay correct.
        memory_used_mib=seen.memory_used_mib if first else 0,
        steps=made.steps,
        items=made.items,
        step_micros=made.step_micros,
        solo_step_micros=made.solo_micros(desired.solo_step_micros),
        checkpoint_age_s=made.checkpoint_age_s,
        resumed_at=made.resumed_at,
        lane=desired.lane,
        persistent_mib=desired.persistent_mib if desired.lane else 0,
        ephemeral_mib=desired.ephemeral_mib if desired.lane else 0,
        suspendable=desired.suspendable and desired.lane > 0,
        ranks=_slowest(made.ranks, ranks) if first else (),
    )


def guarded_slices(
    slices: Iterable[ObservedSlice],
    marks: Mapping[ContainerKey, SliceMark],
    tallies: Mapping[ContainerKey, WindowTally],
) -> tuple[ObservedSlice, ...]:
    """The same slices with the guard's marks: violating, frozen, to be moved.

    A slice that is not attached keeps its phase, which takes precedence.
    """
    return tuple(_guarded(part, marks, tallies) for part in slices)


def _guarded(
    part: ObservedSlice,
    marks: Mapping[ContainerKey, SliceMark],
    tallies: Mapping[ContainerKey, WindowTally],
) -> ObservedSlice:
    key = ContainerKey(pod_uid=part.key.pod_uid, container=part.key.container)
    if part.key.index == 0 and (tally := tallies.get(key)):
        part = replace(
            part,
            windows=tally.windows,
            violations=tally.violations,
            latency_micros=tally.latency_micros,
        )
    mark = marks.get(key)
    if mark is None or part.phase is not SlicePhase.ATTACHED:
        return part
    return replace(
        part,
        phase=mark.phase or part.phase,
        reason=mark.reason.value,
        message=mark.message[:LONGEST_MESSAGE],
    )


def loaded_slices(
    slices: Iterable[ObservedSlice], loads: Mapping[ContainerKey, ObservedLoad]
) -> tuple[ObservedSlice, ...]:
    """The same slices with the load of their containers, once per container."""

    def loaded(part: ObservedSlice) -> ObservedSlice:
        key = ContainerKey(pod_uid=part.key.pod_uid, container=part.key.container)
        load = loads.get(key) if part.key.index == 0 else None
        return part if load is None else replace(part, load=load)

    return tuple(map(loaded, slices))


def tuned_slices(
    slices: Iterable[ObservedSlice], loaders: Mapping[ContainerKey, ObservedLoader]
) -> tuple[ObservedSlice, ...]:
    """The same slices with the loaders of their programs, once per container."""

    def tuned(part: ObservedSlice) -> ObservedSlice:
        key = ContainerKey(pod_uid=part.key.pod_uid, container=part.key.container)
        loader = loaders.get(key) if part.key.index == 0 else None
        return part if loader is None else replace(part, loader=loader)

    return tuple(map(tuned, slices))


def turned_slices(
    slices: Iterable[ObservedSlice], readings: Mapping[str, LaneReading]
) -> tuple[ObservedSlice, ...]:
    """The same slices with the readings of their lanes.

    Args:
        slices: The node's slices.
        readings: By directory of the container.
    """

    def turned(part: ObservedSlice) -> ObservedSlice:
        key = ContainerKey(pod_uid=part.key.pod_uid, container=part.key.container)
        reading = readings.get(key.directory)
        if reading is None:
            return part
        return replace(
            part,
            suspended=reading.suspended,
            lane_wait_percent=reading.wait_percent,
            persistent_peak_mib=reading.persistent_peak_mib,
            ephemeral_peak_mib=reading.ephemeral_peak_mib,
        )

    return tuple(map(turned, slices))


def has_loads(body: Mapping[str, object]) -> bool:
    """True if a body contains a load: loads are reported more often than the heartbeat."""
    return any("load" in part for part in _status(body)["slices"])


def effective(device: ObservedDevice, refusal: SliceRefusal | None) -> ObservedDevice:
    """A device with its health after hysteresis."""
    return replace(device, health=Health.UNHEALTHY if refusal else Health.HEALTHY)


def body_of(facts: StatusFacts, heartbeat: str) -> dict[str, object]:
    """The whole apply body; a uid keeps the API server from writing to a successor."""
    agent: dict[str, object] = {"version": facts.version, "contract": WIRE_VERSION}
    notice = facts.interruption
    status: dict[str, object] = {
        "observedGeneration": facts.generation,
        "observedEpoch": facts.epoch,
        "heartbeat": heartbeat,
        "agent": agent | ({"driver": facts.driver} if facts.driver else {}),
        "totals": {
            "devices": len(facts.devices),
            "slots": facts.slots,
            "usedSlots": facts.used_slots,
        },
        "devices": [device.to_wire() for device in facts.devices],
        "slices": [part.to_wire() for part in facts.slices],
        **({"lanes": [lane.to_wire() for lane in facts.lanes]} if facts.lanes else {}),
        "faults": [fault.to_wire() for fault in facts.faults],
        **({"interruption": notice.to_wire()} if notice is not None else {}),
        **({"traces": [trace.to_wire() for trace in facts.traces]} if facts.traces else {}),
        **(
            {"starvations": [starving.to_wire() for starving in facts.starvations]}
            if facts.starvations
            else {}
        ),
        "checks": [check.to_wire() for check in facts.checks],
        "conditions": [dict(condition) for condition in facts.conditions],
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "GPUNode",
        "metadata": {"name": facts.name, "uid": facts.uid},
        "status": status | {"observations": _fitting(facts.observations, status)},
    }


def _fitting(rows: Iterable[Observation], status: Mapping[str, object]) -> list[JsonObject]:
    """The oldest rows for which a status has room."""
    left = MOST_BYTES - len(orjson.dumps(status))
    shown: list[JsonObject] = []
    for row in rows:
        body = row.to_wire()
        left -= len(orjson.dumps(body))
        if left < 0 and len(shown) >= LEAST_ROWS:
            break
        shown.append(body)
    return shown


def urgent_digest(body: Mapping[str, object]) -> str:
    """Hash of the parts that must be written at once.

    All but the heartbeat, counters, rows, and start phases of containers.
    """
    status = _status(body)
    slices = [
        {name: value for name, value in part.items() if name not in _waiting(part)}
        for part in status["slices"]
    ]
    devices = [
        {**device, "mps": {**device["mps"], "contexts": None}} if "mps" in device else device
        for device in status["devices"]
    ]
    urgent = {
        **status,
        "slices": slices,
        "devices": devices,
        "totals": {**status["totals"], "usedSlots": None},
        "heartbeat": None,
        "lanes": None,
        "observations": None,
        "starvations": [
            (starving["volume"], starving["podUID"], starving["hogUID"])
            for starving in status.get("starvations", ())
        ],
    }
    stable = orjson.dumps([body["metadata"], urgent], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(stable).hexdigest()


def _waiting(part: Mapping[str, object]) -> frozenset[str]:
    """Fields of a slice that are not written at once."""
    return COUNTERS | _STARTS if part["phase"] in _ON_THE_WAY else COUNTERS


def start_digest(body: Mapping[str, object]) -> str:
    """Hash of the start phases of containers."""
    status = _status(body)
    starts = [[part.get(name) for name in sorted(_STARTS)] for part in status["slices"]]
    stable = orjson.dumps([status["totals"], starts], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(stable).hexdigest()


def _status(body: Mapping[str, object]) -> dict[str, Any]:
    status = body["status"]
    assert isinstance(status, dict)
    return status


def row_ids(body: Mapping[str, object]) -> frozenset[str]:
    """Ids of the observations in a body; an observation never changes."""
    return frozenset(row["id"] for row in _status(body)["observations"])


def timestamp(wall: float) -> str:
    """RFC 3339 in whole seconds."""
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
