# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The slowdown that a latency objective allows on an accelerator, from its class's figures alone.

Measured figures take precedence over declared ones. With missing figures the workload is not
refused: it starts alone on a device and is measured.

A scaled service is evaluated at the load that its autoscaler plans for: a neighbour that fits at
the current load may not fit a minute later. The forecast is for the time when replicas requested
now serve, so it is divided among those. Newcomers are evaluated at the maximum of the last twenty
minutes, because a neighbour that soon leaves again costs more than it gains. Services with another
scaler are evaluated at their declared or measured load.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ullage.api.reasons import Reason
from ullage.cluster.records.profile import ProfileRecord, SoloEntry
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.engines.admission.queue_map import (
    Load,
    QueueObjective,
    Service,
    largest_slowdown,
    replica_load,
    without_wait,
)
from ullage.engines.admission.records import Refusal

STEP: Final = 1.1
"""Loads are rounded up to powers of this, so that a forecast that varies by a few percent every
fifteen seconds changes no plan (our choice; windows of one load are cut the same way)."""
LEAST_PER_S: Final = 1e-3
MOST_PER_S: Final = 1e9
_CLOSE: Final = 1e-9
"""Quantiles closer than this are the same."""
_SAME_LOAD: Final = 1.1
"""Multiple of the measured load up to which a load is equal to it (as windows are cut)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmeasured:
    """Text of missing figures; running alone on a device provides them."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLoad:
    """Planned requests per second of a service's replicas.

    Attributes:
        requests_per_s: Of all replicas together.
        recent_per_s: The highest planned or measured load of the last twenty minutes.
        replicas: The planned number of replicas.
    """

    requests_per_s: float
    recent_per_s: float
    replicas: int

    def of_each(self, replicas: int, *, cv2: float = 1.0, recent: bool = False) -> Load:
        """The load of one replica, rounded up.

        Args:
            replicas: Replicas that share the load.
            cv2: Squared coefficient of variation of the times between arrivals.
            recent: Use the maximum of the last twenty minutes.
        """
        total = self.recent_per_s if recent else self.requests_per_s
        exact = replica_load(total, max(1, replicas), cv2=cv2)
        if exact.requests_per_s <= LEAST_PER_S:
            return Load(requests_per_s=LEAST_PER_S, cv2=cv2)
        # a value just above a whole step counts as that step, so rounding twice changes nothing
        steps = math.ceil(math.log(exact.requests_per_s, STEP) - 1e-6)
        return Load(requests_per_s=STEP**steps, cv2=cv2)


