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

from ullage.api.codec import derived, nested
from ullage.api.contract import JsonObject
from ullage.api.reasons import ConditionType
from ullage.api.wire_fields import KEPT, Listed
from ullage.cluster.codecs.objects import ranked
from ullage.cluster.codecs.spend import spend_from_wire, spend_to_wire
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


_OF_SERVICES: Final = ("ready_replicas", "selector", "endpoint")
_OF_JOBS: Final = (
    *("restarts", "retry_at", "last_failure", "nodes", "gpus", "start_time", "completion_time"),
    *("progress", "allocation", "recommendation", "recommendation_basis", "made_room", "size"),
    "tier",
)
_SPEND: Final = nested(spend_from_wire, spend_to_wire, optional=True)
_CONDITIONS: Final = ranked(ConditionType)
_READ_JOB, _WRITE_JOB = derived(
    WorkloadStatus,
    _OF_SERVICES,
    placement=Listed(order=_by_rank),
    spend=_SPEND,
    conditions=_CONDITIONS,
)
_READ_SERVICE, _WRITE_SERVICE = derived(
    WorkloadStatus,
    _OF_JOBS,
    placement=Listed(order=_by_name),
    spend=_SPEND,
    conditions=_CONDITIONS,
    replicas=KEPT,
    ready_replicas=KEPT,
)
"""Autoscalers read the replicas of a service, so these stand there even when 0."""


def status_to_wire(kind: WorkloadKind, status: WorkloadStatus) -> dict[str, object]:
    """The status as the API stores it; fields that the kind does not have are left out."""
    return (_WRITE_JOB if kind is WorkloadKind.TRAINING_JOB else _WRITE_SERVICE)(status)


def status_from_wire(kind: WorkloadKind, raw: JsonObject) -> WorkloadStatus:
    """The status that was read back; only conditions of our types are kept.

    Raises:
        WireError: a field has the wrong type; the text names it.
    """
    return (_READ_JOB if kind is WorkloadKind.TRAINING_JOB else _READ_SERVICE)(raw)


def as_stored(kind: WorkloadKind, status: WorkloadStatus) -> WorkloadStatus:
    """The status as it will read back once written; equal for what was read back."""
    return status_from_wire(kind, status_to_wire(kind, status))


def whole_second(moment: float) -> float:
    """The moment as the API can store it."""
    return float(floor(moment))
