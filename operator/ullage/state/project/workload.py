# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""TrainingJobs and InferenceServices.

Schema, defaults and rules were applied by the API server; what still cannot be read never stops
the stream: the last good record stays and says what is wrong with the newest version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final
from weakref import WeakValueDictionary

from ullage.api.contract import (
    LABEL_CLASS,
    LABEL_FAMILY,
    GPUMode,
    LatencyObjective,
    WireError,
    default_trust_domain,
    flag,
    objects,
    section,
    text,
    whole,
)
from ullage.ports import JsonObject
from ullage.state.blueprint import Blueprint, canonical_json, template_hash
from ullage.state.klass import class_key, family_key
from ullage.state.project.objects import (
    Meta,
    Sharer,
    identity,
    optional_text,
    optional_whole,
    strings,
    within,
)
from ullage.state.project.quantity import counted, duration_s, mib_up
from ullage.state.project.readable import TOO_DEEP, complaint, complete, too_deep
from ullage.state.project.shape import pod_shape
from ullage.state.records import (
    FailurePolicy,
    GPURequest,
    ObjectRef,
    Share,
    WorkloadKind,
    WorkloadRecord,
)
from ullage.state.shapes import PodShape
from ullage.state.status.records import WorkloadStatus
from ullage.state.status.wire import status_from_wire
from ullage.state.terms import (
    RENDEZVOUS,
    CostAim,
    Elasticity,
    OfferedLoad,
    OnNotice,
    SharingRules,
    TierTerms,
)

_NO_TIERS = "Disabled"


def _gpu(spec: JsonObject) -> GPURequest:
    with within("gpu"):
        raw = section(spec, "gpu")
        try:
            mode = GPUMode(text(raw, "mode", GPUMode.EXCLUSIVE))
        except ValueError as error:
            raise WireError(f"mode: {error}") from error
        share: Share | None = None
        if raw.get("share") is not None:
            bounds = section(raw, "share")
            share = Share(
                min_percent=whole(bounds, "minPercent"),
                max_percent=whole(bounds, "maxPercent", 100),
            )
        if (mode is GPUMode.FRACTIONAL) != (share is not None):
            raise WireError("share: belongs to mode Fractional, and to no other")
        limit = section(raw, "memory").get("limit")
        return GPURequest(
            mode=mode,
            count=whole(raw, "count", 1),
            share=share,
            memory_mib=0 if limit is None else mib_up(limit, "memory.limit"),
        )


def _failure(spec: JsonObject) -> FailurePolicy:
    with within("failurePolicy"):
        raw = section(spec, "failurePolicy")
        codes = raw.get("retryExitCodes") or []
        if not isinstance(codes, list) or not all(isinstance(code, int) for code in codes):
            raise WireError("retryExitCodes: expected a list of whole numbers")
        return FailurePolicy(
            max_restarts=whole(raw, "maxRestarts", 3), retry_exit_codes=frozenset(codes)
        )


def _decimal(raw: JsonObject, field: str, least: float) -> float | None:
    """A decimal string of at least ``least``; absent is ``None``."""
    if raw.get(field) is None:
        return None
    stated = text(raw, field)
    try:
        value = float(stated)
    except ValueError as error:
        raise WireError(f"{field}: {stated!r} is no decimal number") from error
    if not least <= value < float("inf"):
        raise WireError(f"{field}: {stated!r} must be a number of at least {least:g}")
    return value


def _latency(spec: JsonObject) -> LatencyObjective | None:
    with within("slo"):
        slo = section(spec, "slo")
        return LatencyObjective.from_wire(slo) if slo.get("latencyMs") is not None else None


def _slo(spec: JsonObject, field: str, least: float) -> float | None:
    with within("slo"):
        return _decimal(section(spec, "slo"), field, least)


def _load(spec: JsonObject) -> OfferedLoad | None:
    with within("load"):
        raw = section(spec, "load")
        rate = _decimal(raw, "requestsPerSecond", 0.0)
        if not rate:
            return None
        cv2 = _decimal(raw, "cv2", 0.0)
        return OfferedLoad(requests_per_s=rate, cv2=1.0 if cv2 is None else cv2)


def _sharing(spec: JsonObject) -> SharingRules:
    with within("sharing"):
        raw = section(spec, "sharing")
        return SharingRules(
            allow=raw.get("allow") is not False,
            resizable=optional_text(raw, "resizable") == "Restart",
            freeze_neighbours=optional_text(raw, "onViolation") != "Alert",
        )


def _elasticity(spec: JsonObject) -> Elasticity | None:
    with within("elasticity"):
        if spec.get("elasticity") is None:
            return None
        raw = section(spec, "elasticity")
        try:
            on_notice = OnNotice(text(raw, "onNotice", OnNotice.CHECKPOINT))
        except ValueError as error:
            raise WireError(f"onNotice: {error}") from error
        least, most = whole(raw, "minReplicas"), whole(raw, "maxReplicas")
        if not 1 <= least <= most:
            raise WireError(f"minReplicas: {least} must be at least 1 and at most {most}")
        tiers = _tiers(raw)
        return Elasticity(
            min_replicas=least,
            max_replicas=most,
            on_notice=on_notice,
            in_place=optional_text(raw, "membership") == "InPlace" or tiers is not None,
            tiers=tiers,
            meets_elsewhere=_names_rendezvous(spec),
        )


