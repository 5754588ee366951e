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
from dataclasses import replace
from math import floor
from typing import Final

from ullage.api.contract import Reason, SliceKey, WireError, objects, section, text
from ullage.api.readers import MOST_COUNTED, bounded, count_of, decimal_text, flag
from ullage.api.reasons import ConditionType
from ullage.cluster.codecs.allocation import allocation_from_wire, allocation_to_wire
from ullage.cluster.codecs.objects import optional_text, read_conditions, within
from ullage.cluster.codecs.recommendation import recommendation_from_wire, recommendation_to_wire
from ullage.cluster.codecs.spend import spend_from_wire, spend_to_wire
from ullage.cluster.records.failure import failure_of, failure_to_wire
from ullage.cluster.records.room import MadeRoom, made_room_from_wire, made_room_to_wire
from ullage.cluster.records.scheduling_state import (
    SchedulingState,
    scheduling_from_wire,
    scheduling_to_wire,
)
from ullage.cluster.records.snapshot import WorkloadKind
from ullage.cluster.records.spend import SpendRecord
from ullage.cluster.records.status import (
    AllocationRecord,
    Condition,
    DecisionRecord,
    Placement,
    Progress,
    Recommended,
    RefusalLine,
    Sharing,
    SizeRecord,
    WorkloadStatus,
)
from ullage.cluster.records.tier import TierRecord, tier_from_wire, tier_to_wire
from ullage.cluster.values.quantity import rfc3339, seconds
from ullage.ports import JsonObject

LINE_LIMIT: Final = 1024
"""Characters of a one-line text in the schema."""
TEXT_LIMIT: Final = 32_768
"""Characters of a message in the schema."""
REFUSAL_LIMIT: Final = 8
"""Refusals that a decision lists in the schema."""

_SHARING: Final = {
    "predicted": "predicted",
    "predictedUpper": "predicted_upper",
    "observed": "observed",
    "attainment": "attainment",
    "group": "group",
    "source": "source",
    "z": "z",
    "lambda": "threshold",
    "riskUsed": "risk_used",
}
"""Texts of ``status.sharing`` -> attributes of the record."""

_WORDS: Final = ("group", "source", "lambda")
"""Those of them that are no numbers."""
_RANK_DIGITS: Final = re.compile("[0-9]{1,9}")
_RANK: Final = {type_.value: rank for rank, type_ in enumerate(ConditionType)}
"""Order of conditions; those of other managers are left alone, on reading too."""


def _clip(value: str, limit: int) -> str:
    return value if len(value) <= limit else value[: limit - 1] + "…"


def _filled(body: dict[str, object]) -> dict[str, object]:
    """Without what says nothing: an absent field is an unowned field."""
    return {name: value for name, value in body.items() if value not in ("", 0, None, [], {})}


def _time(moment: float) -> str:
    return rfc3339(moment) if moment else ""


def condition_to_wire(condition: Condition) -> dict[str, object]:
    """One condition as the API stores it."""
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "lastTransitionTime": rfc3339(condition.since),
    } | _filled(
        {
            "message": _clip(condition.message, TEXT_LIMIT),
            "observedGeneration": condition.observed_generation,
        }
    )


def _placement_to_wire(placement: Placement) -> dict[str, object]:
    return {
        **placement.key.to_wire(),
        "pod": placement.pod,
        "node": placement.node,
        "gpu": placement.gpu,
        "percent": placement.percent,
        "memoryMiB": placement.memory_mib,
        "epoch": placement.epoch,
    }


def _decision_to_wire(decision: DecisionRecord) -> dict[str, object]:
    refusals: list[object] = [
        {
            "reason": line.reason.value,
            "devices": line.devices,
            "nearest": _clip(line.nearest, LINE_LIMIT),
            "message": _clip(line.message, LINE_LIMIT),
        }
        for line in decision.refusals[:REFUSAL_LIMIT]
    ]
    return {
        "time": rfc3339(decision.time),
        "epoch": decision.epoch,
        "inputsHash": decision.inputs_hash,
        "reason": decision.reason.value,
    } | _filled(
        {
            "chosen": _clip(decision.chosen, LINE_LIMIT),
            "runnerUp": _clip(decision.runner_up, LINE_LIMIT),
            "message": _clip(decision.message, TEXT_LIMIT),
            "refusals": refusals,
            "alone": decision.alone or None,
            "identity": decision.identity,
        }
    )


def _progress_to_wire(progress: Progress) -> dict[str, object]:
    return {"steps": progress.steps} | _filled(
        {
            "resumedAtStep": progress.resumed_at,
            "total": progress.total,
            "percent": progress.percent,
            "expectedPercent": progress.expected_percent,
            "stepsPerSecond": progress.steps_per_second,
            "eta": _time(progress.eta),
        }
    )


def _sharing_to_wire(sharing: Sharing) -> dict[str, object]:
    return {"percent": sharing.percent, "memoryMiB": sharing.memory_mib} | _filled(
        {
            "latencyMs": sharing.latency_ms,
            **{name: getattr(sharing, attribute) for name, attribute in _SHARING.items()},
        }
    )


