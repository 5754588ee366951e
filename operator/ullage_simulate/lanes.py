# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs that share one device: packing by peaks beside lanes, in virtual time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ullage.engines.lanes.settings import EXACT, IterationPolicy, LaneAim, LaneSettings
from ullage.engines.lanes.simulator import LaneJob, PlayedLanes, play_lanes
from ullage_simulate.progress import Follow

PACKING: Final = "packing"
"""Every job has a lane of its own, so all peaks must fit side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneQuestion:
    """Jobs, a device, and the slowdown of a step by each other running lane."""

    name: str
    jobs: tuple[LaneJob, ...]
    notes: tuple[str, ...]
    memory_mib: int
    slowdown: float
    aim: LaneAim


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaneOutcome:
    """Outcome of the jobs under one policy."""

    policy: str
    played: PlayedLanes

    @property
    def completions_s(self) -> tuple[float, ...]:
        """Completion times in the order of the ends."""
        return tuple(job.completion_s for job in self.played.jobs)

    @property
    def p99_s(self) -> float:
        """The 99th percentile of completion times."""
        return float(np.quantile(self.completions_s, 0.99)) if self.played.jobs else 0.0

    @property
    def end_s(self) -> float:
        """The latest end."""
        return max((job.end_s for job in self.played.jobs), default=0.0)

    @property
    def waits(self) -> float:
        """The mean fraction of their time on the device for which jobs wait for their lane."""
        parts = [job.wait_fraction for job in self.played.jobs]
        return sum(parts) / max(1, len(parts))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaneAnswer:
    """Outcomes, packing first; ``best`` has the least mean completion time."""

    question: LaneQuestion
    outcomes: tuple[LaneOutcome, ...]

    @property
    def best(self) -> LaneOutcome:
        """The best of all ways; ties go to the first."""
        return min(self.outcomes, key=lambda outcome: outcome.played.mean_completion_s)


def answer(question: LaneQuestion, follow: Follow) -> LaneAnswer:
    """Simulate packing and every policy.

    Args:
        question: Inputs.
        follow: Takes name and length of a task; returns its progress callback.

    Raises:
        ValueError: no job fits the device.
    """
    usable = question.memory_mib
    if all(job.demand.persistent_mib + job.demand.ephemeral_mib > usable for job in question.jobs):
        raise ValueError(f"--memory: no job fits a device of {usable} MiB")
    progress = follow(question.name, 1 + len(IterationPolicy))
    alone = [replace(job, demand=replace(job.demand, own_lane=True)) for job in question.jobs]
    ways: list[tuple[str, Sequence[LaneJob], IterationPolicy]] = [
        (PACKING, alone, IterationPolicy.FIFO)
    ]
    ways += [(f"lanes {policy}", question.jobs, policy) for policy in IterationPolicy]
    outcomes = []
    for name, jobs, policy in ways:
        settings = LaneSettings(
            capacity_mib=usable,
            margins=EXACT,
            policy=policy,
            aim=question.aim,
            most_queued=max(1, len(jobs)),
        )
        played = play_lanes(jobs, settings, question.slowdown)
        outcomes.append(LaneOutcome(policy=name, played=played))
        progress(len(outcomes))
    return LaneAnswer(question=question, outcomes=tuple(outcomes))


def to_json(result: LaneAnswer) -> str:
    """Figures of every way."""
    outcomes = [
        {
            "policy": outcome.policy,
            "meanCompletionS": round(outcome.played.mean_completion_s, 3),
            "p99CompletionS": round(outcome.p99_s, 3),
            "endS": round(outcome.end_s, 3),
            "meanResidents": round(outcome.played.residents, 3),
            "meanLanes": round(outcome.played.lanes, 3),
            "meanRunning": round(outcome.played.busy, 3),
            "waitFraction": round(outcome.waits, 4),
            "switches": outcome.played.switches,
            "refused": list(outcome.played.refused),
            "best": outcome is result.best,
        }
        for outcome in result.outcomes
    ]
    asked = result.question
    head = {
        "trace": asked.name,
        "jobs": len(asked.jobs),
        "memoryMiB": asked.memory_mib,
        "slowdown": asked.slowdown,
        "aim": asked.aim,
        "notes": list(asked.notes),
    }
    return json.dumps({**head, "outcomes": outcomes}, indent=2) + "\n"
