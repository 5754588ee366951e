# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a latency objective allows on an accelerator, by what is known of the class alone.

Measured figures come before declared ones. What is not known is no refusal: the work then starts
alone and is measured. Nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ullage.api.reasons import Reason
from ullage.cluster.records.profile import ProfileRecord, SoloEntry
from ullage.cluster.records.snapshot import WorkloadKind, WorkloadRecord
from ullage.engines.admission.queue_map import (
    Load,
    Objective,
    Service,
    largest_slowdown,
    replica_load,
    without_wait,
)
from ullage.engines.admission.records import Refusal
from ullage.scheduling.prediction.planned_load import planned_load

_CLOSE: Final = 1e-9
"""Quantiles closer than this are the same."""
_SAME_LOAD: Final = 1.1
"""A load up to this many times the measured one is still the same (as windows are cut)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmeasured:
    """What is not known yet, in words: it takes some time alone to find out."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alone:
    """Service times alone on the whole device.

    ``kept`` is a slowdown at which the objective was kept, as measured, at a load of up to
    ``kept_load_per_s``; 0 = none.
    """

    service: Service
    kept: float = 0.0
    kept_load_per_s: float = 0.0


def latency_limit(
    workload: WorkloadRecord,
    named: ProfileRecord | None,
    own: ProfileRecord | None,
    whole: tuple[float, str],
    replicas: int,
    *,
    starts_at: float = 0.0,
    recent: bool = False,
) -> float | Refusal | Unmeasured | None:
    """Slowdown at which the queue of one replica still keeps the latency; ``None`` = no objective.

    Args:
        workload: whose objective it is.
        named: the profile that it names.
        own: the profile that learns for its class.
        whole: seconds of serving one request alone on the whole device (0 = not known), and the
            accelerator.
        replicas: among how many a forecast or declared load is divided.
        starts_at: slowdown by its own share alone of a replica that starts. Unless its load is
            declared, that much is allowed: what one replica carried yesterday, or would carry if
            there were no more of them, is no reason to have none. 0 = it runs already.
        recent: whether a planned load is the most of the last twenty minutes.
    """
    slo, (alone_s, model) = workload.slo, whole
    if slo is None or workload.kind is WorkloadKind.TRAINING_JOB:
        return None
    objective = Objective(latency_s=slo.latency_ms / 1000, quantile=slo.quantile)
    try:
        alone = _measured((named, own), alone_s, model, objective)
        alone = alone or _declared((named, own), alone_s, model, slo.quantile)
        planned = planned_load(workload)
        load = _load(workload, own, replicas)
        if planned is not None:
            cv2 = workload.load.cv2 if workload.load is not None else 1.0
            load = planned.of_each(replicas, cv2=cv2, recent=recent)
        if alone is None or load is None:
            return Unmeasured(text=_lacking(alone is None, load is None, slo.percentile, model))
        found = largest_slowdown(alone.service, load, objective)
        if planned is not None or (starts_at and workload.load is None):
            found = _of_one_of_many(found, starts_at, alone.service, objective)
    except ValueError as error:
        text = f"{error}; correct the WorkloadProfile or spec.load (on {model})"
        return Refusal(reason=Reason.NEED_PROFILE, text=text)
    if alone.kept and load.requests_per_s <= _SAME_LOAD * alone.kept_load_per_s:
        # what was seen comes before what a formula makes of it
        return alone.kept if isinstance(found, Refusal) else max(found, alone.kept)
    if isinstance(found, Refusal):
        return Refusal(reason=found.reason, text=f"{found.text} (on {model})")
    return found


def _of_one_of_many(
    found: float | Refusal, starts_at: float, service: Service, objective: Objective
) -> float | Refusal:
    """The limit of a replica whose load is forecast or measured; more replicas divide it.

    One that runs is slowed by no one where the load is too much for it. One that starts is allowed
    what its own share brings, as far as a request that does not wait keeps the objective.
    """
    if isinstance(found, Refusal):
        if found.reason is not Reason.LOAD_INFEASIBLE:
            return found
        found = 1.0
    if starts_at <= found:
        return found
    return max(found, min(starts_at, objective.latency_s / service.quantile_s))


def _lacking(latency: bool, load: bool, percentile: str, model: str) -> str:
    """What is to be measured, and what could be declared instead."""
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


def _load(workload: WorkloadRecord, own: ProfileRecord | None, replicas: int) -> Load | None:
    """The load of one replica: as declared for all of them, else as measured of one."""
    declared = workload.load
    if declared is not None:
        return replica_load(declared.requests_per_s, max(1, replicas), cv2=declared.cv2)
    seen = own.status.requests_per_s if own is not None else None
    return Load(requests_per_s=seen) if seen else None


Profiles = tuple[ProfileRecord | None, ProfileRecord | None]
"""The one that the workload names, and the one that learns for its class."""


def _measured(
    profiles: Profiles, alone_s: float, model: str, objective: Objective
) -> _Alone | None:
    """From the latency measured at the objective's quantile, at the largest share that has it."""
    for row in _rows_by_worth(profiles, model):
        found = [at for at in row.measured if abs(at[0] - objective.quantile) < _CLOSE]
        if not (found and row.step_s and row.requests_per_s):
            continue
        latency, load = found[0][1], Load(requests_per_s=row.requests_per_s)
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
    """Rows of an accelerator: measured before imported, own before named, large shares first."""
    named, own = profiles
    here = [profile.status.solo for profile in (own, named) if profile is not None]
    imported = [profile.solo for profile in (own, named) if profile is not None]
    for rows in (*here, *imported):
        mine = [row for row in rows if row.device == model]
        yield from sorted(mine, key=lambda row: -row.share)


def _declared(profiles: Profiles, alone_s: float, model: str, quantile: float) -> _Alone | None:
    """From declared times to serve a request that does not wait.

    From the row nearest to the whole device, scaled to the whole by the curve. Of its quantiles
    the next one above the objective's counts, and the highest where none is.
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
