# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Deployments and Services with our label, and profiles."""

from __future__ import annotations

import re
from math import ceil, floor
from typing import Final, cast

from ullage.api.deviceprofile import read_device_profile_spec
from ullage.api.labels import LABEL_ROUTER
from ullage.api.readers import JsonObject, WireError, objects, quoted, section, whole
from ullage.api.workloadprofile import read_profile_spec
from ullage.cluster.codecs.objects import (
    is_accelerator,
    optional_whole,
    own_conditions,
    read_meta,
    version_of,
    within,
)
from ullage.cluster.codecs.profile import (
    OP_TABLE,
    SOLO_ROWS,
    STEP_ROWS,
    device_model_of,
    profile_status_from_wire,
)
from ullage.cluster.records.profile import DeviceProfileRecord, ProfileRecord, SoloEntry, StepRow
from ullage.cluster.records.snapshot import DeploymentRecord, ServiceRecord

_PERCENT: Final = re.compile(r"[0-9]{1,9}%")


def _budget(raw: JsonObject, field: str, replicas: int, *, up: bool) -> int:
    """A rolling-update bound: whole, or percent of the replicas (surge rounds up)."""
    value = raw.get(field)
    if value is None:
        value = "25%"
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str) or not _PERCENT.fullmatch(value):
        raise WireError(f"{field}: expected a whole number or percent")
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
        owner_uid=meta.owner_uid,
        replicas=replicas,
        ready=ready,
        updated=updated,
        template_hash=version_of(meta.annotations),
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
        spec = section(raw, "spec")
        ports = tuple(whole(port, "port") for port in objects(spec, "ports"))
        routed = LABEL_ROUTER in section(spec, "selector")
    return ServiceRecord(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        owner_uid=meta.owner_uid,
        ports=ports,
        routed=routed,
    )


def project_profile(raw: JsonObject) -> ProfileRecord:
    """Read a WorkloadProfile.

    Raises:
        WireError: a field that is needed is missing or malformed.
    """
    meta = read_meta(raw)
    stated = section(raw, "spec")
    spec = read_profile_spec(stated)
    with within("spec"):
        solo = cast("tuple[SoloEntry, ...]", SOLO_ROWS.read(stated, "solo"))
        step_time = cast("tuple[StepRow, ...]", STEP_ROWS.read(stated, "stepTime"))
        with within("opTable"):
            op_table = OP_TABLE.read(spec.op_table) if spec.op_table else None
    with within("status"):
        status = profile_status_from_wire(section(raw, "status"))
    return ProfileRecord(
        namespace=meta.namespace,
        name=meta.name,
        workload_class=spec.workload_class,
        uid=meta.uid,
        generation=meta.generation,
        solo=solo,
        family=spec.family,
        across_nodes=spec.across_nodes,
        step_time=step_time,
        op_table=op_table,
        status=status,
    )


def project_device_profile(raw: JsonObject) -> DeviceProfileRecord:
    """Read a DeviceProfile.

    Raises:
        WireError: a field that is needed is missing or malformed.
    """
    meta = read_meta(raw)
    if not is_accelerator(meta.name):
        raise WireError(f"metadata.name: {quoted(meta.name)} is no key of an accelerator")
    spec = read_device_profile_spec(section(raw, "spec"))
    with within("status"):
        status = section(raw, "status")
        model = device_model_of(status)
        conditions = tuple(sorted(own_conditions(status), key=lambda item: item.type))
    return DeviceProfileRecord(
        name=meta.name,
        memory_mib=spec.memory_mib,
        context_overhead_mib=spec.context_overhead_mib,
        peak_flops=spec.rates_by_format(),
        memory_bytes_per_s=spec.memory_bytes_per_second,
        price_per_hour=spec.price_per_hour,
        uid=meta.uid,
        generation=meta.generation,
        model=model,
        conditions=conditions,
    )
