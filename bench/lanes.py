# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Lanes in virtual time: safety under random events, residents, completion times, fairness.

Residents are compared with packing by sums of peaks and with one lane of a clairvoyant, where
jobs wait all the time; steps that can run side by side stand beside them. Completion times are
those of FIFO over SRTF on one lane, for the same jobs. Switches and the cost of the runtime are
measured elsewhere: they need processes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench import report
from bench.lanes_events import RandomEvents
from bench.lanes_residents import (
    Device,
    LaneDevice,
    Occupied,
    RuleDevice,
    occupy,
    packing,
    single_lane,
)
from bench.lanes_switch import jain
from bench.progress import Progress
from ullage.engines.lanes.records import JobDemand
from ullage.engines.lanes.settings import EXACT, IterationPolicy, LaneAim, LaneSettings
from ullage.engines.lanes.simulator import LaneJob, LaneSimulator, PlayedLanes, play_lanes
from ullage_simulate.table import opened, rows

EVENTS: Final = 1_000_000
PER_RUN: Final = 2_000
SEEDS: Final = 20
JOBS: Final = 100
SIGMA: Final = 1.5
MOST_STEPS: Final = 30
LOADS: Final = (0.0, 1.0)
"""Of a lane by arrivals; 0 = all jobs come at once."""
MIB: Final = 1000
"""Of a GB, as tables round them."""
PERSISTENT_PART: Final = (0.05, 0.25)
"""Of a measured peak, drawn: the table has peaks alone."""
FAIR_JOBS: Final = 8
FAIR_STEPS: Final = 200
BARS: Final[report.Bars] = {
    "unsafe": lambda found: found == 0,
    "unserved": lambda found: found == 0,
    "residents_vs_packing": lambda found: found >= 1.5,
    "residents_vs_clairvoyant": lambda found: found >= 0.7,
    "srtf_vs_fifo": lambda found: found >= 3,
    "jain": lambda found: found >= 0.95,
}
Floats = NDArray[np.float64]
Rng = np.random.Generator
Draw = Callable[[Rng, int], list[JobDemand]]


