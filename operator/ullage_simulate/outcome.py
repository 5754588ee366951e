# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Outcome of a simulation: figures for tables, scripts and plots.

Definitions: completion time (JCT) from arrival to end; rho = JCT over the time of the same work on
an equal part of the cluster (Themis, NSDI 2020); utilisation = device hours used over device hours
available until the last end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """Outcome of one job; seconds are since the start of the trace.

    Attributes:
        gang: Devices, or the part of one, that it used.
        isolated_s: Time of its work on an equal part of the cluster, at the same load.
        device_s: Device seconds used.
        lost_device_s: Of these, those of lost work.
        stops: Number of preemptions and moves.
        failures: Number of failures of its devices.
    """

    name: str
    kind: str
    gang: float
    arrival_s: float
    start_s: float
    end_s: float
    isolated_s: float
    device_s: float
    lost_device_s: float = 0.0
    stops: int = 0
    failures: int = 0

    @property
    def jct_s(self) -> float:
        """Seconds from arrival to end."""
        return self.end_s - self.arrival_s


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSample:
    """The cluster at one time: devices in use of each type, and waiting jobs."""

    at_s: float
    busy: tuple[float, ...]
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOutcome:
    """Outcome of a policy on a trace.

    Attributes:
        policy: Its name.
        devices: Devices of each type.
        jobs: By end.
        moments: State at every decision.
        held_s: Device seconds in use of each type.
        dollars: Cost of that time.
        decisions: Number of decisions.
        solves: Number of programs solved.
    """

    policy: str
    devices: Mapping[str, int]
    jobs: tuple[JobOutcome, ...]
    moments: tuple[UsageSample, ...] = ()
    held_s: Mapping[str, float] = field(default_factory=dict)
    dollars: float = 0.0
    decisions: int = 0
    solves: int = 0

    @property
    def makespan_s(self) -> float:
        """End of the last job."""
        return max((job.end_s for job in self.jobs), default=0.0)

    @property
    def mean_jct_s(self) -> float:
        """Mean completion time."""
        return sum(job.jct_s for job in self.jobs) / max(len(self.jobs), 1)

    @property
    def stops(self) -> int:
        """Preemptions and moves."""
        return sum(job.stops for job in self.jobs)

    @property
    def failures(self) -> int:
        """Failures of devices that were at work."""
        return sum(job.failures for job in self.jobs)

    @property
    def lost_device_s(self) -> float:
        """Device seconds of lost work."""
        return sum(job.lost_device_s for job in self.jobs)

    @property
    def utilisation(self) -> float:
        """Fraction of the devices' time until the last end in use."""
        whole = sum(self.devices.values()) * self.makespan_s
        return sum(self.held_s.values()) / whole if whole > 0 else 0.0

    def jct_percentile_s(self, percent: float) -> float:
        """A percentile of the completion times."""
        return percentile([job.jct_s for job in self.jobs], percent)

    def rho(self, percent: float) -> float:
        """A percentile of finish-time fairness."""
        ratios = [job.jct_s / job.isolated_s for job in self.jobs if job.isolated_s > 0]
        return percentile(ratios, percent)

    def figures(self) -> dict[str, float | int]:
        """The figures for table and scripts, with units in their names."""
        return {
            "jobs": len(self.jobs),
            "mean_jct_h": self.mean_jct_s / 3600,
            "p50_jct_h": self.jct_percentile_s(50) / 3600,
            "p99_jct_h": self.jct_percentile_s(99) / 3600,
            "makespan_h": self.makespan_s / 3600,
            "utilisation": self.utilisation,
            "rho_p50": self.rho(50),
            "rho_max": self.rho(100),
            "stops": self.stops,
            "failures": self.failures,
            "lost_device_h": self.lost_device_s / 3600,
            "device_h": sum(self.held_s.values()) / 3600,
            "dollars": self.dollars,
            "decisions": self.decisions,
            "solves": self.solves,
        }


def in_devices(outcome: PolicyOutcome, parts: int) -> PolicyOutcome:
    """Convert an outcome counted in parts of devices to devices.

    Args:
        outcome: Outcome of a run on parts.
        parts: Parts per device.
    """
    jobs = (
        replace(
            job,
            gang=job.gang / parts,
            device_s=job.device_s / parts,
            lost_device_s=job.lost_device_s / parts,
        )
        for job in outcome.jobs
    )
    return replace(
        outcome,
        devices={kind: count // parts for kind, count in outcome.devices.items()},
        jobs=tuple(jobs),
        moments=tuple(
            replace(moment, busy=tuple(count / parts for count in moment.busy))
            for moment in outcome.moments
        ),
        held_s={kind: seconds / parts for kind, seconds in outcome.held_s.items()},
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """A percentile with linear interpolation; 0 without values."""
    return float(np.percentile(np.asarray(values, float), percent)) if len(values) else 0.0
