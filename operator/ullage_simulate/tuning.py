# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""End of a group of trials by their widths: planners compared in virtual time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from ullage.engines.tuning.baselines import first_come, longest_first, static, static_sizes
from ullage.engines.tuning.bounds import fluid_bound_s, lower_bound_s
from ullage.engines.tuning.planner import plan
from ullage.engines.tuning.records import PlannedTrial, Planner, PlanRules, TrialDevice
from ullage.engines.tuning.simulator import PlayedTrials, TrialFacts, play
from ullage.engines.tuning.speed_curves import SpeedCurve, Widths, speed_curve
from ullage_simulate.progress import Follow
from ullage_simulate.table import TableRow, opened, rows
from ullage_simulate.times import TRIAL_MEDIAN_S
from ullage_simulate.trace import JobTraceError

SYNTHETIC: Final = "synthetic"
TRIALS: Final = 81
SIGMA: Final = 0.8
BELOW: Final = 0.6
ABOVE: Final = 0.85
"""Speeds of drawn trials: powers of the width below 1 device, and above."""
MOST_TRIALS: Final = 10_000
PER_NODE: Final = 8
HOUR: Final = 3600.0
OURS: Final = "planned"


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningQuestion:
    """Trials, with names, on a pool of equal devices."""

    name: str
    facts: tuple[TrialFacts, ...]
    names: tuple[str, ...]
    devices: int
    rules: PlanRules

    @property
    def waiting(self) -> list[PlannedTrial]:
        """The trials as a planner sees them before any of them runs."""
        return [
            PlannedTrial(
                number=trial.number, work_s=trial.epoch_s * trial.epochs, curve=trial.curve
            )
            for trial in self.facts
        ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TuningOutcome:
    """Outcome of the trials under one planner."""

    planner: str
    played: PlayedTrials
    useful: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TuningAnswer:
    """Outcomes by planner; no schedule ends before ``bound_s`` nor before ``fluid_s``."""

    question: TuningQuestion
    outcomes: tuple[TuningOutcome, ...]
    bound_s: float
    fluid_s: float


def powers(widths: Widths) -> SpeedCurve:
    """The speeds of drawn trials.

    Source: the shape of measured training and of shared devices, rounded.
    """
    return SpeedCurve(speeds=tuple(w**BELOW if w < 1 else w**ABOVE for w in widths.widths))


def drawn(count: int, seed: int, widths: Widths, resize_cost_s: float) -> tuple[TrialFacts, ...]:
    """Trials with log-normal work.

    Args:
        count: Number of trials.
        seed: Seed of the work.
        widths: Allowed widths.
        resize_cost_s: Of each, seconds.
    """
    works = TRIAL_MEDIAN_S * np.random.default_rng(seed).lognormal(0.0, SIGMA, count)
    return tuple(
        TrialFacts(number=at, epoch_s=work, curve=powers(widths), resize_cost_s=resize_cost_s)
        for at, work in enumerate(works.tolist())
    )


def read_trials(
    path: Path, widths: Widths, resize_cost_s: float
) -> tuple[tuple[TrialFacts, ...], tuple[str, ...]]:
    """Trials of a table, and their names.

    Args:
        path: Has the column ``work_s``, and optionally ``name``, ``arrival_s``, ``checkpoint``,
            ``memory_percent``, ``restart_s`` and speeds as ``speed_1/4``.
        widths: Allowed widths.
        resize_cost_s: Default of ``restart_s``, seconds.

    Raises:
        TraceError: it cannot be read, or has another form; the text names line and column.
    """
    facts: list[TrialFacts] = []
    names: list[str] = []
    for row in rows(str(path), opened(path)):
        facts.append(_trial(len(facts), row, widths, resize_cost_s))
        names.append(row.text("name") or f"trial {len(facts)}")
        if len(facts) > MOST_TRIALS:
            raise JobTraceError(f"{path}: more than {MOST_TRIALS:,} trials: take a part of it")
    if not facts:
        raise JobTraceError(f"{path}: there are no trials")
    return tuple(facts), tuple(names)


def _trial(number: int, row: TableRow, widths: Widths, resize_cost_s: float) -> TrialFacts:
    work_s = row.number("work_s", "seconds on one device, as 600")
    memory = row.number("memory_percent", "percent of a device's memory, as 30", default=0.0)
    if memory > 100:
        raise row.wrong("memory_percent", "is more than a device has: write 0 to 100")
    if work_s == 0:
        raise row.wrong("work_s", "is no work: write seconds on one device, as 600")
    return TrialFacts(
        number=number,
        epoch_s=work_s,
        curve=_speeds(row, widths),
        arrival_s=row.number("arrival_s", "seconds, as 12.5", default=0.0),
        checkpoints=_flag(row, "checkpoint"),
        resize_cost_s=row.number("restart_s", "seconds, as 30", default=resize_cost_s),
        memory_part=memory / 100,
    )


def _flag(row: TableRow, column: str) -> bool:
    text = row.text(column).lower()
    if text not in {"", "true", "false", "yes", "no", "1", "0"}:
        raise row.wrong(column, "is neither true nor false")
    return text not in {"false", "no", "0"}


def _speeds(row: TableRow, widths: Widths) -> SpeedCurve:
    """Speeds of the line, else those of drawn trials.

    Unlike the planner's view of them, given speeds are kept unchanged.
    """
    measured = {1.0: 1.0}
    for label, width in zip(labels(widths), widths.widths, strict=True):
        column = f"speed_{label}"
        if width != 1 and row.text(column):
            measured[width] = row.number(column, "of the speed on one device, as 0.6", least=1e-6)
    if len(measured) == 1:
        return powers(widths)
    ceiling = np.minimum.accumulate([measured.get(w, np.inf) for w in reversed(widths.widths)])
    speeds = np.minimum(speed_curve(widths, measured).speeds, ceiling[::-1])
    return SpeedCurve(speeds=tuple(np.maximum.accumulate(speeds).tolist()))


def labels(widths: Widths) -> list[str]:
    """Human-readable widths: 1/4, 1/2, 1, 2."""
    return [f"{w:g}" if w >= 1 else f"1/{round(1 / w)}" for w in widths.widths]


def pool(count: int) -> tuple[TrialDevice, ...]:
    """Equal devices, eight per node."""
    return tuple(TrialDevice(number=at, node=f"node-{at // PER_NODE}") for at in range(count))


def planners(question: TuningQuestion) -> Mapping[str, Planner]:
    """Ours and the baselines, in the order of the table."""
    works = [trial.work_s for trial in question.waiting]
    sizes = static_sizes(works, question.devices, question.rules.widths)
    return {"fifo": first_come, "longest": longest_first, "static": static(sizes), OURS: plan}


def answer(question: TuningQuestion, follow: Follow) -> TuningAnswer:
    """Simulate the trials with every planner.

    Args:
        question: Inputs.
        follow: Takes name and length of a task; returns its progress callback.
    """
    widths, devices = question.rules.widths, pool(question.devices)
    chosen = planners(question)
    progress = follow(question.name, len(chosen))
    outcomes: list[TuningOutcome] = []
    for name, planner in chosen.items():
        played = play(question.facts, planner, question.rules, devices)
        useful = played.useful_fraction(question.devices, widths.parts)
        outcomes.append(TuningOutcome(planner=name, played=played, useful=useful))
        progress(len(outcomes))
    return TuningAnswer(
        question=question,
        outcomes=tuple(outcomes),
        bound_s=lower_bound_s(question.waiting, question.devices, widths),
        fluid_s=fluid_bound_s(question.waiting, question.devices, widths),
    )


def to_json(result: TuningAnswer) -> str:
    """Figures of every planner."""
    head = {
        "trials": len(result.question.facts),
        "devices": result.question.devices,
        "lowerBoundSeconds": round(result.bound_s, 3),
        "fluidBoundSeconds": round(result.fluid_s, 3),
    }
    outcomes = [
        {
            "planner": outcome.planner,
            "makespanSeconds": round(outcome.played.makespan_s, 3),
            "resizes": outcome.played.resizes,
            "useful": round(outcome.useful, 4),
            "trials": [
                {"name": result.question.names[number], "endSeconds": round(end_s, 3)}
                for number, end_s in sorted(outcome.played.ends_s.items())
            ],
        }
        for outcome in result.outcomes
    ]
    return json.dumps({**head, "outcomes": outcomes}, indent=2) + "\n"


def in_use(played: PlayedTrials, parts: int) -> tuple[Sequence[float], Sequence[float]]:
    """Hours, and the number of devices in use by trials from then on."""
    changes: dict[float, float] = {0.0: 0.0}
    for segment in played.segments:
        changes[segment.start_s] = changes.get(segment.start_s, 0.0) + segment.size / parts
        changes[segment.end_s] = changes.get(segment.end_s, 0.0) - segment.size / parts
    times = sorted(changes)
    held = np.cumsum([changes[at] for at in times])
    return [at / HOUR for at in times], held.tolist()
