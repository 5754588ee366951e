# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Autoscaling of services by their latency objective.

Every fifteen seconds the reports of nodes become one bin of load. A decision is written into the
status first; the next cycle sets the number of replicas from there, so that a new leader continues
where the last one stopped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from ullage.api.reasons import Reason
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.spec_fields import ReplicaBounds
from ullage.cluster.records.status import ReplicaChoice, ScalingRecord
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.scaling.autoscaler import ScalingTerms
from ullage.engines.scaling.configurations import Configuration, ranked
from ullage.engines.scaling.following import Heard, ScalingMemory, follow
from ullage.engines.scaling.forecast import FIRST_CAUTION
from ullage.engines.scaling.observed_service import Latencies, observed_service
from ullage.engines.scaling.pooled_queue import LatencyTarget
from ullage.engines.scaling.service_times import ServiceTime
from ullage.engines.scaling.stabilisation import ReplicaNeed
from ullage.scheduling.lifecycle.scaling_record import ScalingFinding, record_of
from ullage.scheduling.lifecycle.service_load import (
    MOST_PER_S,
    ReplicaKind,
    ServiceLoad,
    load_of,
    served_by,
)
from ullage.scheduling.lifecycle.share_choice import (
    Kinds,
    Seconds,
    ShareQuestion,
    chosen_share,
    of_kind,
)
from ullage.scheduling.lifecycle.sleeping import Sleeper, sleep_memory, with_sleep
from ullage.scheduling.model.lifecycle_step import earliest
from ullage.scheduling.model.plan import ScaleWorkload
from ullage.scheduling.model.view import Member, View
from ullage.scheduling.times import (
    LATENCY_MOST_S,
    LOAD_BIN_S,
    LOAD_SEASON_S,
    REPLICA_LAUNCH_BOUNDS_S,
    REPLICA_LAUNCH_FIRST_S,
    REPLICAS_SETTLE_S,
    REPLICAS_WAKE_SETTLE_S,
)

