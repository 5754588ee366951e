# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The round mechanism of the published simulator, kept to compare with its published figures.

Fractions are renewed at most every 1920 s and a newcomer waits for that; gangs are skipped, not
served. The operator never runs this: rounds.py does what is wanted, this does what was measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ullage.engines.allocation.model import Allocation

ROUND_S: Final = 360.0
RESET_S: Final = 1920.0
_NEVER_RAN: Final = 1e9


@dataclass(slots=True)
class CompatCounters:
    """Counters of the published mechanism, for one cluster.

    Attributes:
        types: In the order in which devices are given out.
        received_s: Per job and type, seeded with half a round.
        busy_s: Per type since the last reset.
        deficit_s: Per job and type.
        last_reset_s: When the fractions were renewed; 0 = at once.
    """

    types: Sequence[str]
    received_s: dict[str, dict[str, float]] = field(default_factory=dict)
    busy_s: dict[str, float] = field(default_factory=dict)
    deficit_s: dict[str, dict[str, float]] = field(default_factory=dict)
    last_reset_s: float = 0.0

    def add(self, job: str) -> None:
        """A job arrived; it enters the types' totals with the next reset."""
        self.received_s[job] = dict.fromkeys(self.types, ROUND_S / 2)
        self.deficit_s[job] = dict.fromkeys(self.types, 0.0)

    def remove(self, job: str) -> None:
        """A job left; the time it used stays in the total until the next reset."""
        del self.received_s[job], self.deficit_s[job]

    def book(self, job: str, kind: str, seconds: float) -> None:
        """A job ran.

        Args:
            job: Name of the job.
            kind: Type it ran on.
            seconds: How long it ran.
        """
        self.received_s[job][kind] += seconds
        self.busy_s[kind] = self.busy_s.get(kind, 0.0) + seconds

    def due(self, now: float) -> bool:
        """Whether the fractions may be renewed."""
        return self.last_reset_s == 0 or now - self.last_reset_s >= RESET_S

    def reset(self, allocation: Mapping[str, Mapping[str, float]], now: float) -> None:
        """Book deficits against the fractions that were in force and start counting again.

        Args:
            allocation: Fraction of time by job and type, as it was in force.
            now: Seconds on the clock of ``last_reset_s``.
        """
        elapsed = now - self.last_reset_s
        for kind in self.types:
            self.busy_s[kind] = 0.0
            for job, received in self.received_s.items():
                had = received[kind] - ROUND_S / 2
                self.deficit_s[job][kind] += allocation.get(job, {}).get(kind, 0.0) * elapsed - had
                received[kind] = ROUND_S / 2
                self.busy_s[kind] += ROUND_S / 2
        self.last_reset_s = now


def fractions_of(allocation: Allocation) -> dict[str, dict[str, float]]:
    """Fractions by job and type."""
    return {
        name: dict(zip(allocation.types, row.tolist(), strict=True))
        for name, row in zip(allocation.jobs, allocation.fractions, strict=True)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class CompatJob:
    """Gang and speeds of an active job."""

    name: str
    gang: int
    speeds: Mapping[str, float]


def compat_round(
    counters: CompatCounters,
    fractions: Mapping[str, Mapping[str, float]],
    free: Mapping[str, int],
    jobs: Sequence[CompatJob],
    *,
    only_promised: bool = False,
) -> dict[str, str]:
    """Who runs on which type in the next round.

    Args:
        counters: Received time; read only.
        fractions: Of time, by job and type; a job that is not in it gets no devices.
        free: Devices of each type.
        jobs: Active jobs in order of arrival.
        only_promised: Devices without a claim stay idle (the FIFO policies).

    Returns:
        Type by job; jobs that do not run are not in it.
    """
    left = dict(free)
    placed: dict[str, str] = {}
    for kind in counters.types:
        keys = [
            (
                _priority(counters, fractions, job, kind),
                counters.deficit_s[job.name][kind],
                fractions.get(job.name, {}).get(kind, 0.0),
            )
            for job in jobs
        ]
        for index in sorted(range(len(jobs)), key=keys.__getitem__, reverse=True):
            job = jobs[index]
            if job.name in placed or job.name not in fractions or job.speeds[kind] <= 0:
                continue
            if (only_promised and keys[index][0] <= 0) or job.gang > left[kind]:
                continue
            placed[job.name] = kind
            left[kind] -= job.gang
    return placed


def _priority(
    counters: CompatCounters,
    fractions: Mapping[str, Mapping[str, float]],
    job: CompatJob,
    kind: str,
) -> float:
    share = fractions.get(job.name, {}).get(kind, 0.0)
    if share == 0 or job.speeds[kind] <= 0:
        return 0.0
    had, busy = counters.received_s[job.name][kind], counters.busy_s.get(kind, 0.0)
    return share * busy / had if had > 0 and busy > 0 else share * _NEVER_RAN
