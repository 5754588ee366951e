# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Judges a recording: slowdown per tenant and window, objectives kept or not, and their sums.

Pure, and the same for every rule: a job is held to its objective whether or not the rule was told
of it. Slowdown is against the same class alone on a whole device, measured in the same session.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Final

import numpy as np

from bench.mixed_plan import SERVICE, Plan
from bench.mixed_record import Reading, Recording, Request

WINDOW_S: Final = 5.0
WARM_UP_STEPS: Final = 20
PERCENTILE: Final = 99


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One tenant in one window; ``held`` ``None`` = it has no objective, or nothing came."""

    name: str
    begin_s: float
    end_s: float
    slowdown: float
    """At least 1; infinite where no step ended."""
    held: bool | None
    predicted: float = 0.0

    @property
    def goodput_s(self) -> float:
        """Seconds at full speed that the window was worth: nothing if an objective broke."""
        return 0.0 if self.held is False else (self.end_s - self.begin_s) / self.slowdown


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Sums over one recording; ``None`` = there was nothing to sum."""

    rule: str
    attainment: float | None
    """Part of the judged windows that kept their objective."""
    judged_windows: int
    broken_windows: int
    goodput: float
    """Mean number of tenants at full speed whose objective held, over the whole time."""
    finished_jobs: int
    failed_jobs: int
    jobs: int
    work_s: float
    """Work done by training, in seconds alone on a device."""
    wait_mean_s: float
    """From arrival to first step; a job that never began counts until the end."""
    wait_p90_s: float
    never_began: int
    service_p99_ms: float | None
    service_attainment: float | None
    service_wait_s: float
    """From the first arrival to the first request that someone was there for; the whole time if
    the service never began."""
    lost_requests: int
    prediction_error: float | None
    """Median of |predicted - observed| / observed over windows."""
    load_mean: float
    speed_range: float
    """Longest over shortest time of the fixed piece of work, 95th over 5th percentile, on the core
    where it changed most; 1 = steady, 0 = not measured."""


class NoReference(ValueError):
    """A class never ran alone, so its slowdown means nothing; the text names it."""


def unit_s(alone: Recording) -> float:
    """Time of the fixed piece of work in the reference, seconds: median; 0 = not measured."""
    return median([one.unit_s for one in alone.speeds]) if alone.speeds else 0.0


def pace(recording: Recording, first: Reading, last: Reading, reference_unit_s: float) -> float:
    """How many times longer all work takes on a tenant's core in a window than in the reference.

    Args:
        recording: Holds the speeds of the cores.
        first: The tenant at the window's begin.
        last: At its end.
        reference_unit_s: Of the reference; 0 = not measured.

    Returns:
        1 where either was not measured.
    """
    found = [
        one.unit_s
        for one in recording.speeds
        if one.node == last.node and first.at_s <= one.at_s <= last.at_s
    ]
    return median(found) / reference_unit_s if found and reference_unit_s else 1.0