def _size_to_wire(size: SizeRecord) -> dict[str, object]:
    return {"since": rfc3339(size.since), "reason": size.reason.value} | _filled(
        {
            "message": _clip(size.message, LINE_LIMIT),
            "resumes": _time(size.resumes),
            "roomSince": _time(size.room_since),
        }
    )


def status_to_wire(kind: WorkloadKind, status: WorkloadStatus) -> dict[str, object]:
    """The status as the API stores it: owned fields that say something, spelled as in the CRD.

    Fields that the kind does not have are left out; autoscalers read an InferenceService's
    replicas, so these stand there even when 0.
    """
    body: dict[str, object] = {
        "observedGeneration": status.observed_generation,
        "phase": status.phase,
        "placement": [_placement_to_wire(item) for item in status.placement],
        "decision": _decision_to_wire(status.decision) if status.decision else None,
        "scheduling": scheduling_to_wire(status.scheduling),
        "sharing": _sharing_to_wire(status.sharing) if status.sharing else None,
        "templateHash": status.template_hash,
        "spend": spend_to_wire(status.spend) if status.spend else None,
        "conditions": [condition_to_wire(item) for item in status.conditions],
    }
    if kind is WorkloadKind.INFERENCE_SERVICE:
        serving = {"replicas": status.replicas, "readyReplicas": status.ready_replicas}
        named = {"selector": status.selector, "endpoint": _clip(status.endpoint, LINE_LIMIT)}
        return _filled(body | named) | serving
    return _filled(
        body
        | {
            "restarts": status.restarts,
            "retryAt": _time(status.retry_at),
            "lastFailure": failure_to_wire(status.last_failure),
            "nodes": _clip(status.nodes, TEXT_LIMIT),
            "gpus": status.gpus,
            "startTime": _time(status.start_time),
            "completionTime": _time(status.completion_time),
            "progress": _progress_to_wire(status.progress) if status.progress else None,
            "allocation": allocation_to_wire(status.allocation) if status.allocation else None,
            "recommendation": recommendation_to_wire(status.recommendation),
            "recommendationBasis": status.recommendation_basis,
            "replicas": status.replicas,
            "size": _size_to_wire(status.size) if status.size else None,
            "tier": tier_to_wire(status.tier) if status.tier else None,
            "madeRoom": made_room_to_wire(status.made_room) if status.made_room else None,
        }
    )


def _placement(raw: JsonObject) -> Placement:
    return Placement(
        key=SliceKey.from_wire(raw),
        pod=text(raw, "pod"),
        node=text(raw, "node"),
        gpu=text(raw, "gpu"),
        percent=bounded(raw, "percent", 1, 100),
        memory_mib=bounded(raw, "memoryMiB", 0, MOST_COUNTED),
        epoch=count_of(raw, "epoch", None),
    )


def _placement_order(kind: WorkloadKind, placement: Placement) -> tuple[int, str, SliceKey]:
    """Members of a gang by rank, replicas by name; then devices."""
    rank = placement.pod.rpartition("-")[2]
    gang = kind is WorkloadKind.TRAINING_JOB and _RANK_DIGITS.fullmatch(rank)
    return int(rank) if gang else -1, placement.pod, placement.key


def _conditions(raw: JsonObject) -> tuple[Condition, ...]:
    ours = [condition for condition in read_conditions(raw) if condition.type in _RANK]
    return tuple(sorted(ours, key=lambda condition: _RANK[condition.type]))


def _refusal(raw: JsonObject) -> RefusalLine:
    return RefusalLine(
        reason=Reason(text(raw, "reason")),
        devices=bounded(raw, "devices", 0, 2**31 - 1),
        nearest=optional_text(raw, "nearest"),
        message=optional_text(raw, "message"),
    )


def _decision(raw: JsonObject) -> DecisionRecord | None:
    """A decision; one with reasons of another version counts as none and is decided again."""
    try:
        reason = Reason(text(raw, "reason"))
        refusals = [_refusal(line) for line in objects(raw, "refusals")]
    except WireError:
        raise
    except ValueError:
        return None
    return DecisionRecord(
        time=seconds(raw.get("time"), "time"),
        epoch=count_of(raw, "epoch", None),
        inputs_hash=optional_text(raw, "inputsHash"),
        chosen=optional_text(raw, "chosen"),
        runner_up=optional_text(raw, "runnerUp"),
        reason=reason,
        message=optional_text(raw, "message"),
        refusals=tuple(sorted(refusals, key=lambda line: (-line.devices, line.reason))),
        alone=flag(raw, "alone"),
        identity=optional_text(raw, "identity"),
    )


def _progress(raw: JsonObject) -> Progress:
    return Progress(
        steps=count_of(raw, "steps", None),
        resumed_at=count_of(raw, "resumedAtStep"),
        total=count_of(raw, "total"),
        percent=bounded(raw, "percent", 0, 100, 0),
        expected_percent=bounded(raw, "expectedPercent", 0, 100, 0),
        steps_per_second=decimal_text(raw, "stepsPerSecond"),
        eta=seconds(raw.get("eta"), "eta"),
    )


