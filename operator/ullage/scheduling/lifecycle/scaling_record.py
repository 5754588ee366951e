# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the status and Events say of a service's replicas: how many, of which share, and why."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ullage.api.reasons import ConditionType, Reason, Standing
from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.cluster.records.status import (
    MOST_NEEDS,
    ChosenShare,
    NeedRecord,
    ReplicaChoice,
    ScalingHistory,
    ScalingRecord,
    WorkloadStatus,
)
from ullage.engines.scaling.autoscaler import ScalingDecision, ScalingTerms
from ullage.engines.scaling.configurations import Configuration
from ullage.engines.scaling.following import ScalingMemory, reachable
from ullage.engines.scaling.pooled_queue import predicted_s
from ullage.scheduling.lifecycle.service_load import ServiceLoad
from ullage.scheduling.lifecycle.sleeping import sleep_memory, with_sleep
from ullage.scheduling.model.conditions import Said
from ullage.scheduling.model.plan import Emit
from ullage.scheduling.times import LATENCY_RECORDED_MOST_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingFinding:
    """All that a record is made of."""

    load: ServiceLoad
    found: ScalingDecision
    memory: ScalingMemory
    terms: ScalingTerms
    configuration: Configuration
    """What most replicas are."""
    asked: Configuration
    """What each is to be."""
    share: ChosenShare | None
    needed: int
    wanted: int
    launch_s: float
    clearing_s: float
    """Until others have left a device that one more replica takes; 0 = one is free."""
    spare: int
    """Replicas beyond those needed, so that enough are left after one interruption."""


def record_of(
    service: WorkloadRecord, before: ScalingRecord | None, made: ScalingFinding
) -> ScalingRecord:
    """The status of a service's replicas.

    Args:
        service: The service.
        before: Its status of before.
        made: What was decided, and what it rests on.
    """
    reason = _reason(service, made)
    chosen = _choice(made, made.wanted)
    needed = made.needed
    fewer = _choice(made, needed - 1) if needed > made.terms.least else None
    asked = before.chosen.replicas if before is not None and scales(before) else None
    changed = made.wanted not in (service.replicas, asked)  # what is refused is asked again
    return ScalingRecord(
        load=_figure(made.load.requests_per_s),
        forecast=_figure(made.found.load_per_s),
        predicted_ms=chosen.predicted_ms,
        chosen=replace(chosen, predicted_ms=0),
        runner_up=fewer,
        share=made.share,
        reason=reason,
        message=_message(service, made, chosen, fewer),
        last_scale_time=made.memory.as_of_s
        if changed
        else before.last_scale_time
        if before
        else 0.0,
        launch_seconds=round(made.launch_s),
        history=_history(before, made.memory, made.configuration),
    )


def _reason(service: WorkloadRecord, made: ScalingFinding) -> Reason:
    target, time = made.terms.target, made.configuration.service
    if made.wanted > service.replicas:
        return Reason.SCALED_UP
    if made.wanted < service.replicas:
        return Reason.SCALED_DOWN
    if reachable(target, time) is not target:
        return Reason.OUT_OF_REACH
    return Reason.STEADY if made.found.chosen.keeps else Reason.AT_MAXIMUM


def _choice(made: ScalingFinding, replicas: int) -> ReplicaChoice:
    one, terms = made.asked, made.terms
    load = terms.demand(made.found.load_per_s).load
    seconds = predicted_s(one.service, load, replicas, terms.target.quantile)
    return ReplicaChoice(
        replicas=replicas,
        percent=one.share_percent,
        accelerator=one.accelerator,
        predicted_ms=min(LATENCY_RECORDED_MOST_MS, max(1, round(seconds * 1e3)))
        if math.isfinite(seconds)
        else 0,
    )


