# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One row from one steady stretch of one tenant.

Pure. Means are exact: differences of counters over the stretch. Counters of a device are attributed
to the tenant only if it was alone all the time.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Final

from ullage.api.observations import Fingerprint, Observation, ObservedPartner
from ullage_node.model.samples import Samples, fingerprint_of, permille
from ullage_node.model.slices import class_seen_from
from ullage_node.telemetry.histograms import LatencyHistogram, quantile
from ullage_node.telemetry.tenants import RunningTenant
from ullage_node.telemetry.windows import HistogramPage

STEPS_MIN: Final = 3
"""Minimum of finished steps or requests for a row."""
PAGES_SECONDS_MIN: Final = 10.0
"""Minimum time between the two pages of a stretch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterReading:
    """The counters of one container at one time, CLOCK_MONOTONIC seconds."""

    at_s: float
    steps: int
    busy_ns: int
    last_step_ns: int
    cpu_ns: int
    solo_ns: int

    @classmethod
    def of(cls, tenant: RunningTenant, now: float) -> CounterReading:
        """The current counters of a tenant."""
        made, seen = tenant.progress, tenant.attachment
        return cls(
            at_s=now,
            steps=made.steps,
            busy_ns=made.busy_ns,
            last_step_ns=made.last_step_ns,
            cpu_ns=seen.cpu_time_ns,
            solo_ns=seen.solo_time_ns,
        )

    def restarted_by(self, later: CounterReading) -> bool:
        """True if the container restarted between the two."""
        return (
            later.steps < self.steps
            or later.busy_ns < self.busy_ns
            or 0 < later.cpu_ns < self.cpu_ns
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A tenant's steady stretch and its neighbours; ``first`` to ``last`` are whole steps."""

    tenant: RunningTenant
    others: tuple[RunningTenant, ...]
    accelerator: str
    since: float
    now: float
    at_s: int
    image: str
    peak_mib: int
    first: CounterReading | None
    last: CounterReading | None
    pages: tuple[HistogramPage, HistogramPage] | None


class RowMaker:
    """Makes rows; the node's name is part of their identity."""

    def __init__(self, node: str, samples: Samples) -> None:
        self._node = node
        self._samples = samples

    def row(self, stretch: Stretch) -> Observation | None:
        """The row of a stretch; ``None`` = too few finished steps or requests."""
        served = _served(stretch)
        step_micros = _step_micros(stretch) or (served.mean_micros() if served else 0)
        if step_micros < 1:
            return None
        part, objective = stretch.tenant.desired, stretch.tenant.objective
        row = Observation(
            id=self._identity(stretch),
            workload_class=part.workload_class,
            namespace=part.pod_namespace,
            accelerator=stretch.accelerator,
            percent=part.percent,
            step_micros=step_micros,
            at_s=stretch.at_s,
            family=part.family,
            partners=_partners(stretch.others, part.pod_namespace),
            solo_step_micros=objective.solo_step_micros,
            max_slowdown_percent=part.max_slowdown_percent,
            image=stretch.image,
            probation=part.probation,
            violated=objective.slo is None and 0 < objective.limit_micros < step_micros,
            fingerprint=None if stretch.others else self._fingerprint(stretch),
        )
        return _with_load(row, stretch, served) if served else row

    def _fingerprint(self, stretch: Stretch) -> Fingerprint:
        """The tenant's demand on the device, alone on it; emulated: its CPU time."""
        samples = self._samples.between(stretch.tenant.gpu, stretch.since, stretch.now)
        made = fingerprint_of(samples) or Fingerprint()
        return replace(
            made,
            sm_permille=made.sm_permille or _solo_permille(stretch),
            duty_permille=_duty_permille(stretch),
            cpu_permille=_cpu_permille(stretch),
            peak_memory_mib=stretch.peak_mib,
        )

    def _identity(self, stretch: Stretch) -> str:
        text = f"{self._node}/{stretch.tenant.key.directory}/{stretch.tenant.gpu}/{stretch.at_s}"
        return f"steady-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _with_load(row: Observation, stretch: Stretch, served: LatencyHistogram) -> Observation:
    """The row of a server: its load, and its latency at the objective's percentile."""
    assert stretch.pages is not None
    first, last = stretch.pages
    row = replace(row, requests_milli=round(served.requests / (last.at_s - first.at_s) * 1000))
    slo = stretch.tenant.objective.slo
    latency = quantile(served, slo.quantile) if slo else None
    if slo is None or latency is None:
        return row
    limit = slo.latency_ms * 1000
    # A value above the last finite bound violates only if that bound is not below the objective.
    above = latency.micros > limit or (latency.floor and latency.micros >= limit)
    return replace(row, latency_micros=latency.micros, percentile=slo.percentile, violated=above)


def _served(stretch: Stretch) -> LatencyHistogram | None:
    """Counts of the server's histogram; ``None`` = none, or too few."""
    if stretch.pages is None:
        return None
    first, last = stretch.pages
    made = last.histogram.since(first.histogram)
    long_enough = last.at_s - first.at_s >= PAGES_SECONDS_MIN
    return made if made and made.count >= STEPS_MIN and long_enough else None


def _step_micros(stretch: Stretch) -> int:
    """Mean step of the stretch; 0 = too few steps, or not in the record."""
    first, last = stretch.first, stretch.last
    if first is None or last is None or last.steps - first.steps < STEPS_MIN:
        return 0
    # Without a sum of step times use the clock.
    busy_ns = last.busy_ns - first.busy_ns if last.busy_ns else 0
    spent_ns = busy_ns or last.last_step_ns - first.last_step_ns
    return spent_ns // (last.steps - first.steps) // 1000


def _partners(others: tuple[RunningTenant, ...], namespace: str) -> tuple[ObservedPartner, ...]:
    """Its neighbours; a class of another namespace has it as prefix."""
    partners = (
        ObservedPartner(
            workload_class=class_seen_from(
                namespace, other.desired.pod_namespace, other.desired.workload_class
            ),
            percent=other.desired.percent,
        )
        for other in others
    )
    return tuple(
        sorted(
            partners,
            key=lambda observed_partner: (
                observed_partner.workload_class,
                observed_partner.percent,
            ),
        )
    )


def _solo_permille(stretch: Stretch) -> int:
    """Fraction of the whole device that the work would fill (emulated), ``derived``."""
    first, last = stretch.first, stretch.last
    if first is None or last is None or not first.solo_ns or last.at_s <= first.at_s:
        return 0
    return permille((last.solo_ns - first.solo_ns) / ((last.at_s - first.at_s) * 1e9))


def _cpu_permille(stretch: Stretch) -> int:
    first, last = stretch.first, stretch.last
    if first is None or last is None or not first.cpu_ns or last.at_s <= first.at_s:
        return 0
    return permille((last.cpu_ns - first.cpu_ns) / ((last.at_s - first.at_s) * 1e9))


def _duty_permille(stretch: Stretch) -> int:
    """Fraction of the time in which a step was under way."""
    first, last = stretch.first, stretch.last
    if first is None or last is None or last.busy_ns <= first.busy_ns or last.at_s <= first.at_s:
        return 0
    return min(1000, permille((last.busy_ns - first.busy_ns) / ((last.at_s - first.at_s) * 1e9)))
