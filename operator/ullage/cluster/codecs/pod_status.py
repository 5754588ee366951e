# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The status of pods that were adopted: conditions of each pod, and one bounded annotation.

A separate object for each pod would double etcd's content. The human-readable part is in the
conditions, and the next decision's input in the annotation. A pod with an unreadable annotation
counts as new: only the record of its failures is lost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Final

from ullage.api.adoption import ANNOTATION_SCHEDULING, CONDITION_PREFIX
from ullage.api.codec import derived
from ullage.api.readers import JsonObject, objects
from ullage.api.reasons import ConditionType, Reason
from ullage.cluster.codecs.objects import condition_from_wire, condition_to_wire
from ullage.cluster.records.status import Condition, DecisionRecord, Sharing, WorkloadStatus

MOST_BYTES: Final = 1024
"""Maximum bytes of the annotation."""
MOST_EXCLUSIONS: Final = 2
_TEXT: Final = 80
"""Maximum characters of the event on an excluded device."""
SHOWN: Final = (
    ConditionType.ADMITTED,
    ConditionType.ENFORCED,
    ConditionType.SLO_MET,
    ConditionType.DEGRADED,
    ConditionType.INVALID,
)
"""Conditions that a pod does not have otherwise, in this order."""
_PLAIN: Final = 1000
"""Characters of a message that is never truncated."""
_KEPT: Final = ("phase", "decision", "scheduling", "sharing")
_MEMORY: Final = derived(
    WorkloadStatus, [field.name for field in fields(WorkloadStatus) if field.name not in _KEPT]
)
_NEW: Final = WorkloadStatus()


def kept_in_pods(status: WorkloadStatus) -> WorkloadStatus:
    """The part of a status stored in pods, as it reads back; the same object if equal."""
    conditions = tuple(
        condition
        if condition.observed_generation == 1
        else replace(condition, observed_generation=1)
        for type_ in SHOWN
        if (condition := status.condition(type_)) is not None
    )
    too_long = any(len(condition.message) > _PLAIN for condition in conditions)
    if status.scheduling.exclusions or too_long:
        return read_pod_status(
            {ANNOTATION_SCHEDULING: scheduling_annotation(status)},
            {"conditions": pod_conditions(status)},
        )
    shortened = _shortened(status)
    short = shortened.decision
    kept = WorkloadStatus(
        observed_generation=1,
        phase=status.phase,
        decision=None if short is None else _with_texts(short, conditions),
        scheduling=status.scheduling,
        sharing=shortened.sharing,
        conditions=conditions,
    )
    return status if status == kept else kept


def scheduling_annotation(status: WorkloadStatus) -> str:
    """State for the next decision, as compact JSON of at most ``MOST_BYTES``."""
    kept = _shortened(status)
    while len(written := json.dumps(_MEMORY.write(kept), separators=(",", ":"))) > MOST_BYTES:
        excluded = kept.scheduling.exclusions
        if excluded:
            kept = replace(kept, scheduling=replace(kept.scheduling, exclusions=excluded[1:]))
        elif kept.sharing is not None:
            kept = replace(kept, sharing=None)
        else:
            kept = replace(kept, decision=None)
    return written


def pod_conditions(status: WorkloadStatus) -> list[dict[str, object]]:
    """Our conditions of a pod; not every API server knows their generation."""
    shown = []
    for type_ in SHOWN:
        condition = status.condition(type_)
        if condition is not None:
            body = condition_to_wire(replace(condition, type=f"{CONDITION_PREFIX}{type_}"))
            body.pop("observedGeneration", None)
            shown.append(body)
    return shown


def read_pod_status(annotations: Mapping[str, str], status: JsonObject) -> WorkloadStatus:
    """The status of a pod; an empty one without a readable one."""
    annotation = annotations.get(ANNOTATION_SCHEDULING, "")
    if not annotation or len(annotation) > MOST_BYTES:
        return _NEW
    try:
        raw = json.loads(annotation)
        memory = _MEMORY.read(raw if isinstance(raw, dict) else {})
        conditions = _conditions(status)
    except (ValueError, RecursionError):  # malformed JSON, or a malformed field of it
        return _NEW
    decision = memory.decision
    return replace(
        memory,
        observed_generation=1,
        conditions=conditions,
        decision=None if decision is None else _with_texts(decision, conditions),
    )


def _conditions(status: JsonObject) -> tuple[Condition, ...]:
    """Our conditions, in the order of ``SHOWN``."""
    conditions: dict[str, Condition] = {}
    for raw in objects(status, "conditions"):
        type_ = raw.get("type")
        if isinstance(type_, str) and type_.startswith(CONDITION_PREFIX):
            name = type_.removeprefix(CONDITION_PREFIX)
            conditions[name] = replace(condition_from_wire(raw), type=name, observed_generation=1)
    return tuple(conditions[type_] for type_ in SHOWN if type_ in conditions)


def _with_texts(decision: DecisionRecord, conditions: tuple[Condition, ...]) -> DecisionRecord:
    """The decision with its text, which is in the condition."""
    message = next(
        (condition.message for condition in conditions if condition.type == ConditionType.ADMITTED),
        "",
    )
    if decision.reason is Reason.PLACED:
        return replace(decision, chosen=message)
    return replace(decision, message=message)


def _shortened(status: WorkloadStatus) -> WorkloadStatus:
    """The status without the parts stored elsewhere."""
    decision, scheduling, sharing = status.decision, status.scheduling, status.sharing
    return replace(
        status,
        decision=None
        if decision is None
        else replace(
            decision,
            inputs_hash="",
            chosen="",
            runner_up="",
            message="",
            refusals=tuple(
                replace(refusal, nearest="", message="") for refusal in decision.refusals
            ),
        ),
        sharing=None
        if sharing is None
        else Sharing(
            percent=sharing.percent,
            memory_mib=sharing.memory_mib,
            predicted=sharing.predicted,
            predicted_upper=sharing.predicted_upper,
            observed=sharing.observed,
        ),
        scheduling=replace(
            scheduling,
            exclusions=tuple(
                replace(exclusion, message=exclusion.message[:_TEXT])
                for exclusion in scheduling.exclusions[-MOST_EXCLUSIONS:]
            ),
        ),
    )
