# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Status and Events of a service's replicas: their number, their share, and the reason."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ullage.api.reasons import ConditionType, Reason, Standing
from ullage.cluster.records.status import (
    MOST_NEEDS,
    ChosenShare,
    NeedRecord,
    ReplicaChoice,
    ScalingHistory,
    ScalingRecord,
    WorkloadStatus,
)
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.scaling.autoscaler import ScalingDecision, ScalingTerms
from ullage.engines.scaling.configurations import Configuration
from ullage.engines.scaling.following import ScalingMemory, reachable
from ullage.engines.scaling.pooled_queue import predicted_s
from ullage.scheduling.lifecycle.service_load import ServiceLoad
from ullage.scheduling.lifecycle.sleeping import sleep_memory, with_sleep
from ullage.scheduling.model.conditions import DesiredCondition
from ullage.scheduling.model.plan import Emit
from ullage.scheduling.times import LATENCY_RECORDED_MOST_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingFinding:
    """Inputs of a :class:`ScalingRecord`."""

    load: ServiceLoad
    decision: ScalingDecision
    memory: ScalingMemory
    terms: ScalingTerms
    configuration: Configuration
    """Share and accelerator of most replicas."""
    next_configuration: Configuration
    """Desired share and accelerator of every replica."""
    share: ChosenShare | None
    needed: int
    wanted: int
    launch_s: float
    clearing_s: float
    """Seconds until a device for one more replica is cleared; 0 = one is free."""
    spare: int
    """Replicas beyond those needed, so that enough are left after one interruption."""


def record_of(
    service: WorkloadRecord, before: ScalingRecord | None, made: ScalingFinding
) -> ScalingRecord:
    """Build the scaling status of a service.

    Args:
        service: The service.
        before: Its previous record.
        made: The decision and its inputs.
    """
    reason = _reason(service, made)
    chosen = _choice(made, made.wanted)
    needed = made.needed
    fewer = _choice(made, needed - 1) if needed > made.terms.least else None
    wanted_before = before.chosen.replicas if before is not None and scales(before) else None
    # a number that the API refused is requested again, which is no change
    changed = made.wanted not in (service.replicas, wanted_before)
    return ScalingRecord(
        load=_figure(made.load.requests_per_s),
        forecast=_figure(made.decision.load_per_s),
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
    return Reason.STEADY if made.decision.chosen.keeps else Reason.AT_MAXIMUM


def _choice(made: ScalingFinding, replicas: int) -> ReplicaChoice:
    kind, terms = made.next_configuration, made.terms
    load = terms.demand(made.decision.load_per_s).load
    seconds = predicted_s(kind.service, load, replicas, terms.target.quantile)
    return ReplicaChoice(
        replicas=replicas,
        percent=kind.share_percent,
        accelerator=kind.accelerator,
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
    planned = _figure(made.decision.load_per_s)
    if made.decision.forecast.seasonal:
        planned += " (as on earlier days at this time)"
    text = (
        f"{_figure(made.load.requests_per_s)} requests/s come,"
        f" {planned} are planned for; p{slo.percentile} of {slo.latency_ms} ms"
        f" needs {needed} replicas"
    )
    if fewer is not None:
        text += f" (with {fewer.replicas}: {_in_words(fewer)})"
    now, following = made.configuration, made.next_configuration
    if following != now:
        same = following.accelerator == now.accelerator
        device = "a device" if same else f"one {following.accelerator}"
        text += f"; replicas with {following.share_percent} % of {device} replace those with"
        text += f" {now.share_percent} %"
    if made.clearing_s:
        text += f"; training makes way for a replica, which may take {made.clearing_s:.0f} s"
    if made.spare:
        text += f"; {made.spare} spare, because spot machines may go sooner than a replica starts"
    if made.wanted > needed + made.spare:
        text += f"; {made.wanted} stay until fewer were enough for {made.terms.hold_s:g} s"
    if reachable(made.terms.target, made.configuration.service) is not made.terms.target:
        text += "; one that does not wait takes longer than the objective allows"
    elif not made.decision.chosen.keeps:
        text += f"; maxReplicas is {made.terms.most}: {_in_words(chosen)}"
    return text


def _in_words(choice: ReplicaChoice) -> str:
    return f"{choice.predicted_ms} ms" if choice.predicted_ms else "more would come than is served"


def _history(
    before: ScalingRecord | None, memory: ScalingMemory, configuration: Configuration
) -> ScalingHistory:
    time = configuration.service
    history = ScalingHistory(
        as_of=memory.as_of_s,
        rates_milli=tuple(round(rate * 1e3) for rate in memory.rates),
        needs=tuple(
            NeedRecord(time=configuration.at_s, replicas=configuration.replicas)
            for configuration in memory.needs[-MOST_NEEDS:]
        ),
        caution=f"{memory.caution:.4f}",
        service_micros=max(1, round(time.mean_s * 1e6)),
        spread=f"{time.sigma:.3f}",
        percent=configuration.share_percent,
        accelerator=configuration.accelerator,
        season_milli=tuple(round(rate * 1e3) for rate in memory.season if any(memory.season)),
    )
    return with_sleep(history, sleep_memory(before).awake())


def _figure(value: float) -> str:
    """Three digits, as decimal text."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}" if value >= 1e-3 else "0"


def scales(record: ScalingRecord) -> bool:
    """True when the record changed the number of replicas."""
    return Standing.SCALES in record.reason.standing


def scaling_news(service: WorkloadRecord, status: WorkloadStatus, epoch: int) -> Iterator[Emit]:
    """Events for a change of the number or the share of replicas."""
    record, before = status.scaling, service.status.scaling
    if record is None:
        return
    yield from _share_news(service, record, before, epoch)
    if not scales(record):
        return
    scaled_at = before.last_scale_time if before is not None else 0.0
    if record.last_scale_time == scaled_at:  # another client changed the number
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
    chosen, share_before = record.share, before.share if before is not None else None
    if chosen is None or not chosen.percent or chosen == share_before:
        return
    yield Emit(
        target=service.ref,
        warning=False,
        epoch=epoch,
        reason=Reason.SHARE_CHOSEN,
        text=f"each replica is to have {chosen.percent} % of"
        f" {f'one {chosen.accelerator}' if chosen.accelerator else 'a device'}: {record.message}",
    )


def scaling_conditions(record: ScalingRecord | None) -> tuple[DesiredCondition, ...]:
    """The condition ``ScalingActive``: replicas follow the objective."""
    if record is None:
        return ()
    holds = record.reason is not Reason.LOAD_UNKNOWN
    return (DesiredCondition(ConditionType.SCALING_ACTIVE, holds, record.reason, record.message),)
