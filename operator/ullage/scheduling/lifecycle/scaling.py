# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Replicas of a service follow its objective: load in, number of replicas out.

Every fifteen seconds what nodes report of the replicas is one bin of load. What was decided stands
in the status first; the number itself is set from there in the next cycle, so that a leader that
dies between the two leaves the next one the same to do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from ullage.api.contract import Reason
from ullage.api.reasons import ConditionType
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.cluster.records.spec_fields import ReplicaBounds
from ullage.cluster.records.status import (
    MOST_NEEDS,
    NeedRecord,
    ReplicaChoice,
    ScalingHistory,
    ScalingRecord,
    WorkloadStatus,
)
from ullage.engines.scaling.autoscaler import ScalingDecision, ScalingTerms
from ullage.engines.scaling.configurations import Configuration
from ullage.engines.scaling.following import Heard, ScalingMemory, follow, reachable
from ullage.engines.scaling.forecast import FIRST_CAUTION
from ullage.engines.scaling.observed_service import Latencies, observed_service
from ullage.engines.scaling.pooled_queue import LatencyTarget, OfferedLoad, predicted_s
from ullage.engines.scaling.service_times import ServiceTime
from ullage.engines.scaling.stabilisation import Need
from ullage.scheduling.lifecycle.service_load import (
    LONGEST_S,
    MOST_PER_S,
    ServiceLoad,
    load_of,
    served_by,
)
from ullage.scheduling.lifecycle.sleeping import Sleeper, sleep_memory, with_sleep
from ullage.scheduling.model.conditions import Said
from ullage.scheduling.model.lifecycle_step import earliest
from ullage.scheduling.model.plan import Emit, ScaleWorkload
from ullage.scheduling.model.view import Member, View

BIN_S: Final = 15.0
SETTLE_S: Final = 1.0
"""After a decision its status is written, then the number is set."""
WAKE_SETTLE_S: Final = 0.25
"""The same where a request waits: a status takes less, and one that is late costs a second try."""
FIRST_LAUNCH_S: Final = 45.0
"""Time to start that is reckoned with until it was seen."""
LAUNCH_S: Final = (5.0, 600.0)
"""Least and most that is believed: a container that was started again looks slow."""
CHANGES: Final = (Reason.SCALED_UP, Reason.SCALED_DOWN, Reason.SCALED_TO_ZERO, Reason.WOKEN)
FEWEST: Final = 10.0
"""Requests of a bin that tell how long one is served."""
MOST_MS: Final = 10**9
EVEN: Final = 1e-6
MOST_SPREAD: Final = 4.0
"""Of the logarithm of a service time; no two figures give a wider one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingStep:
    """What a cycle finds of a service's replicas.

    ``record`` is that of before, to the very object, where nothing was measured since.
    """

    record: ScalingRecord
    action: ScaleWorkload | None = None
    wake_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What another replica needs of the cluster; evaluated when a bin ends.

    Attributes:
        clearing_s: Seconds until others have left a device that it could take; 0 = one is free.
        spare: Replicas to have beyond a number that is needed, because an interruption may take
            some sooner than a number of seconds.
    """

    clearing_s: Callable[[], float]
    spare: Callable[[int, float], int]


def scale(view: View, service: WorkloadRecord, around: Surroundings) -> ScalingStep | None:
    """What a service's replicas should be; ``None`` = others scale it.

    Args:
        view: The cycle's snapshot.
        service: The service, with the status of the last cycle.
        around: What another replica needs of the cluster.
    """
    bounds, slo = service.scaling, service.slo
    if bounds is None or slo is None or service.deleting:
        return None
    before, since = service.status.scaling, _as_of(service.status.scaling)
    members = [
        member for member in view.members_of(service) if member.live and not member.pod.deleting
    ]
    sleeper = _sleeper(view, service, members)
    slept = sleeper.step() if sleeper is not None else None
    if slept is not None:  # while it sleeps its router wakes the next decision
        record, wake_at = slept, view.now + BIN_S if slept.chosen.replicas else 0.0
    elif before is not None and since <= view.now < since + BIN_S:
        record, wake_at = before, since + BIN_S
    else:
        record, wake_at = _decided(view, service, bounds, members, around), view.now + BIN_S
        record = _with_reason_to_stay(record, sleeper)
    if record.chosen.replicas != service.replicas:
        settle_s = WAKE_SETTLE_S if record.reason is Reason.WOKEN else SETTLE_S
        wake_at = earliest(wake_at, view.now + settle_s)
    overtaken = slept is not None and slept is not before
    action = None if overtaken else _action(view, service, bounds)
    return ScalingStep(record=record, action=action, wake_at=wake_at)


