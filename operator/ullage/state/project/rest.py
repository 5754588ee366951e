# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Deployments and Services with our label, profiles, and the scheduling policy."""

from __future__ import annotations

import re
from math import ceil, floor
from typing import Final

from ullage.api.contract import (
    ANNOTATION_TEMPLATE_HASH,
    JsonObject,
    WireError,
    objects,
    section,
    text,
    whole,
)
from ullage.state.profile.numbers import decimal, number
from ullage.state.profile.speed_wire import op_table_of, peak_flops_of
from ullage.state.profile.wire import (
    device_model_of,
    newest_first,
    profile_status_from_wire,
    solo_from_wire,
    step_from_wire,
)
from ullage.state.project.objects import (
    optional_text,
    optional_whole,
    read_conditions,
    read_meta,
    strings,
    within,
)
from ullage.state.project.quantity import duration_s, mib_down
from ullage.state.records import (
    DeploymentRecord,
    DeviceProfileRecord,
    PolicyRecord,
    ProfileRecord,
    ServiceRecord,
)
from ullage.state.status.allocation import solve_from_wire
from ullage.state.status.records import SolveRecord
from ullage.state.terms import Party, RiskSettings, SpotTerms

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
        owner_uid=meta.owner_uid,
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
        klass = text(spec, "class")
        family = optional_text(spec, "family")
        solo = tuple(solo_from_wire(row) for row in objects(spec, "solo"))
        steps = sorted((step_from_wire(row) for row in objects(spec, "stepTime")), key=newest_first)
        op_table = op_table_of(spec)
    with within("status"):
        status = profile_status_from_wire(section(raw, "status"))
    return ProfileRecord(
        namespace=meta.namespace,
        name=meta.name,
        klass=klass,
        uid=meta.uid,
        generation=meta.generation,
        solo=solo,
        family=family,
        step_time=tuple(steps),
        op_table=op_table,
        status=status,
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
        memory_mib = 0 if memory is None else mib_down(memory, "memory")
        overhead_mib = optional_whole(spec, "contextOverheadMiB")
        peak_flops = peak_flops_of(spec)
        bytes_per_s = number(spec, "memoryBytesPerSecond") or 0.0
        price = decimal(spec, "pricePerHour")
    with within("status"):
        status = section(raw, "status")
        model = device_model_of(status)
        conditions = tuple(sorted(read_conditions(status), key=lambda item: item.type))
    return DeviceProfileRecord(
        name=meta.name,
        memory_mib=memory_mib,
        context_overhead_mib=overhead_mib,
        peak_flops=peak_flops,
        memory_bytes_per_s=bytes_per_s,
        price_per_hour=price,
        uid=meta.uid,
        generation=meta.generation,
        model=model,
        conditions=conditions,
    )


def _risk(spec: JsonObject) -> RiskSettings:
    with within("risk"):
        raw, default = section(spec, "risk"), RiskSettings()
        return RiskSettings(
            learned=optional_text(raw, "predictor") != "UtilisationSum",
            eps_percent=optional_whole(raw, "epsPercent", default.eps_percent),
            confidence_percent=optional_whole(raw, "confidencePercent", default.confidence_percent),
            min_combined_percent=optional_whole(
                raw, "minCombinedPercent", default.min_combined_percent
            ),
            probation_seconds_per_class=optional_whole(
                raw, "probationSecondsPerClass", default.probation_seconds_per_class
            ),
            conformal=optional_text(raw, "tightSLO") != "Refuse",
        )


def _spot(spec: JsonObject) -> SpotTerms:
    raw, default = section(spec, "spot"), SpotTerms()
    return SpotTerms(
        restart_cost_s=optional_whole(raw, "restartCostSeconds", default.restart_cost_s),
        min_gain_percent=optional_whole(raw, "minGainPercent", default.min_gain_percent),
        min_hold_s=_time_s(raw, "minHold", default.min_hold_s),
        hazard_half_life_s=_time_s(raw, "hazardHalfLife", default.hazard_half_life_s),
        prior_hours=optional_whole(raw, "priorHours", default.prior_hours),
        decision_period_s=_time_s(spec, "decisionPeriod", default.decision_period_s),
        min_savings_percent=optional_whole(spec, "minSavingsPercent", default.min_savings_percent),
    )


def _time_s(raw: JsonObject, field: str, default: float) -> float:
    """A Go duration in seconds."""
    stated = optional_text(raw, field)
    return duration_s(stated, field) if stated else default


def _party(raw: JsonObject) -> Party:
    return Party(
        name=text(raw, "name"),
        weight=optional_whole(raw, "weight", 1),
        fifo=optional_text(raw, "inner") == "FIFO",
    )


def _trust_domains(spec: JsonObject) -> dict[str, frozenset[str]]:
    """The grants; a name with a slash would imitate a namespace's own domain."""
    granted: dict[str, frozenset[str]] = {}
    for raw in objects(spec, "trustDomains"):
        name = text(raw, "name")
        if "/" in name:
            raise WireError(f"trustDomains[{name}]: a name must not hold a slash")
        granted[name] = granted.get(name, frozenset()) | set(strings(raw, "namespaces"))
    return granted


def _last_solve(raw: JsonObject) -> SolveRecord | None:
    with within("status.lastSolve"):
        status = section(raw, "status")
        return solve_from_wire(section(status, "lastSolve")) if status.get("lastSolve") else None


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
            min_service_percent=optional_whole(
                spec, "minServicePercent", default.min_service_percent
            ),
            risk=_risk(spec),
            spot=_spot(spec),
            tenants=tuple(
                sorted((_party(one) for one in objects(spec, "tenants")), key=lambda one: one.name)
            ),
            trust_domains=_trust_domains(spec),
            last_solve=_last_solve(raw),
            conditions=read_conditions(section(raw, "status")),
        )
    return meta.name, record
