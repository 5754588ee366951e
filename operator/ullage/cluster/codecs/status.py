# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Statuses of workloads, searches and pools as JSON, both ways.

Written values read back as an equal record, else "no change" could not be decided by equality and
the operator would write for ever. Values that the API cannot store (fractions of a second, fields
of the other kind, over-long texts) are removed by ``as_stored`` before comparing, and rounded in
pools. Lists get one order on reading: server-side apply merges them by key and keeps no order of
ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from math import floor
from typing import Any, Final

from ullage.api.codec import Codec, derived, nested
from ullage.api.readers import JsonObject, count_of, filled, flag, section, text
from ullage.api.reasons import ConditionType, reason_of
from ullage.api.wire_fields import KEPT, Embedded, Listed, Schema, Shape, one_of
from ullage.cluster.codecs.objects import ranked, within
from ullage.cluster.codecs.pod_status import kept_in_pods
from ullage.cluster.records.pool import LaunchRecord, PoolStatus
from ullage.cluster.records.status import (
    Account,
    Placement,
    QuotaStatus,
    SolveRecord,
    SpendDecision,
    SpendRecord,
    WorkloadStatus,
)
from ullage.cluster.records.trace import ProfileRequestStatus
from ullage.cluster.records.tuning import TuningStatus
from ullage.cluster.records.workload import WorkloadKind

_LOST: Final[Mapping[str, str]] = {
    "steps": "lost_steps",
    "seconds": "lost_seconds",
    "assumedSteps": "assumed_steps",
    "assumedSeconds": "assumed_seconds",
}
"""Fields of ``lostWork`` -> attributes of the account."""
OF_JOBS: Final = (
    *("per_thousand_steps", "on_demand_seconds", "evictions"),
    *("first_step", "earlier_steps", "reached_steps"),
)
_SUMS: Final = derived(Account, (*_LOST.values(), *OF_JOBS))
_OF_JOB: Final = derived(Account, _LOST.values())
_LOST_WORK: Final = Schema(
    type="object",
    description="What losses took.",
    properties=derived(
        Account,
        [field.name for field in fields(Account) if field.name not in _LOST.values()],
        lost_steps="steps",
        lost_seconds="seconds",
    ).shape,
)


def _account_to_wire(account: Account | None) -> dict[str, object]:
    """The figures for ``status.spend``; empty values are left out."""
    if account is None:
        return {}
    lost = filled({name: getattr(account, attribute) for name, attribute in _LOST.items()})
    return _OF_JOB.write(account) | filled({"lostWork": lost})


def _account_from_wire(raw: JsonObject) -> Account | None:
    """The account in ``status.spend``; ``None`` = there is none.

    Raises:
        WireError: a field is missing or malformed.
    """
    if raw.get("asOf") is None:
        return None
    account, losses = _OF_JOB.read(raw), section(raw, "lostWork")
    if not losses:
        return account
    with within("lostWork"):
        lost = {attribute: count_of(losses, name) for name, attribute in _LOST.items()}
        return replace(account, **lost)  # type: ignore[arg-type]  # all of them are counts


_DECISION: Final = derived(SpendDecision)


def _decision(raw: JsonObject) -> SpendDecision | None:
    """A decision; one with a reason of another version is dropped and decided again.

    A commitment is never dropped with it: it has a separate field.
    """
    readable = reason_of(text(raw, "reason")) is not None
    return _DECISION.read(raw) if readable or flag(raw, "committed") else None


def _account(*properties: Shape | Mapping[str, Schema]) -> Embedded:
    return Embedded(_account_from_wire, _account_to_wire, Schema(properties=properties))


_SPLIT: Final = 1 + len(_SUMS.shape.fields)
SPEND: Final = derived(
    SpendRecord,
    account=_account(
        Shape(Account, _OF_JOB.shape.fields[:_SPLIT]),
        {"lostWork": _LOST_WORK},
        Shape(Account, _OF_JOB.shape.fields[_SPLIT:]),
    ),
    decision=nested(Codec[Any](_decision, _DECISION.write, _DECISION.shape), optional=True),
)
SERVICE_SPEND: Final = derived(
    SpendRecord,
    ("decision", "next_decision", "expected_savings"),
    account=_account(_SUMS.shape),
)


_RANK_DIGITS: Final = re.compile("[0-9]{1,9}")


def _by_rank(placement: Placement) -> tuple[int, object, object]:
    """Members of a gang by rank; then devices."""
    rank = placement.pod.rpartition("-")[2]
    digits = _RANK_DIGITS.fullmatch(rank)
    return int(rank) if digits else -1, placement.pod, placement.key


def _says(description: str) -> Schema:
    return Schema(description=description)


