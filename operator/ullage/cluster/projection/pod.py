# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pods: ours in full, foreign ones as their use of a node.

Reads only the API's pod; ``ClusterState`` checks the claimed owner, because only it knows the uids.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ullage.api.adoption import LABELS
from ullage.api.labels import (
    ANNOTATION_RESERVATION,
    ANNOTATION_WORLD_SIZE,
    LABEL_LEAD,
    LABEL_ORDER,
    LABEL_RANK,
    LABEL_ROUTER,
    SLOT_RESOURCE,
)
from ullage.api.readers import JsonObject, WireError, objects, section, text, whole
from ullage.api.times import seconds
from ullage.cluster.codecs.objects import (
    Sharer,
    condition_true,
    identity,
    last_line,
    optional_text,
    optional_whole,
    read_meta,
    short,
    version_of,
)
from ullage.cluster.projection.adopted import device_container
from ullage.cluster.projection.ownership import Claim, read_claim
from ullage.cluster.projection.pod_rules import foreign_traits, labels_of, pod_rules
from ullage.cluster.projection.pod_shape import pod_requests, pod_shape, resources_of
from ullage.cluster.records.metrics import EpochValue, read_report
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.pod import ForeignPod, PodRecord, PodStage, end_text
from ullage.cluster.records.pod_rules import PodTraits
from ullage.cluster.records.pod_shape import Resources
from ullage.cluster.records.router import RouterPod
from ullage.cluster.records.workload import WorkloadKind
from ullage.cluster.times import CLOCKS_APART_S
from ullage.cluster.values.names import number_of
from ullage.cluster.values.readable import complete

_RACE_REASONS: Final = frozenset({"UnexpectedAdmissionError", "NodeAffinity"})
_RACE_PREFIX: Final = "OutOf"
_GATED_REASON: Final = "SchedulingGated"
ROUTER_CONTAINER: Final = "router"
_ROUTER_STARTING: Final = ("", "ContainerCreating", "PodInitializing")
_CRASHED: Final = "CrashLoopBackOff"
MOST_FAULT: Final = 300
"""Maximum characters of a router's fault."""
MOST_WORD: Final = 64
"""Maximum characters of kubelet's reason for an end."""
_STARTING: Final = "PodInitializing"
"""Reason of a container while init containers run, which have reasons of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignUse:
    """Requests of a foreign bound pod on its node."""

    node: str
    requests: Resources
    slot_holder: str = ""
    """Namespace and name of the pod, if it requests device slots."""
    traits: PodTraits | None = None
    """Traits relevant to the rules of others; ``None`` = unreadable."""


def _stage(phase: str, gates: tuple[str, ...], node: str) -> PodStage:
    if phase == "Succeeded":
        return PodStage.SUCCEEDED
    if phase == "Failed":
        return PodStage.FAILED
    if gates:
        return PodStage.GATED
    if not node:
        return PodStage.UNSCHEDULED
    return PodStage.RUNNING if phase == "Running" else PodStage.BOUND


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """End of a container."""

    code: int | None = None
    reason: str = ""
    line: str = ""
    before: str = ""
    restarts: int = 0


def _end(status: JsonObject, device: str) -> _End:
    """The end of the device container; where it has none or 0, of the first that failed.

    Without one in any container, kubelet's reason for the end of the pod.
    """
    device_end: JsonObject = {}
    failed: JsonObject = {}
    restarts, before = 0, ""
    for field in ("initContainerStatuses", "containerStatuses"):
        for container in objects(status, field):
            ended = section(section(container, "state"), "terminated")
            if field == "containerStatuses" and container.get("name") == device:
                device_end = ended
                before = _before(container)
                restarts = max(0, optional_whole(container, "restartCount"))
            if ended and whole(ended, "exitCode") and not failed:
                failed = ended
    chosen = failed if failed and not device_end.get("exitCode") else device_end
    if not chosen:
        line = last_line(optional_text(status, "message"))
        reason = short(optional_text(status, "reason"), MOST_WORD)
        return _End(reason=reason, line=line, before=before, restarts=restarts)
    code = whole(chosen, "exitCode")
    return _End(
        code=code,
        reason=short(optional_text(chosen, "reason"), MOST_WORD),
        line=last_line(optional_text(chosen, "message")) if code else "",
        before=before,
        restarts=restarts,
    )


def _before(container: JsonObject) -> str:
    """End of a container before it was restarted; empty if it was not."""
    ended = section(section(container, "lastState"), "terminated")
    if not ended:
        return ""
    reason = short(optional_text(ended, "reason"), MOST_WORD)
    return end_text(whole(ended, "exitCode"), reason, last_line(optional_text(ended, "message")))


def _report(status: JsonObject, device: str) -> tuple[EpochValue, ...]:
    """Values in the termination message of a trial's program."""
    for container in objects(status, "containerStatuses"):
        if container.get("name") == device:
            ended = section(section(container, "state"), "terminated")
            return read_report(optional_text(ended, "message"))
    return ()