def _message(
    service: WorkloadRecord,
    made: ScalingFinding,
    chosen: ReplicaChoice,
    fewer: ReplicaChoice | None,
) -> str:
    slo, needed = service.slo, made.needed
    assert slo is not None
    planned = _figure(made.found.load_per_s)
    if made.found.forecast.seasonal:
        planned += " (as on earlier days at this time)"
    text = (
        f"{_figure(made.load.requests_per_s)} requests/s come,"
        f" {planned} are planned for; p{slo.percentile} of {slo.latency_ms} ms"
        f" needs {needed} replicas"
    )
    if fewer is not None:
        text += f" (with {fewer.replicas}: {_in_words(fewer)})"
    if made.asked != made.configuration:
        text += f"; replicas with {_kind(made)} replace those with"
        text += f" {made.configuration.share_percent} %"
    if made.clearing_s:
        text += f"; training makes way for a replica, which may take {made.clearing_s:.0f} s"
    if made.spare:
        text += f"; {made.spare} spare, because spot machines may go sooner than a replica starts"
    if made.wanted > needed + made.spare:
        text += f"; {made.wanted} stay until fewer were enough for {made.terms.hold_s:g} s"
    if reachable(made.terms.target, made.configuration.service) is not made.terms.target:
        text += "; one that does not wait takes longer than the objective allows"
    elif not made.found.chosen.keeps:
        text += f"; maxReplicas is {made.terms.most}: {_in_words(chosen)}"
    return text


def _kind(made: ScalingFinding) -> str:
    asked, now = made.asked, made.configuration
    device = "a device" if asked.accelerator == now.accelerator else f"one {asked.accelerator}"
    return f"{asked.share_percent} % of {device}"


def _in_words(choice: ReplicaChoice) -> str:
    return f"{choice.predicted_ms} ms" if choice.predicted_ms else "more would come than is served"


def _history(
    before: ScalingRecord | None, memory: ScalingMemory, one: Configuration
) -> ScalingHistory:
    time = one.service
    found = ScalingHistory(
        as_of=memory.as_of_s,
        rates_milli=tuple(round(rate * 1e3) for rate in memory.rates),
        needs=tuple(
            NeedRecord(time=one.at_s, replicas=one.replicas) for one in memory.needs[-MOST_NEEDS:]
        ),
        caution=f"{memory.caution:.4f}",
        service_micros=max(1, round(time.mean_s * 1e6)),
        spread=f"{time.sigma:.3f}",
        percent=one.share_percent,
        accelerator=one.accelerator,
        season_milli=tuple(round(rate * 1e3) for rate in memory.season if any(memory.season)),
    )
    return with_sleep(found, sleep_memory(before).awake())


def _figure(value: float) -> str:
    """Three digits, as decimal text."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}" if value >= 1e-3 else "0"


def scales(record: ScalingRecord) -> bool:
    """Whether the number of replicas was changed."""
    return Standing.SCALES in record.reason.standing


def scaling_news(service: WorkloadRecord, status: WorkloadStatus, epoch: int) -> Iterator[Emit]:
    """Events where the number or the share of replicas changes; what stays is no news."""
    record, before = status.scaling, service.status.scaling
    if record is None:
        return
    yield from _share_news(service, record, before, epoch)
    if not scales(record):
        return
    told = before.last_scale_time if before is not None else 0.0
    if record.last_scale_time == told:  # others changed it
        return
    yield Emit(
        target=service.ref,
        warning=False,
        epoch=epoch,
        reason=record.reason,
        text=f"{service.replicas} -> {record.chosen.replicas} replicas: {record.message}",
    )


def _share_news(
    service: WorkloadRecord, record: ScalingRecord, before: ScalingRecord | None, epoch: int
) -> Iterator[Emit]:
    chosen, known = record.share, before.share if before is not None else None
    if chosen is None or not chosen.percent or chosen == known:
        return
    yield Emit(
        target=service.ref,
        warning=False,
        epoch=epoch,
        reason=Reason.SHARE_CHOSEN,
        text=f"each replica is to have {chosen.percent} % of"
        f" {f'one {chosen.accelerator}' if chosen.accelerator else 'a device'}: {record.message}",
    )


def scaling_said(record: ScalingRecord | None) -> tuple[Said, ...]:
    """Whether replicas follow the objective."""
    if record is None:
        return ()
    holds = record.reason is not Reason.LOAD_UNKNOWN
    return (Said(ConditionType.SCALING_ACTIVE, holds, record.reason, record.message),)
