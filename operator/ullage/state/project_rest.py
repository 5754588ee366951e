# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Deployments and Services with our label, profiles, and the scheduling policy."""

from __future__ import annotations

from math import ceil, floor

from ullage.api.contract import (
    ANNOTATION_TEMPLATE_HASH,
    JsonObject,
    WireError,
    objects,
    section,
    text,
    whole,
)
from ullage.state.project import (
    optional_text,
    optional_whole,
    read_conditions,
    read_meta,
    within,
)
from ullage.state.project_quantity import mib_down
from ullage.state.records import (
    DeploymentRecord,
    DeviceProfileRecord,
    PolicyRecord,
    ProfileRecord,
    ServiceRecord,
    SoloEntry,
)


def _number(raw: JsonObject, field: str, default: float | None = None) -> float:
    value = raw.get(field, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise WireError(f"{field}: expected a number, got {type(value).__name__}")
    return float(value)


def _budget(raw: JsonObject, field: str, replicas: int, *, up: bool) -> int:
    """A rolling-update bound: whole, or percent of the replicas (surge rounds up)."""
    value = raw.get(field)
    if value is None:
        value = "25%"
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str) or not value.endswith("%") or not value[:-1].isdigit():
        raise WireError(f"{field}: expected a whole number or percent, got {value!r}")
    part = replicas * int(value[:-1]) / 100
    return ceil(part) if up else floor(part)


def project_deployment(raw: JsonObject) -> DeploymentRecord:
    """Read a Deployment.

    Raises:
        WireError: a field that is needed is missing or malformed.
    """
    meta = read_meta(raw)
    spec, status = section(raw, "spec"), section(raw, "status")
    replicas = optional_whole(spec, "replicas", 1)
    ready = optional_whole(status, "readyReplicas")
    updated = optional_whole(status, "updatedReplicas")
    with within("spec.strategy"):
        rolling = section(section(spec, "strategy"), "rollingUpdate")
        surge = _budget(rolling, "maxSurge", replicas, up=True)
        unavailable = _budget(rolling, "maxUnavailable", replicas, up=False)
    settled = optional_whole(
        status, "observedGeneration"
    ) >= meta.generation and updated == replicas == ready == optional_whole(status, "replicas")
    return DeploymentRecord(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        owner_uid=meta.controller.uid if meta.controller else "",
        replicas=replicas,
        ready=ready,
        updated=updated,
        template_hash=meta.annotations.get(ANNOTATION_TEMPLATE_HASH, ""),
        max_surge=surge,
        max_unavailable=unavailable,
        settled=settled,
    )


def project_service(raw: JsonObject) -> ServiceRecord:
    """Read a Service.

    Raises:
        WireError: a field that is needed is missing or malformed.
    """
    meta = read_meta(raw)
    with within("spec"):
        ports = tuple(whole(port, "port") for port in objects(section(raw, "spec"), "ports"))
    return ServiceRecord(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        owner_uid=meta.controller.uid if meta.controller else "",
        ports=ports,
    )


def project_profile(raw: JsonObject) -> ProfileRecord:
    """Read a WorkloadProfile.

    Raises:
        WireError: a field that is needed is missing or malformed.
    """
    meta = read_meta(raw)
    with within("spec"):
        spec = section(raw, "spec")
        solo = tuple(
            SoloEntry(
                device=text(row, "device"),
                share=whole(row, "share"),
                sm_util=_number(row, "smUtil"),
                steps_per_second=_number(row, "stepsPerSecond", 0.0),
            )
            for row in objects(spec, "solo")
        )
        return ProfileRecord(
            namespace=meta.namespace, name=meta.name, klass=text(spec, "class"), solo=solo
        )


def project_device_profile(raw: JsonObject) -> DeviceProfileRecord:
    """Read a DeviceProfile.

    Raises:
        WireError: a field that is needed is missing or malformed.
    """
    meta = read_meta(raw)
    with within("spec"):
        spec = section(raw, "spec")
        memory = spec.get("memory")
        return DeviceProfileRecord(
            name=meta.name,
            memory_mib=0 if memory is None else mib_down(memory, "memory"),
            context_overhead_mib=optional_whole(spec, "contextOverheadMiB"),
        )


def project_policy(raw: JsonObject) -> tuple[str, PolicyRecord]:
    """Read name and content of a SchedulingPolicy.

    Raises:
        WireError: a field that is needed is missing or malformed.
    """
    meta = read_meta(raw)
    default = PolicyRecord()
    with within("spec"):
        spec = section(raw, "spec")
        packing = section(spec, "packing")
        record = PolicyRecord(
            name=meta.name,
            uid=meta.uid,
            generation=meta.generation,
            objective=optional_text(spec, "objective") or default.objective,
            max_percent_sum=optional_whole(packing, "maxPercentSum", default.max_percent_sum),
            round_seconds=optional_whole(spec, "roundSeconds", default.round_seconds),
            gang_skip_limit=optional_whole(spec, "gangSkipLimit", default.gang_skip_limit),
            conditions=read_conditions(section(raw, "status")),
        )
    return meta.name, record