def _action(view: View, service: WorkloadRecord, bounds: ReplicaBounds) -> ScaleWorkload | None:
    """Bring the number in line with the status that stands."""
    standing = service.status.scaling
    if standing is None or standing.reason is Reason.LOAD_UNKNOWN:
        return None  # people may set it meanwhile
    wanted = min(max(standing.chosen.replicas, bounds.min_replicas), bounds.max_replicas)
    if wanted == service.replicas:
        return None
    return ScaleWorkload(
        owner=service.ref,
        resource_version=service.resource_version,
        replicas=wanted,
        epoch=view.settings.epoch,
        reason=standing.reason,
        text=standing.message,
    )


def _as_of(before: ScalingRecord | None) -> float:
    return before.history.as_of if before is not None and before.history is not None else 0.0


def _decided(
    view: View,
    service: WorkloadRecord,
    bounds: ReplicaBounds,
    members: Sequence[Member],
    around: Surroundings,
) -> ScalingRecord:
    """The record at the end of a bin."""
    before, load = service.status.scaling, load_of(view, members)
    launch_s = _launch_s(view, service, members)
    memory, known = _memory(before), _known(before)
    service_time = _service_time(service, load, known) if load is not None else known
    if load is None or service_time is None:
        return _unknown(view, service, before, launch_s, load)
    one = served_by(view, members)
    configuration = Configuration(
        accelerator=one.accelerator,
        share_percent=one.percent,
        service=service_time,
        cost=float(one.percent),
    )
    clearing_s = around.clearing_s()
    terms = _terms(service, bounds, min(LAUNCH_S[1], launch_s + clearing_s))
    heard = Heard(
        now_s=whole_second(view.now),
        requests_per_s=load.requests_per_s,
        late=load.late,
        ended=load.requests_per_s * BIN_S,
        waiting=_waiting(load, service_time),
        current=service.replicas,
    )
    found, after = follow(memory, heard, configuration, terms)
    needed = found.need.replicas
    spare = around.spare(needed, launch_s + clearing_s)
    wanted = max(found.replicas, needed + spare, min(_busy(load, service_time), service.replicas))
    if load.missing:  # no replica is taken away on the word of some of them
        wanted = max(wanted, service.replicas)
    wanted = min(max(wanted, bounds.min_replicas), bounds.max_replicas)
    return _record(
        service,
        before,
        _Finding(
            load=load,
            found=found,
            memory=after,
            terms=terms,
            wanted=wanted,
            launch_s=launch_s,
            clearing_s=clearing_s,
            spare=spare,
            configuration=configuration,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    """All that a record is made of."""

    load: ServiceLoad
    found: ScalingDecision
    memory: ScalingMemory
    terms: ScalingTerms
    configuration: Configuration
    wanted: int
    launch_s: float
    clearing_s: float
    """Until others have left a device that one more replica takes; 0 = one is free."""
    spare: int
    """Replicas beyond those needed, so that enough are left after one interruption."""


def _record(service: WorkloadRecord, before: ScalingRecord | None, made: _Finding) -> ScalingRecord:
    reason = _reason(service, made)
    chosen = _choice(made, made.wanted)
    needed = made.found.need.replicas
    fewer = _choice(made, needed - 1) if needed > made.terms.least else None
    asked = before.chosen.replicas if before is not None and before.reason in CHANGES else None
    changed = made.wanted not in (service.replicas, asked)  # what is refused is asked again
    return ScalingRecord(
        load=_figure(made.load.requests_per_s),
        forecast=_figure(made.found.load_per_s),
        predicted_ms=chosen.predicted_ms,
        chosen=replace(chosen, predicted_ms=0),
        runner_up=fewer,
        reason=reason,
        message=_message(service, made, chosen, fewer),
        last_scale_time=made.memory.as_of_s
        if changed
        else before.last_scale_time
        if before
        else 0.0,
        launch_seconds=round(made.launch_s),
        history=_history(before, made.memory, made.configuration.service),
    )


def _reason(service: WorkloadRecord, made: _Finding) -> Reason:
    target, time = made.terms.target, made.configuration.service
    if made.wanted > service.replicas:
        return Reason.SCALED_UP
    if made.wanted < service.replicas:
        return Reason.SCALED_DOWN
    if reachable(target, time) is not target:
        return Reason.OUT_OF_REACH
    return Reason.STEADY if made.found.chosen.keeps else Reason.AT_MAXIMUM


def _choice(made: _Finding, replicas: int) -> ReplicaChoice:
    one, terms = made.configuration, made.terms
    load = OfferedLoad(requests_per_s=made.found.load_per_s, cv2=terms.cv2, pooled=terms.pooled)
    seconds = predicted_s(one.service, load, replicas, terms.target.quantile)
    return ReplicaChoice(
        replicas=replicas,
        percent=one.share_percent,
        accelerator=one.accelerator,
        predicted_ms=min(MOST_MS, max(1, round(seconds * 1e3))) if math.isfinite(seconds) else 0,
    )


def _message(
    service: WorkloadRecord, made: _Finding, chosen: ReplicaChoice, fewer: ReplicaChoice | None
) -> str:
    slo, needed = service.slo, made.found.need.replicas
    assert slo is not None
    text = (
        f"{_figure(made.load.requests_per_s)} requests/s come,"
        f" {_figure(made.found.load_per_s)} are planned for; p{slo.percentile} of {slo.latency_ms}"
        f" ms needs {needed} replicas"
    )
    if fewer is not None:
        text += f" (with {fewer.replicas}: {_in_words(fewer)})"
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


def _in_words(choice: ReplicaChoice) -> str:
    return f"{choice.predicted_ms} ms" if choice.predicted_ms else "more would come than is served"


def _unknown(
    view: View,
    service: WorkloadRecord,
    before: ScalingRecord | None,
    launch_s: float,
    load: ServiceLoad | None,
) -> ScalingRecord:
    """Nothing is changed on missing data; what was learned stays."""
    said = "no ready replica reports how many requests it gets"
    if load is not None:
        said = "no request was answered yet, so it is not known how long one takes"
    history = before.history if before is not None else None
    if history is not None:
        history = with_sleep(history, sleep_memory(before).awake())
    return ScalingRecord(
        chosen=ReplicaChoice(replicas=service.replicas),
        reason=Reason.LOAD_UNKNOWN,
        message=f"{said}; {service.replicas} replicas stay",
        last_scale_time=before.last_scale_time if before is not None else 0.0,
        launch_seconds=round(launch_s),
        history=history,
    )


def _terms(service: WorkloadRecord, bounds: ReplicaBounds, launch_s: float) -> ScalingTerms:
    slo = service.slo
    assert slo is not None
    return ScalingTerms(
        target=LatencyTarget(limit_s=slo.latency_ms / 1e3, quantile=slo.quantile),
        least=bounds.min_replicas,
        most=bounds.max_replicas,
        bin_s=BIN_S,
        launch_s=launch_s,
        cv2=service.load.cv2 if service.load is not None else 1.0,
        pooled=False,
    )


def _service_time(
    service: WorkloadRecord, load: ServiceLoad, known: ServiceTime | None
) -> ServiceTime | None:
    """How long one request is served, with what this bin says of it."""
    slo = service.slo
    assert slo is not None
    if load.per_replica * BIN_S * load.reporting < FEWEST or load.mean_s <= 0:
        return known
    return observed_service(
        Latencies(
            requests_per_s=load.per_replica,
            mean_s=load.mean_s,
            at_quantile_s=max(load.at_quantile_s, load.mean_s),
            quantile=slo.quantile,
        ),
        known,
    )


def _waiting(load: ServiceLoad, time: ServiceTime) -> int:
    """Requests that wait, from their number in the service (Little)."""
    return round(min(1e6, load.requests_per_s * max(0.0, load.mean_s - time.mean_s)))


def _busy(load: ServiceLoad, time: ServiceTime) -> int:
    """Replicas that served all the time in this bin: what they have begun is not cut off."""
    return math.ceil(load.requests_per_s * time.mean_s - EVEN)


def _sleeper(view: View, service: WorkloadRecord, members: Sequence[Member]) -> Sleeper | None:
    launch_s = _launch_s(view, service, members)
    ready = any(member.pod.ready for member in members)
    return Sleeper.of(view, service, launch_s, ready=ready)


def _with_reason_to_stay(record: ScalingRecord, sleeper: Sleeper | None) -> ScalingRecord:
    """The record, with why an idle service keeps a replica."""
    why = sleeper.stays_awake() if sleeper is not None else ""
    return replace(record, message=f"{record.message}; {why}") if why else record


def _launch_s(view: View, service: WorkloadRecord, members: Sequence[Member]) -> float:
    """From creation until it answers, of the replicas that are ready; or the last wake, if longer.

    A router counts it as a wake, too, that a replica was away for a moment: a short one says
    nothing.
    """
    least, most = LAUNCH_S
    before, load = service.status.scaling, view.snapshot.routers.get(service.ref.uid)
    took = [
        member.pod.ready_since - member.pod.created
        for member in members
        if member.pod.ready and member.pod.ready_since > member.pod.created > 0
    ]
    took = [one for one in took if one <= most]
    known = float(before.launch_seconds) if before and before.launch_seconds else FIRST_LAUNCH_S
    launch_s = median(took) if took else known
    return min(most, max(least, launch_s, load.wake_s if load is not None else 0.0))


def _memory(before: ScalingRecord | None) -> ScalingMemory:
    history = before.history if before is not None else None
    if history is None:
        return ScalingMemory()
    return ScalingMemory(
        rates=tuple(min(MOST_PER_S, rate / 1e3) for rate in history.rates_milli),
        needs=tuple(Need(at_s=one.time, replicas=one.replicas) for one in history.needs),
        caution=min(1.0, max(0.0, float(history.caution))) if history.caution else FIRST_CAUTION,
        as_of_s=history.as_of,
    )


def _known(before: ScalingRecord | None) -> ServiceTime | None:
    history = before.history if before is not None else None
    if history is None or not history.service_micros:
        return None
    return ServiceTime(
        mean_s=min(LONGEST_S, history.service_micros / 1e6),
        sigma=min(MOST_SPREAD, float(history.spread)) if history.spread else 0.0,
    )


def _history(
    before: ScalingRecord | None, memory: ScalingMemory, time: ServiceTime
) -> ScalingHistory:
    found = ScalingHistory(
        as_of=memory.as_of_s,
        rates_milli=tuple(round(rate * 1e3) for rate in memory.rates),
        needs=tuple(
            NeedRecord(time=one.at_s, replicas=one.replicas) for one in memory.needs[-MOST_NEEDS:]
        ),
        caution=f"{memory.caution:.4f}",
        service_micros=max(1, round(time.mean_s * 1e6)),
        spread=f"{time.sigma:.3f}",
    )
    return with_sleep(found, sleep_memory(before).awake())


def _figure(value: float) -> str:
    """Three digits, as decimal text."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}" if value >= 1e-3 else "0"


def scaling_news(service: WorkloadRecord, status: WorkloadStatus, epoch: int) -> Iterator[Emit]:
    """An Event where the number of replicas changes; what stays is no news."""
    record, before = status.scaling, service.status.scaling
    if record is None or record.reason not in CHANGES:
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


def scaling_said(record: ScalingRecord | None) -> tuple[Said, ...]:
    """Whether replicas follow the objective."""
    if record is None:
        return ()
    holds = record.reason is not Reason.LOAD_UNKNOWN
    return (Said(ConditionType.SCALING_ACTIVE, holds, record.reason, record.message),)