_OF_SERVICES: Final = ("ready_replicas", "selector", "endpoint", "scaling")
_OF_JOBS: Final = (
    *("restarts", "retry_at", "last_failure", "nodes", "gpus", "start_time", "completion_time"),
    *(
        "progress",
        "metrics",
        "allocation",
        "recommendation",
        "recommendation_basis",
        "made_room",
        "size",
    ),
    "tier",
)
_CONDITIONS: Final = ranked(ConditionType)
JOB_STATUS: Final = derived(
    WorkloadStatus,
    _OF_SERVICES,
    placement=Listed(order=_by_rank),
    spend=nested(SPEND, optional=True),
    conditions=_CONDITIONS,
)
SERVICE_STATUS: Final = derived(
    WorkloadStatus,
    _OF_JOBS,
    observed_generation=_says("Generation of the spec that this status reflects."),
    phase=(
        _says("Ready when all replicas are ready; Degraded when only some are."),
        one_of("Pending", "Ready", "Degraded"),
    ),
    replicas=(KEPT, _says("Existing replicas; autoscalers read it.")),
    ready_replicas=KEPT,
    placement=(
        Listed(order=lambda item: (item.pod, item.key)),
        _says("Placement of each replica."),
    ),
    sharing=Schema(description="Share and slowdown of the slowest replica.", before="decision"),
    decision=_says("Why the service runs on its devices, or why it waits."),
    scheduling=_says("Scheduling history that later decisions use."),
    spend=(nested(SERVICE_SPEND, optional=True), _says("Cost of the service.")),
    template_hash=_says("Version of the template that runs."),
    conditions=(_CONDITIONS, _says("Admitted, Placed, Ready, Enforced, SLOMet and Invalid.")),
)
"""Autoscalers read the replicas of a service, so they are present even when 0."""


def status_to_wire(kind: WorkloadKind, status: WorkloadStatus) -> dict[str, object]:
    """The status as JSON for the API; fields of other kinds are left out."""
    return _codec(kind).write(status)


def status_from_wire(kind: WorkloadKind, raw: JsonObject) -> WorkloadStatus:
    """The status read back; only conditions of our types are kept.

    Raises:
        WireError: a field has the wrong type; the text names it.
    """
    return _codec(kind).read(raw)


def _codec(kind: WorkloadKind) -> Codec[WorkloadStatus]:
    return JOB_STATUS if kind is WorkloadKind.TRAINING_JOB else SERVICE_STATUS


def as_stored(kind: WorkloadKind, status: WorkloadStatus) -> WorkloadStatus:
    """The status as it will read back once written; equal if it was read back."""
    if kind is WorkloadKind.POD:
        return kept_in_pods(status)
    return status_from_wire(kind, status_to_wire(kind, status))


def whole_second(moment: float) -> float:
    """The time as the API can store it."""
    return float(floor(moment))


SOLVE: Final = derived(SolveRecord)
solve_from_wire, solve_to_wire = SOLVE.read, SOLVE.write

QUOTA: Final = derived(QuotaStatus)
quota_from_wire, quota_to_wire = QUOTA.read, QUOTA.write


_LAUNCHES: Final = derived(LaunchRecord)


POOL_STATUS: Final = derived(
    PoolStatus,
    launches=nested(
        _LAUNCHES._replace(
            write=lambda launches: {} if launches == LaunchRecord() else _LAUNCHES.write(launches)
        )
    ),
    conditions=ranked((ConditionType.PRICE_FRESH, ConditionType.HAZARD_KNOWN)),
)
pool_status_from_wire, pool_status_to_wire = POOL_STATUS.read, POOL_STATUS.write


def pool_as_stored(status: PoolStatus) -> PoolStatus:
    """The status as it will read back once written."""
    return pool_status_from_wire(pool_status_to_wire(status))


TUNING_CONDITIONS: Final = (
    ConditionType.COMPLETE,
    ConditionType.FAILED,
    ConditionType.PLANNED,
    ConditionType.STALLED,
    ConditionType.POOL_TOO_SMALL,
)
TUNING_STATUS: Final = derived(
    TuningStatus,
    groups=Listed(order=lambda group: (group.epoch, group.name)),
    conditions=ranked(TUNING_CONDITIONS),
)
tuning_status_from_wire, tuning_status_to_wire = TUNING_STATUS.read, TUNING_STATUS.write


def tuning_as_stored(status: TuningStatus) -> TuningStatus:
    """The status as it will read back once written."""
    return tuning_status_from_wire(tuning_status_to_wire(status))


PROFILE_REQUEST_STATUS: Final = derived(
    ProfileRequestStatus, conditions=ranked((ConditionType.COMPLETE, ConditionType.FAILED))
)
profile_request_status_from_wire = PROFILE_REQUEST_STATUS.read
profile_request_status_to_wire = PROFILE_REQUEST_STATUS.write


def profile_request_as_stored(status: ProfileRequestStatus) -> ProfileRequestStatus:
    """The status as it will read back once written."""
    return profile_request_status_from_wire(profile_request_status_to_wire(status))
