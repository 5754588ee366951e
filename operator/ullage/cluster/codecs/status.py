# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The status of a workload as JSON, both ways.

Reading what was written gives an equal record, else "nothing changed" could not be decided by
equality and the operator would write for ever. What the API cannot hold (fractions of a second,
fields of the other kind, over-long texts) is removed by ``as_stored`` before comparing. Lists get
one order when they are read: server-side apply merges them by key and keeps no order of ours.
"""

from __future__ import annotations

import re
from math import floor
from typing import Final

from ullage.api.codec import Codec, derived, nested
from ullage.api.contract import JsonObject
from ullage.api.reasons import ConditionType
from ullage.api.wire_fields import KEPT, Listed, Schema, one_of
from ullage.cluster.codecs.objects import ranked
from ullage.cluster.codecs.spend import SERVICE_SPEND, SPEND
from ullage.cluster.records.snapshot import WorkloadKind
from ullage.cluster.records.status import Placement, WorkloadStatus

_RANK_DIGITS: Final = re.compile("[0-9]{1,9}")


def _by_rank(placement: Placement) -> tuple[int, object, object]:
    """Members of a gang by rank; then devices."""
    rank = placement.pod.rpartition("-")[2]
    digits = _RANK_DIGITS.fullmatch(rank)
    return int(rank) if digits else -1, placement.pod, placement.key


def _by_name(placement: Placement) -> tuple[object, object]:
    """Replicas by name; then devices."""
    return placement.pod, placement.key


def _says(description: str) -> Schema:
    return Schema(description=description)


_OF_SERVICES: Final = ("ready_replicas", "selector", "endpoint")
_OF_JOBS: Final = (
    *("restarts", "retry_at", "last_failure", "nodes", "gpus", "start_time", "completion_time"),
    *("progress", "allocation", "recommendation", "recommendation_basis", "made_room", "size"),
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
    placement=(Listed(order=_by_name), _says("Placement of each replica.")),
    sharing=Schema(description="Share and slowdown of the slowest replica.", before="decision"),
    decision=_says("Why the service runs on its devices, or why it waits."),
    scheduling=_says("Scheduling history that later decisions use."),
    spend=(nested(SERVICE_SPEND, optional=True), _says("Cost of the service.")),
    template_hash=_says("Version of the template that runs."),
    conditions=(_CONDITIONS, _says("Admitted, Placed, Ready, Enforced, SLOMet and Invalid.")),
)
"""Autoscalers read the replicas of a service, so these stand there even when 0."""


def status_to_wire(kind: WorkloadKind, status: WorkloadStatus) -> dict[str, object]:
    """The status as the API stores it; fields that the kind does not have are left out."""
    return _codec(kind).write(status)


def status_from_wire(kind: WorkloadKind, raw: JsonObject) -> WorkloadStatus:
    """The status that was read back; only conditions of our types are kept.

    Raises:
        WireError: a field has the wrong type; the text names it.
    """
    return _codec(kind).read(raw)


def _codec(kind: WorkloadKind) -> Codec[WorkloadStatus]:
    return JOB_STATUS if kind is WorkloadKind.TRAINING_JOB else SERVICE_STATUS


def as_stored(kind: WorkloadKind, status: WorkloadStatus) -> WorkloadStatus:
    """The status as it will read back once written; equal for what was read back."""
    return status_from_wire(kind, status_to_wire(kind, status))


def whole_second(moment: float) -> float:
    """The moment as the API can store it."""
    return float(floor(moment))