FEWEST: Final = 10.0
"""Least requests of a bin that give a service time."""
EVEN: Final = 1e-6
MOST_SPREAD: Final = 4.0
"""Largest spread of the logarithm of a service time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingStep:
    """Outcome of a cycle for the replicas of a service.

    ``record`` is the previous object when nothing was measured since.
    """

    record: ScalingRecord
    action: ScaleWorkload | None = None
    wake_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaContext:
    """Facts about the cluster for one more replica, evaluated when a bin ends.

    Attributes:
        clearing_s: Seconds until a device for it is cleared; 0 = one is free.
        spare: Replicas to add to a needed number, because spot interruptions may come sooner than
            a replica starts (second argument, seconds).
        kinds: Kinds of replicas that the service may have.
    """

    clearing_s: Callable[[], float]
    spare: Callable[[int, float], int]
    kinds: Callable[[], Kinds]


def scale(view: View, service: WorkloadRecord, around: ReplicaContext) -> ScalingStep | None:
    """Decide the number of replicas of a service; ``None`` = it is not scaled here.

    Args:
        view: The cycle's snapshot.
        service: The service, with the status of the last cycle.
        around: Facts about the cluster for one more replica.
    """
    bounds, slo = service.scaling, service.slo
    if bounds is None or slo is None or service.deleting:
        return None
    before = service.status.scaling
    since = before.history.as_of if before is not None and before.history is not None else 0.0
    members = [
        member for member in view.members_of(service) if member.live and not member.pod.deleting
    ]
    pods = [member.pod for member in members]
    sleeper = Sleeper.of(view, service, pods, _launch_s(view, service, members))
    slept = sleeper.step() if sleeper is not None else None
    if slept is not None:  # while it sleeps, its router triggers the next decision
        record, wake_at = slept, view.now + LOAD_BIN_S if slept.chosen.replicas else 0.0
    elif before is not None and since <= view.now < since + LOAD_BIN_S:
        record, wake_at = before, since + LOAD_BIN_S
    else:
        record, wake_at = _decided(view, service, bounds, members, around), view.now + LOAD_BIN_S
        if sleeper is not None and (why := sleeper.stays_awake()):
            record = replace(record, message=f"{record.message}; {why}")
    if record.chosen.replicas != service.replicas:
        settle_s = REPLICAS_WAKE_SETTLE_S if record.reason is Reason.WOKEN else REPLICAS_SETTLE_S
        wake_at = earliest(wake_at, view.now + settle_s)
    overtaken = slept is not None and slept is not before
    action = None if overtaken else _action(view, service, bounds)
    return ScalingStep(record=record, action=action, wake_at=wake_at)


def _action(view: View, service: WorkloadRecord, bounds: ReplicaBounds) -> ScaleWorkload | None:
    """Set the number of replicas that the status of the last cycle chose."""
    standing = service.status.scaling
    if standing is None or standing.reason is Reason.LOAD_UNKNOWN:
        return None  # users may set it meanwhile
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


def _decided(
    view: View,
    service: WorkloadRecord,
    bounds: ReplicaBounds,
    members: Sequence[Member],
    around: ReplicaContext,
) -> ScalingRecord:
    """The record at the end of a bin."""
    before, load = service.status.scaling, load_of(view, members)
    launch_s = _launch_s(view, service, members)
    memory, kind = _memory(before), served_by(view, members)
    kinds = around.kinds()
    learned = _known(before, kind, kinds.seconds)
    service_time = _service_time(service, load, learned) if load is not None else learned
    if load is None or service_time is None:
        return _unknown(view, service, before, launch_s, load)
    configuration = Configuration(
        accelerator=kind.accelerator,
        share_percent=kind.percent,
        service=service_time,
        cost=kind.percent * kinds.prices.get(kind.accelerator, 1.0),
    )
    clearing_s = around.clearing_s()
    terms = _terms(service, bounds, min(REPLICA_LAUNCH_BOUNDS_S[1], launch_s + clearing_s))
    heard = Heard(
        now_s=whole_second(view.now),
        requests_per_s=load.requests_per_s,
        late=load.late,
        ended=load.requests_per_s * LOAD_BIN_S,
        # Little's law: those in the service, less those that are served
        waiting=round(min(1e6, load.requests_per_s * max(0.0, load.mean_s - service_time.mean_s))),
        current=service.replicas,
    )
    decision, after = follow(memory, heard, configuration, terms)
    ask = ShareQuestion(
        view=view,
        service=service,
        members=members,
        now=configuration,
        demand=terms.demand(max(decision.load_per_s, *after.rates)),
        bins=len(after.rates),
        kinds=kinds,
    )
    share = chosen_share(ask)
    following = configuration
    if share is not None and share.percent:
        following = of_kind(
            configuration, kinds, share.accelerator or kind.accelerator, share.percent
        )
    needed = decision.need.replicas
    if following != configuration:  # until all are replaced some are as before
        needed = max(needed, ranked([following], terms.demand(decision.load_per_s))[0].replicas)
    spare = around.spare(needed, launch_s + clearing_s)
    # replicas that were busy all the time in this bin: their requests are not cut off
    busy = math.ceil(load.requests_per_s * service_time.mean_s - EVEN)
    wanted = max(decision.replicas, needed + spare, min(busy, service.replicas))
    if load.missing:  # never scale down on incomplete reports
        wanted = max(wanted, service.replicas)
    wanted = min(max(wanted, bounds.min_replicas), bounds.max_replicas)
    return record_of(
        service,
        before,
        ScalingFinding(
            load=load,
            decision=decision,
            memory=after,
            terms=terms,
            wanted=wanted,
            launch_s=launch_s,
            clearing_s=clearing_s,
            spare=spare,
            needed=needed,
            configuration=configuration,
            next_configuration=following,
            share=share,
        ),
    )


def _unknown(
    view: View,
    service: WorkloadRecord,
    before: ScalingRecord | None,
    launch_s: float,
    load: ServiceLoad | None,
) -> ScalingRecord:
    """The record without data: nothing is changed, and what was learned is kept."""
    text = "no ready replica reports how many requests it gets"
    if load is not None:
        text = "no request was answered yet, so it is not known how long one takes"
    history = before.history if before is not None else None
    if history is not None:
        history = with_sleep(history, sleep_memory(before).awake())
    return ScalingRecord(
        chosen=ReplicaChoice(replicas=service.replicas),
        share=before.share if before is not None else None,
        reason=Reason.LOAD_UNKNOWN,
        message=f"{text}; {service.replicas} replicas stay",
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
        bin_s=LOAD_BIN_S,
        launch_s=launch_s,
        season_s=LOAD_SEASON_S,
        cv2=service.load.cv2 if service.load is not None else 1.0,
        pooled=False,
    )


def _service_time(
    service: WorkloadRecord, load: ServiceLoad, before: ServiceTime | None
) -> ServiceTime | None:
    """Service time of a request, updated by this bin; ``None`` = none was measured yet."""
    slo = service.slo
    assert slo is not None
    if load.per_replica * LOAD_BIN_S * load.reporting < FEWEST or load.mean_s <= 0:
        return before
    return observed_service(
        Latencies(
            requests_per_s=load.per_replica,
            mean_s=load.mean_s,
            at_quantile_s=max(load.at_quantile_s, load.mean_s),
            quantile=slo.quantile,
        ),
        before,
    )


def _launch_s(view: View, service: WorkloadRecord, members: Sequence[Member]) -> float:
    """Start time of a replica, seconds: the median of ready replicas, or the last wake if longer.

    Short wakes are ignored: a router also counts the return of a replica that was briefly away.
    """
    least, most = REPLICA_LAUNCH_BOUNDS_S
    before, load = service.status.scaling, view.snapshot.routers.get(service.ref.uid)
    took = [
        member.pod.ready_since - member.pod.created
        for member in members
        if member.pod.ready and member.pod.ready_since > member.pod.created > 0
    ]
    took = [seconds for seconds in took if seconds <= most]
    usual_s = (
        float(before.launch_seconds) if before and before.launch_seconds else REPLICA_LAUNCH_FIRST_S
    )
    launch_s = median(took) if took else usual_s
    return min(most, max(least, launch_s, load.wake_s if load is not None else 0.0))


def _memory(before: ScalingRecord | None) -> ScalingMemory:
    history = before.history if before is not None else None
    if history is None:
        return ScalingMemory()
    return ScalingMemory(
        rates=tuple(min(MOST_PER_S, rate / 1e3) for rate in history.rates_milli),
        needs=tuple(ReplicaNeed(at_s=need.time, replicas=need.replicas) for need in history.needs),
        caution=min(1.0, max(0.0, float(history.caution))) if history.caution else FIRST_CAUTION,
        as_of_s=history.as_of,
        season=tuple(min(MOST_PER_S, rate / 1e3) for rate in history.season_milli),
    )


def _known(before: ScalingRecord | None, now: ReplicaKind, seconds: Seconds) -> ServiceTime | None:
    """The previous service time, converted to the share and accelerator of replicas now."""
    history = before.history if before is not None else None
    if history is None or not history.service_micros:
        return None
    mean_s = history.service_micros / 1e6
    measured_on = history.accelerator or now.accelerator
    same = (measured_on, history.percent) == (now.accelerator, now.percent)
    if history.percent and now.percent and not same:
        mean_s *= seconds(now.accelerator, now.percent)
        mean_s /= seconds(measured_on, history.percent)
    return ServiceTime(
        mean_s=min(LATENCY_MOST_S, mean_s),
        sigma=min(MOST_SPREAD, float(history.spread)) if history.spread else 0.0,
    )