def _sharing(raw: JsonObject) -> Sharing:
    return Sharing(
        percent=bounded(raw, "percent", 1, 100),
        memory_mib=bounded(raw, "memoryMiB", 0, MOST_COUNTED),
        latency_ms=count_of(raw, "latencyMs"),
        **{
            attribute: optional_text(raw, name) if name in _WORDS else decimal_text(raw, name)
            for name, attribute in _SHARING.items()
        },
    )


def _decision_of(raw: JsonObject) -> DecisionRecord | None:
    with within("decision"):
        return _decision(section(raw, "decision")) if raw.get("decision") else None


def _scheduling_of(raw: JsonObject) -> SchedulingState:
    with within("scheduling"):
        return scheduling_from_wire(section(raw, "scheduling"))


def _progress_of(raw: JsonObject) -> Progress | None:
    with within("progress"):
        return _progress(section(raw, "progress")) if raw.get("progress") else None


def _allocation_of(raw: JsonObject) -> AllocationRecord | None:
    with within("allocation"):
        return allocation_from_wire(section(raw, "allocation")) if raw.get("allocation") else None


def _recommendation_of(raw: JsonObject) -> tuple[Recommended, ...]:
    with within("recommendation"):
        return recommendation_from_wire(objects(raw, "recommendation"))


def _spend_of(raw: JsonObject) -> SpendRecord | None:
    with within("spend"):
        return spend_from_wire(section(raw, "spend")) if raw.get("spend") else None


def _made_room_of(raw: JsonObject) -> MadeRoom | None:
    with within("madeRoom"):
        return made_room_from_wire(section(raw, "madeRoom")) if raw.get("madeRoom") else None


def _size_of(raw: JsonObject) -> SizeRecord | None:
    """Why the gang has its size; with a reason of another version it counts as not known."""
    if not raw.get("size"):
        return None
    with within("size"):
        stated = section(raw, "size")
        try:
            reason = Reason(text(stated, "reason"))
        except WireError:
            raise
        except ValueError:
            reason = Reason.SIZED
        return SizeRecord(
            since=seconds(stated.get("since"), "since"),
            reason=reason,
            message=optional_text(stated, "message"),
            resumes=seconds(stated.get("resumes"), "resumes"),
            room_since=seconds(stated.get("roomSince"), "roomSince"),
        )


def _tier_of(raw: JsonObject) -> TierRecord | None:
    with within("tier"):
        return tier_from_wire(section(raw, "tier")) if raw.get("tier") else None


def _sharing_of(raw: JsonObject) -> Sharing | None:
    with within("sharing"):
        return _sharing(section(raw, "sharing")) if raw.get("sharing") else None


def status_from_wire(kind: WorkloadKind, raw: JsonObject) -> WorkloadStatus:
    """The status that was read back; only conditions of our types are kept.

    Raises:
        WireError: a field has the wrong type; the text names it.
    """
    if not raw:
        return WorkloadStatus()
    training = kind is WorkloadKind.TRAINING_JOB
    with within("placement"):
        placement = [_placement(item) for item in objects(raw, "placement")]
    common = WorkloadStatus(
        observed_generation=count_of(raw, "observedGeneration"),
        phase=optional_text(raw, "phase"),
        placement=tuple(sorted(placement, key=lambda item: _placement_order(kind, item))),
        decision=_decision_of(raw),
        scheduling=_scheduling_of(raw),
        sharing=_sharing_of(raw),
        spend=_spend_of(raw),
        template_hash=optional_text(raw, "templateHash"),
        conditions=_conditions(raw),
    )
    if not training:
        return replace(
            common,
            replicas=count_of(raw, "replicas"),
            ready_replicas=count_of(raw, "readyReplicas"),
            selector=optional_text(raw, "selector"),
            endpoint=optional_text(raw, "endpoint"),
        )
    return replace(
        common,
        restarts=count_of(raw, "restarts"),
        retry_at=seconds(raw.get("retryAt"), "retryAt"),
        last_failure=failure_of(raw),
        nodes=optional_text(raw, "nodes"),
        gpus=count_of(raw, "gpus"),
        start_time=seconds(raw.get("startTime"), "startTime"),
        completion_time=seconds(raw.get("completionTime"), "completionTime"),
        progress=_progress_of(raw),
        allocation=_allocation_of(raw),
        recommendation=_recommendation_of(raw),
        recommendation_basis=optional_text(raw, "recommendationBasis"),
        replicas=count_of(raw, "replicas"),
        size=_size_of(raw),
        tier=_tier_of(raw),
        made_room=_made_room_of(raw),
    )


def as_stored(kind: WorkloadKind, status: WorkloadStatus) -> WorkloadStatus:
    """The status as it will read back once written; equal for what was read back."""
    return status_from_wire(kind, status_to_wire(kind, status))


def whole_second(moment: float) -> float:
    """The moment as the API can store it."""
    return float(floor(moment))