def _waiting(status: JsonObject, device: str) -> tuple[str, str]:
    """Reason and message of the waiting device container, or of its init container."""
    waiting = ("", "")
    for container in objects(status, "containerStatuses"):
        if container.get("name") == device:
            state = section(section(container, "state"), "waiting")
            waiting = (optional_text(state, "reason"), optional_text(state, "message"))
    if waiting[0] in ("", _STARTING):
        for container in objects(status, "initContainerStatuses"):
            state = section(section(container, "state"), "waiting")
            reason = optional_text(state, "reason")
            if reason and reason != _STARTING:
                return reason, short(optional_text(state, "message"))
    return waiting[0], short(waiting[1])


def _scheduling_message(status: JsonObject) -> str:
    for condition in objects(status, "conditions"):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            if condition.get("reason") == _GATED_REASON:
                return ""
            return short(optional_text(condition, "message"))
    return ""


def _ready_since(status: JsonObject) -> float:
    """Time of the last change of readiness; an unreadable one has no other effect."""
    for condition in objects(status, "conditions"):
        if condition.get("type") == "Ready":
            with suppress(WireError):
                return seconds(condition.get("lastTransitionTime"), "lastTransitionTime")
    return 0.0


def _ended_at(status: JsonObject) -> float:
    """Time of the last container's end; 0 if none has ended, or it is unreadable."""
    ends = [
        _moment(section(section(container, "state"), "terminated"), "finishedAt")
        for container in objects(status, "containerStatuses")
    ]
    return max(ends, default=0.0)


def _stop_asked(metadata: JsonObject, status: JsonObject) -> float | None:
    """Time when deletion or disruption began; ``None`` = never, 0 = unreadable.

    The time in the object is the end of the deletion's grace period.
    """
    moments: list[float] = []
    if metadata.get("deletionTimestamp"):
        over = _moment(metadata, "deletionTimestamp")
        moments.append(max(0.0, over - optional_whole(metadata, "deletionGracePeriodSeconds")))
    moments.extend(
        _moment(condition, "lastTransitionTime")
        for condition in objects(status, "conditions")
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True"
    )
    return min(moments, default=None)


def _moment(raw: JsonObject, field: str) -> float:
    """A time used only to order ends: an unreadable one has no other effect."""
    try:
        return seconds(raw.get(field), field)
    except WireError:
        return 0.0


def project_pod(raw: JsonObject, now: float, share: Sharer) -> tuple[PodRecord, Claim]:
    """Read a pod with our label, and its claimed owner.

    Raises:
        WireError: a field that is needed is missing or malformed.
    """
    meta = read_meta(raw)
    spec, status = section(raw, "spec"), section(raw, "status")
    claim = read_claim(meta, spec)
    is_adopted = claim.owner.kind == WorkloadKind.POD
    shape = share(pod_shape(spec, device=device_container(meta, spec) if is_adopted else 0))
    gates = tuple(text(gate, "name") for gate in objects(spec, "schedulingGates"))
    node = optional_text(spec, "nodeName")
    failed_why = optional_text(status, "reason")
    stage = _stage(optional_text(status, "phase"), gates, node)
    lost_race = stage is PodStage.FAILED and (
        failed_why in _RACE_REASONS or failed_why.startswith(_RACE_PREFIX)
    )
    ended_at, stop_asked = _ended_at(status), _stop_asked(section(raw, "metadata"), status)
    ended_first = stop_asked is None or 0 < ended_at < stop_asked - CLOCKS_APART_S
    if stage is PodStage.SUCCEEDED and not ended_first:
        stage = PodStage.STOPPED
    disrupted = lost_race or condition_true(status, "DisruptionTarget")
    waiting_reason, waiting_message = _waiting(status, shape.device_container)
    end = _end(status, shape.device_container)
    coordinator = meta.labels.get(LABEL_LEAD) == "true"
    record = PodRecord(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        owner=share(claim.owner),
        created=meta.created,
        stage=stage,
        stage_since=now,
        shape=shape,
        rank=number_of(meta.labels.get(LABEL_RANK, "")),
        gates=share(gates),
        node=share(node),
        ready=condition_true(status, "Ready"),
        ready_since=_ready_since(status),
        deleting=meta.deleting,
        priority=optional_whole(spec, "priority"),
        disrupted=disrupted or (stage is PodStage.FAILED and not ended_first),
        lost_race=lost_race,
        exit_code=end.code,
        end_reason=share(end.reason) if stage.finished else "",
        last_line=end.line if stage is PodStage.FAILED else "",
        last_end=end.before,
        container_restarts=end.restarts,
        waiting_reason=share(waiting_reason),
        waiting_message=waiting_message,
        scheduling_message=share(_scheduling_message(status)),
        order=share(meta.labels.get(LABEL_ORDER, "")),
        lead=coordinator,
        address=optional_text(status, "podIP") if coordinator else "",
        template_hash=share(version_of(meta.annotations)),
        reservation=meta.annotations.get(ANNOTATION_RESERVATION, "")[:MOST_WORD],
        grace_s=optional_whole(spec, "terminationGracePeriodSeconds", 30),
        world_size=max(0, number_of(meta.annotations.get(ANNOTATION_WORLD_SIZE, ""))),
        controlled=is_adopted and meta.controller is not None,
        controller=share(meta.controller.uid if is_adopted and meta.controller else ""),
        report=_report(status, shape.device_container) if stage is PodStage.SUCCEEDED else (),
        labels=labels_of(meta.labels, share),
        rules=share(pod_rules(spec, namespace=meta.namespace, name=meta.name, labels=meta.labels)),
        ended_at=ended_at if stage.finished else 0.0,
        stop_asked=(stop_asked or 0.0) if stage.finished else 0.0,
    )
    return record, claim


