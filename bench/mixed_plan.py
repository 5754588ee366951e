# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Who comes when, with how much work and which objective: one seeded sequence for every rule.

Pure: nothing here knows of a cluster or of a rule, so that no rule can be given easier work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

SERVICE: Final = "serve"
BETWEEN_ARRIVALS_S: Final = 12.0
"""Mean time between two jobs: more work than exclusive devices can do, so a queue forms."""
SOLO_SECONDS: Final = (40.0, 100.0)
"""Least and most length of a job alone on a device."""
FIRST_GAP_S: Final = 5.0
REFERENCE_SECONDS: Final = 25.0
"""Length of the job that shows how fast its class is alone."""
REQUESTS_PER_S: Final = 12.0
SERVICE_LATENCY_MS: Final = 60
CALM_GAP_S: Final = 40.0
CALM_SECONDS: Final = 75.0
STREAM_JOBS, STREAM_REQUESTS = 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class JobClass:
    """A program of ``examples/digits`` and what its owner says of it.

    ``compute_ms`` and ``pause_ms`` size the work; slowdowns are judged by what was measured alone.
    """

    name: str
    hidden: int
    batch: int
    compute_ms: float
    pause_ms: float
    share: tuple[int, int]
    """Least and most percent of a device."""
    max_slowdown: float
    protected: float
    """Part of its jobs that have the objective; the others are best effort."""
    weight: float

    @property
    def duty(self) -> float:
        """Part of the time in which it uses the device when alone, 0 to 1."""
        return self.compute_ms / (self.compute_ms + self.pause_ms)

    def steps(self, solo_s: float) -> int:
        """Steps that take about so long alone."""
        return max(1, round(1000 * solo_s / (self.compute_ms + self.pause_ms)))


CLASSES: Final[Mapping[str, JobClass]] = MappingProxyType(
    {
        one.name: one
        for one in (
            JobClass(
                name="dense", hidden=512, batch=512, compute_ms=4.3, pause_ms=0.0,
                share=(40, 100), max_slowdown=2.5, protected=0.5, weight=0.3,
            ),
            JobClass(
                name="input", hidden=512, batch=512, compute_ms=4.3, pause_ms=5.0,
                share=(45, 60), max_slowdown=1.8, protected=0.6, weight=0.35,
            ),
            JobClass(
                name="light", hidden=256, batch=512, compute_ms=1.8, pause_ms=8.0,
                share=(20, 30), max_slowdown=1.6, protected=0.6, weight=0.35,
            ),
        )
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One training job; ``max_slowdown`` ``None`` = best effort."""

    at_s: float
    name: str
    workload_class: str
    steps: int
    max_slowdown: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that comes within ``seconds``, and when each request is due."""

    seed: int
    seconds: float
    jobs: tuple[Arrival, ...]
    requests_s: tuple[float, ...]
    service_latency_ms: int = SERVICE_LATENCY_MS


def mixed(seed: int, seconds: float) -> Plan:
    """Jobs of every class first, then at random times; requests at random times throughout.

    Raises:
        ValueError: no time in which anything could come.
    """
    if seconds <= 0:
        raise ValueError(f"{seconds:g} seconds of arrivals: give more than 0")
    random = np.random.default_rng((seed, STREAM_JOBS))
    names = sorted(CLASSES)
    weights = np.array([CLASSES[name].weight for name in names])
    jobs: list[Arrival] = []
    at_s = 0.0
    while at_s < seconds:
        number = len(jobs)
        first = number < len(names)
        drawn = names[int(random.choice(len(names), p=weights / weights.sum()))]
        workload_class = CLASSES[names[number] if first else drawn]
        asks = bool(random.random() < workload_class.protected)
        jobs.append(
            Arrival(
                at_s=round(at_s, 3),
                name=f"{workload_class.name}-{number:03d}",
                workload_class=workload_class.name,
                steps=workload_class.steps(float(random.uniform(*SOLO_SECONDS))),
                max_slowdown=workload_class.max_slowdown if asks else None,
            )
        )
        pause_s = float(random.exponential(BETWEEN_ARRIVALS_S))
        at_s += FIRST_GAP_S if len(jobs) < len(names) else pause_s
    return Plan(seed=seed, seconds=seconds, jobs=tuple(jobs), requests_s=_requests(seed, seconds))


def calm(seed: int, seconds: float) -> Plan:
    """Days before: the same classes in turn, few at a time, so that steady windows occur.

    Raises:
        ValueError: no time in which anything could come.
    """
    if seconds <= 0:
        raise ValueError(f"{seconds:g} seconds of history: give more than 0")
    names = sorted(CLASSES)
    jobs = tuple(
        Arrival(
            at_s=number * CALM_GAP_S,
            name=f"{workload_class.name}-{number:03d}",
            workload_class=workload_class.name,
            steps=workload_class.steps(CALM_SECONDS),
            max_slowdown=None,
        )
        for number in range(int(seconds / CALM_GAP_S) + 1)
        for workload_class in (CLASSES[names[(number + number // len(names)) % len(names)]],)
    )
    requests_s = _requests(seed, seconds)
    return Plan(seed=seed, seconds=seconds, jobs=jobs, requests_s=requests_s)


def reference() -> Plan:
    """One short job of each class, to be run alone on a whole device, beside a served one."""
    jobs = tuple(
        Arrival(
            at_s=0.0,
            name=f"{workload_class.name}-alone",
            workload_class=workload_class.name,
            steps=workload_class.steps(REFERENCE_SECONDS),
            max_slowdown=None,
        )
        for _, workload_class in sorted(CLASSES.items())
    )
    seconds = 2.0 * REFERENCE_SECONDS * len(jobs)
    return Plan(seed=0, seconds=seconds, jobs=jobs, requests_s=_requests(0, seconds))


def _requests(seed: int, seconds: float) -> tuple[float, ...]:
    """Poisson arrivals at the service's rate, seconds from the start."""
    random = np.random.default_rng((seed, STREAM_REQUESTS))
    count = int(2 * REQUESTS_PER_S * seconds) + 20
    due = np.cumsum(random.exponential(1.0 / REQUESTS_PER_S, count))
    return tuple(float(one) for one in due[due < seconds].round(4))