def solo_ns(alone: Recording) -> dict[str, float]:
    """Time of a step of each class alone on a whole device: median over the reference's windows.

    Each is taken to the reference's median speed, if speeds were measured.

    Raises:
        NoReference: a class was never seen.
    """
    classes = {job.name: job.workload_class for job in alone.plan.jobs} | {SERVICE: SERVICE}
    found: dict[str, list[float]] = {workload_class: [] for workload_class in classes.values()}
    unit = unit_s(alone)
    for name, readings in _by_name(alone.readings).items():
        for first, last in pairwise(readings):
            steps = last.steps - first.steps
            if first.pod == last.pod and first.steps >= WARM_UP_STEPS and steps > 0:
                step_ns = (last.busy_ns - first.busy_ns) / steps
                found[classes[name]].append(step_ns / pace(alone, first, last, unit))
    missing = sorted(workload_class for workload_class, times in found.items() if not times)
    if missing:
        raise NoReference(
            f"{', '.join(missing)} was not seen alone on a device; run again on a quieter machine"
        )
    return {workload_class: median(times) for workload_class, times in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """What owners can say of their work after trying it alone on a whole device."""

    steps_per_s: Mapping[str, float]
    """By class; of the service, requests that it answers one after another."""
    p99_s: float
    """Of the service's answers, as the client saw them."""


def seen_alone(alone: Recording, solo: Mapping[str, float]) -> Alone:
    """Every class's figures in the reference.

    Raises:
        NoReference: no request was answered.
    """
    answered = [one.latency_s for one in alone.requests if one.latency_s is not None]
    if not answered:
        raise NoReference("the service answered nothing alone on a device; look at its pod's log")
    return Alone(
        steps_per_s={name: 1e9 / step_ns for name, step_ns in solo.items()},
        p99_s=float(np.percentile(answered, PERCENTILE)),
    )


def windows(
    recording: Recording, solo: Mapping[str, float], reference_unit_s: float = 0.0
) -> list[Window]:
    """Every window of every tenant that was past its warm-up.

    Args:
        recording: As seen under a rule.
        solo: Time of a step alone by class, nanoseconds.
        reference_unit_s: See :func:`pace`; 0 = the machine counts as equally fast throughout.
    """
    jobs = {job.name: job for job in recording.plan.jobs}
    result: list[Window] = []
    for name, readings in sorted(_by_name(recording.readings).items()):
        served = name == SERVICE
        alone_ns = solo[SERVICE if served else jobs[name].workload_class]
        for first, last in pairwise(readings):
            if first.pod != last.pod or last.steps < first.steps or _warming(first, served):
                continue
            slower = pace(recording, first, last, reference_unit_s)
            slowdown = _slowdown(first, last, alone_ns * slower)
            held = (
                _in_time(recording, first.at_s, last.at_s)
                if served
                else _kept(slowdown, jobs[name].max_slowdown)
            )
            if served and held is None:
                continue  # no one asked: the window counts neither way
            result.append(
                Window(
                    name=name,
                    begin_s=first.at_s,
                    end_s=last.at_s,
                    slowdown=slowdown if math.isfinite(slowdown) or not served else 1.0,
                    held=held,
                    predicted=last.predicted,
                )
            )
    return result


def judge(
    recording: Recording, solo: Mapping[str, float], reference_unit_s: float = 0.0
) -> Outcome:
    """All sums of one rule; arguments as of :func:`windows`."""
    seen = windows(recording, solo, reference_unit_s)
    judged = [one for one in seen if one.held is not None]
    broken = sum(one.held is False for one in judged)
    served = [one for one in judged if one.name == SERVICE]
    points = predictions(seen)
    answered = [r.latency_s for r in recording.requests if r.latency_s is not None]
    waits, never = waiting(recording)
    return Outcome(
        rule=recording.rule,
        attainment=1 - broken / len(judged) if judged else None,
        judged_windows=len(judged),
        broken_windows=broken,
        goodput=sum(one.goodput_s for one in seen) / recording.plan.seconds,
        finished_jobs=len(recording.finished_s),
        failed_jobs=len(recording.failed),
        jobs=len(recording.plan.jobs),
        work_s=_work_s(recording, solo),
        wait_mean_s=fmean(waits) if waits else 0.0,
        wait_p90_s=float(np.percentile(waits, 90)) if waits else 0.0,
        never_began=never,
        service_p99_ms=1000 * float(np.percentile(answered, PERCENTILE)) if answered else None,
        service_attainment=(
            sum(one.held is True for one in served) / len(served) if served else None
        ),
        service_wait_s=min(
            (one.due_s for one in recording.requests), default=recording.plan.seconds
        ),
        lost_requests=sum(one.latency_s is None for one in recording.requests),
        prediction_error=median(abs(p - o) / o for p, o in points) if points else None,
        load_mean=fmean(recording.load) if recording.load else 0.0,
        speed_range=_speed_range(recording),
    )


def predictions(seen: Sequence[Window]) -> list[tuple[float, float]]:
    """(predicted, observed) slowdown of every window that has both."""
    return [
        (one.predicted, one.slowdown)
        for one in seen
        if one.predicted > 0 and math.isfinite(one.slowdown)
    ]


def waiting(recording: Recording) -> tuple[list[float], int]:
    """Seconds that each job waited for its first step, and how many never took one."""
    begun: dict[str, float] = {}
    for reading in recording.readings:
        if reading.steps > 0:
            begun.setdefault(reading.name, reading.at_s)
    waits: list[float] = []
    never = 0
    for job in recording.plan.jobs:
        # one that came and went between two looks ended, so it began
        began = begun.get(job.name, recording.finished_s.get(job.name))
        never += began is None
        end = recording.plan.seconds if began is None else began
        waits.append(max(0.0, end - job.at_s))
    return waits, never


def _speed_range(recording: Recording) -> float:
    units: dict[str, list[float]] = {}
    for one in recording.speeds:
        units.setdefault(one.node, []).append(one.unit_s)
    spans = (np.percentile(each, (5, 95)) for each in units.values())
    return max((float(longest / shortest) for shortest, longest in spans), default=0.0)


def _by_name(readings: Sequence[Reading]) -> dict[str, list[Reading]]:
    found: dict[str, list[Reading]] = {}
    for one in readings:
        found.setdefault(one.name, []).append(one)
    return found


def _warming(first: Reading, served: bool) -> bool:
    """A server that was started is warm when it is ready; its requests tell."""
    return not served and first.steps < WARM_UP_STEPS


def _slowdown(first: Reading, last: Reading, alone_ns: float) -> float:
    steps = last.steps - first.steps
    if steps <= 0:
        return math.inf
    return max(1.0, (last.busy_ns - first.busy_ns) / steps / alone_ns)


def _kept(slowdown: float, objective: float | None) -> bool | None:
    return None if objective is None else slowdown <= objective


def _in_time(recording: Recording, begin_s: float, end_s: float) -> bool | None:
    """Whether the percentile of the requests due in a window kept the objective."""
    due = [one for one in recording.requests if begin_s <= one.due_s < end_s]
    if not due:
        return None
    return _percentile_s(due) * 1000 <= recording.plan.service_latency_ms


def _percentile_s(due: Sequence[Request]) -> float:
    """Nearest rank, so that a lost request counts as infinitely late."""
    latencies = sorted(math.inf if r.latency_s is None else r.latency_s for r in due)
    return latencies[math.ceil(PERCENTILE / 100 * len(latencies)) - 1]


def _work_s(recording: Recording, solo: Mapping[str, float]) -> float:
    last = {one.name: one for one in recording.readings}
    return sum(
        _steps_done(recording.plan, job.name, recording, last) * solo[job.workload_class] / 1e9
        for job in recording.plan.jobs
    )


def _steps_done(plan: Plan, name: str, recording: Recording, last: Mapping[str, Reading]) -> int:
    if name in recording.finished_s:
        return next(job.steps for job in plan.jobs if job.name == name)
    return last[name].steps if name in last else 0