def _names_rendezvous(spec: JsonObject) -> bool:
    """Whether the device container says itself where members meet."""
    containers = objects(section(section(spec, "template"), "spec"), "containers")
    stated = {one.get("name") for one in objects(containers[0], "env")} if containers else set()
    return not stated.isdisjoint(RENDEZVOUS)


def _tiers(raw: JsonObject) -> TierTerms | None:
    """What a job in tiers says of its state; ``None`` = it is in none."""
    stated = optional_text(raw, "tiers") or _NO_TIERS
    if stated == _NO_TIERS:
        return None
    stage = stated.removeprefix("Stage")
    if stated != "Auto" and stage not in ("1", "2", "3"):
        raise WireError(f"tiers: {stated!r} is none of Auto, Stage1, Stage2, Stage3, Disabled")
    with within("backup"):
        backup, default = section(raw, "backup"), TierTerms(reliable=1, state_bytes=1)
        dirty = backup.get("dirtyBytesPerStep")
        return TierTerms(
            reliable=optional_whole(raw, "reliableReplicas"),
            stage=0 if stated == "Auto" else int(stage),
            state_bytes=counted("memory", backup.get("stateBytes"), "stateBytes"),
            dirty_bytes=0 if dirty is None else counted("memory", dirty, "dirtyBytesPerStep"),
            every_steps=optional_whole(backup, "everySteps", default.every_steps),
            max_lag_steps=optional_whole(backup, "maxLagSteps", default.max_lag_steps),
            shards=optional_whole(backup, "shards", default.shards),
        )


def _members(spec: JsonObject, elasticity: Elasticity | None, status: WorkloadStatus) -> int:
    """Members wanted now: as stated, of an elastic job the last size that was decided."""
    if elasticity is None:
        return optional_whole(spec, "replicas", 1)
    return elasticity.within(status.replicas)


def _cost(spec: JsonObject) -> CostAim | None:
    with within("cost"):
        if spec.get("cost") is None:
            return None
        raw = section(spec, "cost")
        return CostAim(
            objective=optional_text(raw, "objective"),
            max_cost=_decimal(raw, "maxCost", 0.0),
            max_time_s=_time_s(raw, "maxTime"),
            deadline_s=_time_s(raw, "deadline"),
            estimated_work_s=_time_s(raw, "estimatedWork"),
            budget_per_hour=_decimal(raw, "budgetPerHour", 0.0),
            allow_spot=raw.get("allowSpot") is not False,
            on_demand_fallback=raw.get("onDemandFallback") is not False,
        )


def _time_s(raw: JsonObject, field: str) -> float | None:
    """A Go duration in seconds; absent is ``None``."""
    return None if raw.get(field) is None else duration_s(text(raw, field), field)


def _trust_domain(spec: JsonObject, namespace: str) -> str:
    """The domain that is stated, else the namespace's own, which cannot be stated."""
    stated = optional_text(spec, "trustDomain")
    if "/" in stated:
        raise WireError("trustDomain: must not hold a slash; leave it out to share within your own")
    return stated or default_trust_domain(namespace)


def _reference(kind: WorkloadKind, meta: Meta) -> ObjectRef:
    return ObjectRef(kind=kind.value, namespace=meta.namespace, name=meta.name, uid=meta.uid)


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class _Template:
    """A pod template and what is read from it."""

    json: str
    shape: PodShape
    version: str
    priority: int
    has_port: bool
    klass: str
    family: str


_Key = tuple[bytes, int, frozenset[tuple[str, str]]]
_TEMPLATES: Final[WeakValueDictionary[_Key, _Template]] = WeakValueDictionary()
"""By hash, slots and labels: read once, however many workloads and status events bear it.

Bounded by what exists: the blueprints hold the templates, and an edited or deleted one goes."""


def _read_template(template_json: str, slots: int, labels: frozenset[tuple[str, str]]) -> _Template:
    """Read a template, or find it read already.

    Raises:
        WireError: it has no containers, or something is malformed.
    """
    key = (hashlib.sha256(template_json.encode()).digest(), slots, labels)
    found = _TEMPLATES.get(key)
    if found is None:
        found = _TEMPLATES[key] = _parsed(template_json, slots, dict(labels))
    return found


def _parsed(template_json: str, slots: int, labels: Mapping[str, str]) -> _Template:
    template: JsonObject = json.loads(template_json)
    with within("template"):
        spec = section(template, "spec")
        return _Template(
            json=template_json,
            shape=pod_shape(spec, slots=slots),
            version=template_hash(template_json, slots),
            priority=optional_whole(spec, "priority"),
            has_port=bool(objects(objects(spec, "containers")[0], "ports")),
            klass=class_key(template, labels),
            family=family_key(template, labels),
        )