def demands(persistent: Floats, ephemeral: Floats) -> list[JobDemand]:
    """Jobs of so much memory each, MiB."""
    return [
        JobDemand(
            name=f"job-{at}", persistent_mib=int(persistent[at]), ephemeral_mib=int(ephemeral[at])
        )
        for at in range(persistent.size)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A device, and what its jobs need."""

    name: str
    capacity_mib: int
    draw: Draw


def uniform(persistent: tuple[float, float], ephemeral: tuple[float, float]) -> Draw:
    """P and E from ranges in GB."""
    return lambda rng, count: demands(
        rng.uniform(*persistent, count) * MIB, rng.uniform(*ephemeral, count) * MIB
    )


def measured(peaks_mib: Floats) -> Draw:
    """Peaks of a table; the part that persists is drawn."""

    def draw(rng: Rng, count: int) -> list[JobDemand]:
        peaks = rng.choice(peaks_mib, count)
        persistent = peaks * rng.uniform(*PERSISTENT_PART, count)
        return demands(persistent, peaks - persistent)

    return draw


def memories(data: Path) -> list[Memory]:
    """Devices of 16 and 80 GB with drawn jobs, and of 16 GB with measured ones."""
    found = [
        Memory(name="16 GB", capacity_mib=16 * MIB, draw=uniform((0.05, 0.6), (1.0, 10.0))),
        Memory(name="80 GB", capacity_mib=80 * MIB, draw=uniform((0.5, 12.0), (4.0, 40.0))),
    ]
    file = data / "interference" / "salus_solo_workloads.csv"
    if not file.is_file():
        print(f"skipped: measured peaks; {file} is not there", file=sys.stderr)
        return found
    peaks = np.array([row.number("memory_mb", "MB") for row in rows(file.name, opened(file))])
    draw = measured(peaks[peaks < 16 * MIB])
    return [*found, Memory(name="16 GB, measured peaks", capacity_mib=16 * MIB, draw=draw)]


def occupied(memory: Memory, seed: int) -> dict[str, Occupied]:
    """The same jobs by each rule."""
    rng = np.random.default_rng(seed)
    jobs = memory.draw(rng, JOBS)
    stays = rng.exponential(1.0, JOBS).tolist()
    usable = memory.capacity_mib
    exact = LaneSettings(capacity_mib=usable, margins=EXACT)
    throughput = LaneSettings(capacity_mib=usable, margins=EXACT, aim=LaneAim.THROUGHPUT)
    rules_only = LaneSettings(capacity_mib=usable, margins=EXACT, aim=LaneAim.RULES_ALONE)
    devices: dict[str, Device] = {
        "lanes": LaneDevice(settings=exact),
        "lanes for throughput": LaneDevice(settings=throughput),
        "lanes without merging": LaneDevice(settings=rules_only),
        "packing": RuleDevice(usable_mib=usable, fits=packing),
        "clairvoyant": RuleDevice(usable_mib=usable, fits=single_lane),
    }
    return {name: occupy(jobs, stays, device) for name, device in devices.items()}


def residents(memory: Memory) -> dict[str, tuple[float, float]]:
    """Mean residents, and mean steps side by side, by rule."""
    found = [occupied(memory, seed) for seed in range(SEEDS)]
    return {
        name: (
            float(np.mean([one[name].residents for one in found])),
            float(np.mean([one[name].parallel for one in found])),
        )
        for name in found[0]
    }


def durations(data: Path) -> dict[str, Callable[[Rng], Floats]]:
    """How long jobs run: log-normal, and those of one device in a public trace."""
    found: dict[str, Callable[[Rng], Floats]] = {
        "log-normal": lambda rng: rng.lognormal(4.0, SIGMA, JOBS)
    }
    file = data / "cluster_traces" / "philly_jobs.csv.gz"
    if not file.is_file():
        print(f"skipped: Philly's durations; {file} is not there", file=sys.stderr)
        return found
    public = np.array(
        [
            row.number("duration_s", "seconds")
            for row in rows(file.name, opened(file))
            if row.text("num_gpus") == "1"
        ]
    )
    return {**found, "Philly": lambda rng: rng.choice(public, JOBS)}


def one_lane(lasts_s: Floats, load: float, rng: Rng) -> list[LaneJob]:
    """Jobs that share one lane, which they load by so much."""
    arrivals = np.zeros(JOBS)
    if load:
        arrivals = np.cumsum(rng.exponential(float(lasts_s.mean()) / load, JOBS))
    jobs = []
    for at, (length, arrival) in enumerate(zip(lasts_s.tolist(), arrivals.tolist(), strict=True)):
        steps = max(1, min(MOST_STEPS, int(length)))
        demand = JobDemand(name=f"job-{at}", persistent_mib=50, ephemeral_mib=9_000, total_s=length)
        jobs.append(LaneJob(demand=demand, arrival_s=arrival, steps=steps, step_s=length / steps))
    return jobs


def completions(draw: Callable[[Rng], Floats], load: float) -> dict[IterationPolicy, Floats]:
    """Mean and longest completion under each policy, seconds, a row a seed."""
    found: dict[IterationPolicy, list[tuple[float, float]]] = {one: [] for one in IterationPolicy}
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        jobs = one_lane(draw(rng), load, rng)
        for policy in IterationPolicy:
            settings = LaneSettings(capacity_mib=16_000, margins=EXACT, policy=policy)
            played = play_lanes(jobs, settings)
            found[policy].append((played.mean_completion_s, _longest(played)))
    return {policy: np.array(each) for policy, each in found.items()}


def _longest(played: PlayedLanes) -> float:
    return max(one.completion_s for one in played.jobs)


def fairness(seed: int) -> float:
    """Jain's index of what jobs ran that shared a lane under FAIR, their steps of any length."""
    rng = np.random.default_rng(seed)
    simulator = LaneSimulator(settings=LaneSettings(capacity_mib=16_000, margins=EXACT))
    lengths = rng.lognormal(-1.5, 1.0, FAIR_JOBS).tolist()
    for at, length in enumerate(lengths):
        demand = JobDemand(name=f"job-{at}", persistent_mib=50, ephemeral_mib=9_000)
        simulator.add(LaneJob(demand=demand, arrival_s=0.0, steps=10**9, step_s=length))
    simulator.run(FAIR_STEPS * FAIR_JOBS * float(np.median(lengths)))
    return jain([one.ran_s for one in simulator.table.memory.residents.values()])


def stressed(events: int, progress: Progress) -> tuple[int, int]:
    """Unsafe states, and jobs that never ran, in so many random events."""
    unsafe = unserved = 0
    runs = max(1, events // PER_RUN)
    for seed in range(runs):
        if seed % 10 == 0:
            progress.say(f"random events: {seed * PER_RUN:,} of {events:,}")
        run = RandomEvents(seed=seed)
        run.play(PER_RUN)
        unsafe += run.account.unsafe
        unserved += run.unserved
    return unsafe, unserved


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=report.DATA)
    parser.add_argument("--events", type=int, default=EVENTS)
    given = parser.parse_args(words)
    with Progress() as progress:
        occupancy = {}
        for memory in memories(given.data):
            progress.say(f"residents: {memory.name}")
            occupancy[memory.name] = residents(memory)
        ends = {}
        for name, draw in durations(given.data).items():
            for load in LOADS:
                progress.say(f"completion times: {name}, load {load:g}")
                ends[name, load] = completions(draw, load)
        fair = min(fairness(seed) for seed in range(SEEDS))
        unsafe, unserved = stressed(given.events, progress)
    figures: dict[str, report.Figure] = {
        "unsafe": unsafe,
        "unserved": unserved,
        "events": given.events,
        **resident_figures(occupancy),
        **completion_figures(ends),
        "jain": fair,
    }
    report.write("lanes", report.figures_before("lanes") | figures, lines(occupancy, ends, figures))
    return report.judge(figures, BARS)


Occupancy = Mapping[str, Mapping[str, tuple[float, float]]]
Ends = Mapping[tuple[str, float], Mapping[IterationPolicy, Floats]]


def resident_figures(occupancy: Occupancy) -> dict[str, report.Figure]:
    """The worst device counts."""
    ratios = [
        (one["lanes"][0] / one["packing"][0], one["lanes"][0] / one["clairvoyant"][0])
        for one in occupancy.values()
    ]
    return {
        "residents_vs_packing": min(one for one, _ in ratios),
        "residents_vs_clairvoyant": min(one for _, one in ratios),
    }


def gain(found: Mapping[IterationPolicy, Floats], policy: IterationPolicy) -> float:
    """How many times better the mean completion is than FIFO's, the mean of all seeds."""
    return float(found[IterationPolicy.FIFO][:, 0].mean() / found[policy][:, 0].mean())


def completion_figures(ends: Ends) -> dict[str, report.Figure]:
    """The worst trace counts."""
    return {
        "srtf_vs_fifo": min(gain(one, IterationPolicy.SRTF) for one in ends.values()),
        **{
            f"{name}_load{load:g}_{policy}_vs_fifo".lower().replace("-", ""): gain(one, policy)
            for (name, load), one in ends.items()
            for policy in IterationPolicy
        },
    }


def lines(
    occupancy: Occupancy, ends: Ends, figures: Mapping[str, report.Figure]
) -> list[report.Row]:
    """The table."""
    found = [
        report.Row(
            what=f"{name}: residents (steps side by side)",
            ours="{:.2f} ({:.2f})".format(*one["lanes"]),
            baseline=", ".join(
                f"{other} {one[other][0]:.2f} ({one[other][1]:.2f})"
                for other in one
                if other != "lanes"
            ),
        )
        for name, one in occupancy.items()
    ]
    for (name, load), one in ends.items():
        longest = one[IterationPolicy.SRTF][:, 1] / one[IterationPolicy.FIFO][:, 1]
        others = (IterationPolicy.FAIR, IterationPolicy.RR, IterationPolicy.PACK)
        found.append(
            report.Row(
                what=f"{name}, load {load:g}: x FIFO's mean completion",
                ours=f"SRTF {gain(one, IterationPolicy.SRTF):.2f}",
                baseline=", ".join(f"{policy} {gain(one, policy):.2f}" for policy in others),
                limit=f"longest x {longest.mean():.2f}",
            )
        )
    for name in BARS:
        value = figures[name]
        found.append(report.Row(what=name, ours=f"{value:.4g}" if value is not None else ""))
    return found


if __name__ == "__main__":
    sys.exit(main())