def planned_load(workload: WorkloadRecord) -> PlannedLoad | None:
    """The load that Ullage's autoscaler plans for, from the status of the last cycle.

    ``None`` for a service with another scaler, and while the load is unknown.
    """
    record = workload.status.scaling
    if workload.scaling is None or record is None or not record.forecast:
        return None
    forecast = float(record.forecast)
    if not math.isfinite(forecast) or forecast < 0:
        return None
    rates = record.history.rates_milli if record.history is not None else ()
    recent = max((rate / 1e3 for rate in rates), default=0.0)
    return PlannedLoad(
        requests_per_s=min(forecast, MOST_PER_S),
        recent_per_s=min(max(forecast, recent), MOST_PER_S),
        replicas=max(1, record.chosen.replicas),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alone:
    """Service times alone on the whole device.

    Attributes:
        service: The distribution of service times.
        kept: A slowdown at which the objective was kept, as measured; 0 = none.
        kept_load_per_s: The largest load at which ``kept`` holds.
    """

    service: Service
    kept: float = 0.0
    kept_load_per_s: float = 0.0


def latency_limit(
    workload: WorkloadRecord,
    named: ProfileRecord | None,
    learner: ProfileRecord | None,
    whole: tuple[float, str],
    replicas: int,
    *,
    starts_at: float = 0.0,
    recent: bool = False,
) -> float | Refusal | Unmeasured | None:
    """Slowdown at which the queue of one replica still meets the latency; ``None`` = no objective.

    Args:
        workload: The workload with the objective.
        named: The named profile.
        learner: The profile that learns for its class.
        whole: Seconds of serving one request alone on the whole device (0 = not known), and the
            accelerator.
        replicas: Replicas that share a forecast or declared load.
        starts_at: Slowdown by its share alone of a replica that starts; 0 = it already runs. Unless
            its load is declared that much is allowed, because a load that is too high for the
            present replicas is no reason to start none.
        recent: Use the maximum of the last twenty minutes of a planned load.
    """
    slo, (alone_s, model) = workload.slo, whole
    if slo is None or workload.kind is WorkloadKind.TRAINING_JOB:
        return None
    objective = QueueObjective(latency_s=slo.latency_ms / 1000, quantile=slo.quantile)
    try:
        alone = _measured((named, learner), alone_s, model, objective)
        alone = alone or _declared((named, learner), alone_s, model, slo.quantile)
        planned, load = planned_load(workload), None
        if workload.load is not None:
            declared_per_s, cv2 = workload.load.requests_per_s, workload.load.cv2
            load = replica_load(declared_per_s, max(1, replicas), cv2=cv2)
        elif learner is not None and learner.status.requests_per_s:
            load = Load(requests_per_s=learner.status.requests_per_s)
        if planned is not None:
            cv2 = workload.load.cv2 if workload.load is not None else 1.0
            load = planned.of_each(replicas, cv2=cv2, recent=recent)
        if alone is None or load is None:
            return Unmeasured(text=_lacking(alone is None, load is None, slo.percentile, model))
        limit = largest_slowdown(alone.service, load, objective)
        if planned is not None or (starts_at and workload.load is None):
            limit = _of_one_of_many(limit, starts_at, alone.service, objective)
    except ValueError as error:
        text = f"{error}; correct the WorkloadProfile or spec.load (on {model})"
        return Refusal(reason=Reason.NEED_PROFILE, text=text)
    if alone.kept and load.requests_per_s <= _SAME_LOAD * alone.kept_load_per_s:
        # a measurement takes precedence over the formula
        return alone.kept if isinstance(limit, Refusal) else max(limit, alone.kept)
    if isinstance(limit, Refusal):
        return Refusal(reason=limit.reason, text=f"{limit.text} (on {model})")
    return limit


def _of_one_of_many(
    limit: float | Refusal, starts_at: float, service: Service, objective: QueueObjective
) -> float | Refusal:
    """The limit of a replica whose load is forecast or measured, and falls with more replicas.

    Where the load is too high for a running replica, no neighbour may slow it. A starting replica
    is allowed the slowdown of its share, up to that at which a request without wait meets the
    objective.
    """
    if isinstance(limit, Refusal):
        if limit.reason is not Reason.LOAD_INFEASIBLE:
            return limit
        limit = 1.0
    if starts_at <= limit:
        return limit
    return max(limit, min(starts_at, objective.latency_s / service.quantile_s))


def _lacking(latency: bool, load: bool, percentile: str, model: str) -> str:
    """Name the missing figures, and the fields to declare them."""
    if not latency:
        return (
            "the load of one replica is not known yet (or declare spec.load.requestsPerSecond, of"
            " all replicas together)"
        )
    text = (
        f"its p{percentile} alone on {model} {'and its load are' if load else 'is'} not known yet"
        f" (or declare stepsPerSecond and latencyP99Seconds for {model} in a WorkloadProfile,"
        " spec.solo, share 100"
    )
    return f"{text}, and spec.load.requestsPerSecond)" if load else f"{text})"


Profiles = tuple[ProfileRecord | None, ProfileRecord | None]
"""The named profile, and the one that learns for its class."""


def _measured(
    profiles: Profiles, alone_s: float, model: str, objective: QueueObjective
) -> _Alone | None:
    """Service times from the latency at the objective's quantile, at the largest share with one."""
    for row in _rows_by_worth(profiles, model):
        latencies = [at for at in row.measured if abs(at[0] - objective.quantile) < _CLOSE]
        if not (latencies and row.step_s and row.requests_per_s):
            continue
        latency, load = latencies[0][1], Load(requests_per_s=row.requests_per_s)
        scale = alone_s / row.step_s if alone_s else 1.0
        served_s = without_wait(latency, row.step_s, load, objective.quantile)
        mean_s = row.step_s * scale
        return _Alone(
            service=Service(mean_s=mean_s, quantile_s=max(mean_s, served_s * scale)),
            kept=max(1.0, 1 / scale) if latency <= objective.latency_s else 0.0,
            kept_load_per_s=row.requests_per_s,
        )
    return None


def _rows_by_worth(profiles: Profiles, model: str) -> Iterator[SoloEntry]:
    """Rows of an accelerator: measured first, then the learner's, then by falling share."""
    named, learner = profiles
    measured = [profile.status.solo for profile in (learner, named) if profile is not None]
    declared = [profile.solo for profile in (learner, named) if profile is not None]
    for rows in (*measured, *declared):
        of_model = [row for row in rows if row.device == model]
        yield from sorted(of_model, key=lambda row: -row.share)


def _declared(profiles: Profiles, alone_s: float, model: str, quantile: float) -> _Alone | None:
    """Service times from declared times of a request without wait.

    Uses the row of the largest share, scaled to the whole device by the curve, and in it the next
    quantile above the objective's, or the highest if there is none.
    """
    for profile in profiles:
        rows = [row for row in (profile.solo if profile is not None else ()) if row.device == model]
        row = max((row for row in rows if row.latency), key=lambda row: row.share, default=None)
        if row is None:
            continue
        above = [seconds for at, seconds in row.latency if at >= quantile - _CLOSE]
        quantile_s = above[0] if above else row.latency[-1][1]
        mean_s = alone_s or row.latency[0][1]
        scale = alone_s / row.step_s if alone_s and row.step_s else 1.0
        cv2 = 1.0 if row.cs2 is None else row.cs2
        service = Service(mean_s=mean_s, quantile_s=max(mean_s, quantile_s * scale), cv2=cv2)
        return _Alone(service=service)
    return None
