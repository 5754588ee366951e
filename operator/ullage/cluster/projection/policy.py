# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""SchedulingPolicies, with the bounds of the schema: one that cannot be read never binds."""

from __future__ import annotations

import re
from typing import Final

from ullage.api.contract import (
    JsonObject,
    WireError,
    bounded,
    moment_of,
    objects,
    section,
    text,
)
from ullage.api.lanes import IterationPolicy
from ullage.api.readers import quoted
from ullage.cluster.codecs.objects import (
    is_domain,
    one_of,
    own_conditions,
    read_conditions,
    read_meta,
    registered,
    within,
)
from ullage.cluster.codecs.status import quota_from_wire, solve_from_wire
from ullage.cluster.records.snapshot import PolicyRecord
from ullage.cluster.records.spec_fields import (
    DAY_S,
    RECONSIDER_TERMS,
    RISK_SETTINGS,
    SPOT_TERMS,
    TENANT,
    FaultTerms,
    Knowledge,
    ReconsiderTerms,
    RiskSettings,
    SpotTerms,
    Tenant,
    namespaces,
)
from ullage.cluster.records.status import QuotaStatus, SolveRecord
from ullage.engines.allocation.policies import POLICIES

MOST_TENANTS: Final = 256
MOST_QUOTAS: Final = 32
_ACCELERATOR: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
MOST_HOURS: Final = 168
"""Longest isolation of a class, the week that nodes remember faults for."""


def _risk(spec: JsonObject) -> RiskSettings:
    with within("risk"):
        return RISK_SETTINGS.read(section(spec, "risk"))


def _lane_policy(spec: JsonObject) -> IterationPolicy:
    with within("sharing"):
        return one_of(section(spec, "sharing"), "lanePolicy", IterationPolicy.FAIR)


def _spot(spec: JsonObject) -> SpotTerms:
    beside = {name: spec.get(name) for name in ("decisionPeriod", "minSavingsPercent")}
    return SPOT_TERMS.read({**section(spec, "spot"), **beside})


def _reconsider(spec: JsonObject) -> ReconsiderTerms:
    with within("reconsider"):
        return RECONSIDER_TERMS.read(section(spec, "reconsider"))


def _parties(spec: JsonObject) -> tuple[Tenant, ...]:
    with within("tenants"):
        parties = sorted(
            (TENANT.read(one) for one in objects(spec, "tenants")), key=lambda tenant: tenant.name
        )
        for party in parties:
            _check_quota(party)
        if len(parties) > MOST_TENANTS or len({party.name for party in parties}) < len(parties):
            raise WireError(f"name: at most {MOST_TENANTS} tenants, each once")
        return tuple(parties)


def _check_quota(tenant: Tenant) -> None:
    """The rules of the CRD that one entry alone cannot say."""
    with within(f"{tenant.name}.quota"):
        names = [quota.accelerator for quota in tenant.quota]
        if len(names) > MOST_QUOTAS or len(set(names)) < len(names):
            raise WireError(f"accelerator: at most {MOST_QUOTAS} types, each once")
        for quota in tenant.quota:
            if not _ACCELERATOR.fullmatch(quota.accelerator):
                raise WireError(
                    f"accelerator: {quoted(quota.accelerator)} is no key of an accelerator"
                )
            limits = quota.borrowing_limit, quota.lending_limit
            if not tenant.cohort and limits != (None, None):
                raise WireError("borrowingLimit and lendingLimit need a cohort")
            if quota.lending_limit is not None and quota.lending_limit > quota.nominal_quota:
                raise WireError(
                    f"lendingLimit: {quota.lending_limit} is more than the nominalQuota"
                    f" {quota.nominal_quota}"
                )


def _trust_domains(spec: JsonObject) -> dict[str, frozenset[str]]:
    """The grants; a name with a slash would imitate a namespace's own domain."""
    granted: dict[str, frozenset[str]] = {}
    for index, raw in enumerate(objects(spec, "trustDomains")):
        with within(f"trustDomains[{index}]"):
            name = text(raw, "name")
            if "/" in name:
                raise WireError("name: must not hold a slash")
            if not is_domain(name):
                raise WireError(f"name: {quoted(name)} is no name of a trust domain")
            if name in granted:
                raise WireError(f"name: {name} is granted twice")
            granted[name] = namespaces(raw, "namespaces")
            if not granted[name]:
                raise WireError("namespaces: give at least one name of a namespace, or * for all")
    return granted


def _faults(spec: JsonObject) -> FaultTerms:
    with within("faults"):
        raw, cleared = section(spec, "faults"), {}
        for index, one in enumerate(objects(raw, "cleared")):
            with within(f"cleared[{index}]"):
                key = text(one, "namespace"), text(one, "class")
                if key in cleared:
                    raise WireError(f"class: {key[1]} of {key[0]} is cleared twice")
                cleared[key] = moment_of(text(one, "before"), "before")
        hours = bounded(raw, "isolationHours", 0, MOST_HOURS, FaultTerms().isolation_hours)
        return FaultTerms(isolation_hours=hours, cleared=cleared)


def _knowledge(spec: JsonObject) -> Knowledge:
    with within("learning"):
        raw = section(spec, "learning")
        return Knowledge(
            shared=namespaces(raw, "shareAmong"), trusted=namespaces(raw, "trustDeclared")
        )


def _last_solve(raw: JsonObject) -> SolveRecord | None:
    with within("status.lastSolve"):
        status = section(raw, "status")
        return solve_from_wire(section(status, "lastSolve")) if status.get("lastSolve") else None


def _quota_status(raw: JsonObject) -> QuotaStatus | None:
    with within("status.quota"):
        status = section(raw, "status")
        return quota_from_wire(section(status, "quota")) if status.get("quota") else None


def project_policy(raw: JsonObject) -> tuple[str, PolicyRecord]:
    """Read name and content of a SchedulingPolicy.

    Raises:
        WireError: a field that is needed is missing or malformed.
    """
    meta = read_meta(raw)
    default = PolicyRecord()
    told = own_conditions if meta.name == default.name else read_conditions
    last_solve, quota_status = _last_solve(raw), _quota_status(raw)
    conditions = told(section(raw, "status"))
    with within("spec"):
        spec = section(raw, "spec")
        packing = section(spec, "packing")
        record = PolicyRecord(
            name=meta.name,
            uid=meta.uid,
            generation=meta.generation,
            objective=registered(spec, "objective", POLICIES, default.objective),
            max_percent_sum=bounded(packing, "maxPercentSum", 10, 400, default.max_percent_sum),
            lane_policy=_lane_policy(spec),
            round_seconds=bounded(spec, "roundSeconds", 1, DAY_S, default.round_seconds),
            gang_skip_limit=bounded(spec, "gangSkipLimit", 0, 1000, default.gang_skip_limit),
            min_service_percent=bounded(
                spec, "minServicePercent", 0, 100, default.min_service_percent
            ),
            risk=_risk(spec),
            faults=_faults(spec),
            spot=_spot(spec),
            reconsider=_reconsider(spec),
            tenants=_parties(spec),
            trust_domains=_trust_domains(spec),
            knowledge=_knowledge(spec),
            last_solve=last_solve,
            quota_status=quota_status,
            conditions=conditions,
        )
    return meta.name, record