def read_status(kind: WorkloadKind, raw: JsonObject) -> WorkloadStatus:
    """The status as it was read back.

    Raises:
        WireError: it is malformed.
    """
    with within("status"):
        return status_from_wire(kind, section(raw, "status"))


def _record(
    kind: WorkloadKind, meta: Meta, spec: JsonObject, status: WorkloadStatus, share: Sharer
) -> tuple[WorkloadRecord, Blueprint]:
    if not isinstance(spec.get("template"), dict):
        raise WireError("template: missing; give the template of the pods")
    if too_deep(spec["template"]):
        raise WireError(f"template: {TOO_DEEP}")
    gpu = _gpu(spec)
    said = frozenset((key, meta.labels.get(key, "")) for key in (LABEL_CLASS, LABEL_FAMILY))
    template = _read_template(canonical_json(spec["template"]), gpu.count, said)
    training = kind is WorkloadKind.TRAINING_JOB
    elasticity = share(_elasticity(spec))
    record = WorkloadRecord(
        ref=share(_reference(kind, meta)),
        kind=kind,
        generation=meta.generation,
        resource_version=meta.resource_version,
        created=meta.created,
        deleting=meta.deleting,
        shape=share(template.shape),
        template_hash=share(template.version),
        replicas=_members(spec, elasticity, status),
        elasticity=elasticity,
        gpu=share(gpu),
        accelerators=share(strings(spec, "accelerators")),
        trust_domain=share(_trust_domain(spec, meta.namespace)),
        profile_ref=share(optional_text(spec, "profileRef")),
        weight=optional_whole(spec, "weight", 1),
        tenant=share(optional_text(spec, "tenant")),
        priority=template.priority,
        suspend=flag(spec, "suspend"),
        max_slowdown=_slo(spec, "maxSlowdown", 1.0),
        min_throughput=_slo(spec, "minThroughput", 0.0),
        slo=share(_latency(spec)),
        load=_load(spec),
        sharing=share(_sharing(spec)),
        klass=share(template.klass),
        family=share(template.family),
        work_steps=optional_whole(section(spec, "work"), "steps"),
        cost=share(_cost(spec)),
        checkpoint=spec.get("checkpoint") is not None,
        failure=share(_failure(spec)),
        ttl_seconds_after_finished=(
            None
            if spec.get("ttlSecondsAfterFinished") is None
            else whole(spec, "ttlSecondsAfterFinished")
        ),
        has_port=training or template.has_port,
        status=status,
    )
    return record, _blueprint(record, spec, template)


def _blueprint(record: WorkloadRecord, spec: JsonObject, template: _Template) -> Blueprint:
    """What the pods of a workload are made from."""
    elasticity = record.elasticity
    grace_s = whole(section(spec, "checkpoint"), "graceSeconds", 30) if record.checkpoint else 0
    return Blueprint(
        template_json=template.json,
        read=template,
        template_hash=record.template_hash,
        replicas=record.replicas,
        slots=record.gpu.count,
        grace_s=grace_s,
        tiers=elasticity.tiers if elasticity is not None else None,
        least=elasticity.min_replicas if elasticity is not None else 0,
    )


def unreadable(
    kind: WorkloadKind, meta: Meta, error: Exception, before: WorkloadRecord | None
) -> WorkloadRecord:
    """The record of an object whose newest version cannot be read.

    With an earlier good record its spec stays in force; without one the record holds identity
    alone: no containers, nothing to place. Either way ``invalid`` says what is wrong.
    """
    text_ = complaint(error)
    if before is not None:
        return replace(
            before,
            generation=meta.generation,
            resource_version=meta.resource_version,
            deleting=meta.deleting,
            invalid=text_,
        )
    return WorkloadRecord(
        ref=_reference(kind, meta),
        kind=kind,
        generation=meta.generation,
        resource_version=meta.resource_version,
        created=meta.created,
        deleting=meta.deleting,
        shape=PodShape(device_container=""),
        template_hash="",
        trust_domain=default_trust_domain(meta.namespace),
        invalid=text_,
    )


def project_workload(
    kind: WorkloadKind, raw: JsonObject, before: WorkloadRecord | None, share: Sharer
) -> tuple[WorkloadRecord, Blueprint | None]:
    """Read a workload; the blueprint is ``None`` where the spec cannot be read.

    Raises:
        WireError: not even the metadata can be read, so nothing can be said of the object.
    """
    meta = identity(raw)
    try:
        status = read_status(kind, raw)
    except Exception as error:  # the seam of one object: whatever it is, it is about this one
        return unreadable(kind, meta, error, before), None
    try:
        complete(raw)
        with within("spec"):
            return _record(kind, meta, section(raw, "spec"), status, share)
    except Exception as error:  # the seam of one object, as above
        return replace(unreadable(kind, meta, error, before), status=status), None