def project_foreign(raw: JsonObject, share: Sharer) -> tuple[str, ForeignUse | None]:
    """Read uid and resources of a foreign pod; ``None`` if it uses nothing (any more).

    Raises:
        WireError: a field that is needed is missing or malformed.
    """
    complete(raw)
    uid = text(section(raw, "metadata"), "uid")
    spec = section(raw, "spec")
    node = optional_text(spec, "nodeName")
    phase = optional_text(section(raw, "status"), "phase")
    if not node or phase in ("Succeeded", "Failed"):
        return uid, None
    requests = pod_requests(spec)
    holder = ""
    if requests.get(SLOT_RESOURCE):
        metadata = section(raw, "metadata")
        holder = f"{optional_text(metadata, 'namespace')}/{optional_text(metadata, 'name')}"
    traits: PodTraits | None = None
    with suppress(WireError):  # its resources count, whatever its rules
        traits = foreign_traits(raw, share)
    use = ForeignUse(
        node=node, requests=resources_of(requests, pods=1), slot_holder=holder, traits=traits
    )
    return uid, share(use)


def project_unprepared(raw: JsonObject) -> ForeignPod | None:
    """A pod whose labels request a device though admission did not prepare it, else ``None``.

    Raises:
        WireError: its metadata are malformed.
    """
    labels = section(section(raw, "metadata"), "labels")
    asked = next((label.key for label in LABELS if label.key in labels), "")
    if not asked:
        return None
    meta = identity(raw)
    ref = ObjectRef(kind="Pod", namespace=meta.namespace, name=meta.name, uid=meta.uid)
    why = f"its label {asked} asks for a device, and no admission policy of Ullage prepared it"
    return ForeignPod(namespace=meta.namespace, name=meta.name, claims=ref, why=why)


def project_router_pod(raw: JsonObject) -> RouterPod | None:
    """Read a router; ``None`` for a pod that does not claim to be one.

    Raises:
        WireError: its metadata or status are malformed.
    """
    service = section(section(raw, "metadata"), "labels").get(LABEL_ROUTER)
    if not isinstance(service, str) or not service:
        return None
    meta, status = identity(raw), section(raw, "status")
    return RouterPod(
        uid=meta.uid,
        namespace=meta.namespace,
        service=service,
        address=optional_text(status, "podIP"),
        leaving=bool(optional_text(section(raw, "metadata"), "deletionTimestamp")),
        fault=_router_fault(status),
    )


def _router_fault(status: JsonObject) -> str:
    """Reason why a router does not run: its own message or kubelet's; empty = it runs."""
    for container in objects(status, "containerStatuses"):
        if container.get("name") != ROUTER_CONTAINER or container.get("ready") is True:
            continue
        state = section(container, "state")
        waiting = section(state, "waiting")
        ended = section(state, "terminated") or section(
            section(container, "lastState"), "terminated"
        )
        reason = optional_text(waiting, "reason")
        if reason not in (*_ROUTER_STARTING, _CRASHED):
            return _fault_line(reason, optional_text(waiting, "message"))
        if optional_whole(ended, "exitCode"):
            last_words = optional_text(ended, "message").strip().rpartition("\n")[2]
            return _fault_line(f"exit {optional_whole(ended, 'exitCode')}", last_words)
    return ""


def _fault_line(reason: str, message: str) -> str:
    words = " ".join(f"{reason}: {message}".split())
    return short(words.rstrip(": "), MOST_FAULT)
