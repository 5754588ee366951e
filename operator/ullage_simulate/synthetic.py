# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Generates traces from a seed: durations, gangs and arrivals as the published generator draws.

Durations 60 * 10^U(1.5, 3) s (80 of 100 jobs) or 60 * 10^U(3, 4) s; gangs 1, 2, 4, 8 in 70, 10, 15
and 5 of 100; Poisson arrivals. Source: Gavel (OSDI 2020), its public generator.
"""

from __future__ import annotations

import random
from typing import Final

from ullage_simulate.speeds import SpeedTable
from ullage_simulate.times import SYNTHETIC_DEVICE_S
from ullage_simulate.trace import Fleet, JobTrace, JobTraceError, TraceJob, in_order

_GANGS: Final = (1, 2, 4, 8)
_GANG_WEIGHTS: Final = (70, 10, 15, 5)


def generate(
    count: int, gap_s: float, table: SpeedTable, *, seed: int = 0, scale: float = 1.0
) -> JobTrace:
    """Draw a trace.

    Args:
        count: Jobs.
        gap_s: Mean seconds between two arrivals; 0 = all of them at the start.
        table: Kinds of work and their speeds.
        seed: Seed of the draws.
        scale: Factor of every duration.

    Raises:
        TraceError: the table has no kind for a gang of the distribution.
    """
    if count < 1 or gap_s < 0 or scale <= 0:
        raise JobTraceError("a synthetic trace has jobs, a gap of 0 s or more and a scale above 0")
    chance = random.Random(seed)
    kinds = {gang: table.kinds(gang) for gang in _GANGS}
    gangs = [gang for gang in _GANGS if kinds[gang]]
    if not gangs:
        raise JobTraceError(f"{table.name}: no kind of work runs on every type")
    weights = [_GANG_WEIGHTS[_GANGS.index(gang)] for gang in gangs]
    reference = reference_type(table)
    jobs, now = [], 0.0
    for number in range(count):
        (gang,) = chance.choices(gangs, weights)
        kind = chance.choice(kinds[gang])
        power = chance.uniform(1.5, 3.0) if chance.random() < 0.8 else chance.uniform(3.0, 4.0)
        speeds = table.alone[kind, gang]
        jobs.append(
            TraceJob(
                name=f"{number:06d}",
                gang=gang,
                steps=max(1, round(60 * 10**power * scale * speeds[reference])),
                arrival_s=now,
                speeds=speeds,
                kind=kind,
            )
        )
        now += chance.expovariate(1 / gap_s) if gap_s > 0 else 0.0
    note = f"durations are those on {reference}, a job arrives every {gap_s:g} s on average."
    return in_order(f"synthetic, seed {seed}", jobs, (note,))


def gap_for(load: float, fleet: Fleet, table: SpeedTable, *, scale: float = 1.0) -> float:
    """Mean seconds between arrivals at this fraction of the cluster's capacity.

    A device counts by the mean of its speeds relative to the reference type.
    """
    if not load > 0:
        raise JobTraceError(f"a load is above 0, not {load:g}")
    reference, ones = reference_type(table), table.kinds(1)
    worth = 0.0
    for kind, size in fleet.devices.items():
        parts = [
            table.alone[name, 1].get(kind, 0.0) / table.alone[name, 1][reference] for name in ones
        ]
        worth += size * sum(parts) / max(len(parts), 1)
    if worth <= 0:
        raise JobTraceError(
            f"{table.name}: nothing is known of speeds on {', '.join(fleet.devices)}"
        )
    return SYNTHETIC_DEVICE_S * scale / (load * worth)


def reference_type(table: SpeedTable) -> str:
    """The type on which most kinds are fastest: that of a duration without a type.

    Ties go to the first by name.
    """
    wins = dict.fromkeys(table.types, 0)
    for row in table.alone.values():
        best = max(row.values())
        for kind, speed in row.items():
            wins[kind] += best > 0 and speed == best
    return max(sorted(wins), key=wins.__getitem__)
