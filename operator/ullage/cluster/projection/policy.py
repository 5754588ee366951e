# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""SchedulingPolicies, with the bounds of the schema: an unreadable one is never in force."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter

from ullage.api.readers import JsonObject, section
from ullage.api.schedulingpolicy import read_policy_spec
from ullage.cluster.codecs.objects import own_conditions, read_conditions, read_meta, within
from ullage.cluster.codecs.status import quota_from_wire, solve_from_wire
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.status import QuotaStatus, SolveRecord


def project_policy(raw: JsonObject) -> tuple[str, PolicyRecord]:
    """Read name and content of a SchedulingPolicy.

    Raises:
        WireError: a field that is needed is missing or malformed.
    """
    meta = read_meta(raw)
    default = PolicyRecord()
    last_solve: SolveRecord | None = None
    quota_status: QuotaStatus | None = None
    with within("status.lastSolve"):
        status = section(raw, "status")
        if status.get("lastSolve"):
            last_solve = solve_from_wire(section(status, "lastSolve"))
    with within("status.quota"):
        if status.get("quota"):
            quota_status = quota_from_wire(section(status, "quota"))
    read = own_conditions if meta.name == default.name else read_conditions
    conditions = read(status)
    spec = read_policy_spec(section(raw, "spec"))
    terms = replace(
        spec.spot,
        decision_period_s=spec.decision_period_s,
        min_savings_percent=spec.min_savings_percent,
    )
    record = PolicyRecord(
        name=meta.name,
        uid=meta.uid,
        generation=meta.generation,
        objective=spec.objective.value,
        max_percent_sum=spec.packing.max_percent_sum,
        lane_policy=spec.sharing.lane_policy,
        io_fairness=spec.io.fairness,
        round_seconds=spec.round_seconds,
        gang_skip_limit=spec.gang_skip_limit,
        min_service_percent=spec.min_service_percent,
        risk=spec.risk,
        faults=spec.faults,
        spot=terms,
        reconsider=spec.reconsider,
        tenants=tuple(sorted(spec.tenants, key=attrgetter("name"))),
        trust_domains=spec.trust_domains,
        knowledge=spec.learning,
        runtime=spec.runtime,
        profiling=spec.profiling,
        last_solve=last_solve,
        quota_status=quota_status,
        conditions=conditions,
    )
    return meta.name, record
