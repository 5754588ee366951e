# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A public trace: the operator's rounds against a queue in flavour order, and preemption's losses.

The trace (``jobs_msr_synthetic``) has Philly's arrivals and gangs with types of the table; it is
read from ``--data`` and is no part of the repository.
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench import report
from bench.progress import Progress
from bench.simulate_data import GAVEL_FLEET, msr
from ullage_simulate.decided import run_decided
from ullage_simulate.events import TraceSettings, run
from ullage_simulate.outcome import PolicyOutcome
from ullage_simulate.policies import BASELINES, POLICIES
from ullage_simulate.trace import Fleet, JobTrace, JobTraceError, fitted
from ullage_simulate.work import Costs

HOUR: Final = 3600.0
RESTARTS_S: Final = (0.0, 30.0, 120.0)
URGENT: Final = 0.2
"""Part of the jobs that are of the higher priority."""
SAVES_EVERY_S: Final = 1800.0
SEEDS: Final = 5
OPERATOR_JOBS: Final = 80
OPERATOR_FLEET: Final = Fleet(devices={"v100": 4, "p100": 4, "k80": 4})


def against_a_queue(
    trace: JobTrace, figures: dict[str, report.Figure], rows: list[report.Row]
) -> None:
    """Mean and 99th percentile of completion times, with and without a cost of restarts."""
    plain = run(trace, GAVEL_FLEET, POLICIES["fifo"])
    for policy in (*BASELINES, POLICIES["fifo-strict"], POLICIES["las"]):
        for restart_s in RESTARTS_S if policy.solve else RESTARTS_S[:1]:
            found = run(trace, GAVEL_FLEET, policy, TraceSettings(costs=Costs(restart_s=restart_s)))
            key = f"{policy.name.replace('-', '_')}_restart_{restart_s:.0f}s"
            figures |= {
                f"{key}_mean_jct_h": found.mean_jct_s / HOUR,
                f"{key}_p99_jct_h": found.jct_percentile_s(99) / HOUR,
                f"{key}_stops": found.stops,
            }
            rows.append(
                report.Row(
                    what=f"{policy.name}, restart {restart_s:.0f} s",
                    ours=f"{found.mean_jct_s / HOUR:.1f} / {_p99(found):.1f} h",
                    baseline=f"{plain.mean_jct_s / found.mean_jct_s:.2f}x fifo",
                    limit=f"{found.stops} stops",
                )
            )
            if policy.name == "las" and restart_s == 0.0:
                figures["fifo_flavor_ratio"] = plain.mean_jct_s / found.mean_jct_s
                figures["p99_ratio"] = found.jct_percentile_s(99) / plain.jct_percentile_s(99)


def _p99(found: PolicyOutcome) -> float:
    return found.jct_percentile_s(99) / HOUR


def lost_to_victims(
    trace: JobTrace, figures: dict[str, report.Figure], rows: list[report.Row]
) -> None:
    """Work that is lost to preemption, by recency and by checkpoint age, over several draws."""
    costs = Costs(restart_s=30.0, every_s=SAVES_EVERY_S, saves_on_stop=False)
    lost: dict[str, list[PolicyOutcome]] = {"recency": [], "checkpoint-age": []}
    for seed in range(SEEDS):
        chance = random.Random(seed)
        jobs = tuple(replace(job, priority=int(chance.random() < URGENT)) for job in trace.jobs)
        for rule, found in lost.items():
            policy = POLICIES[f"priority-{rule}"]
            found.append(
                run(replace(trace, jobs=jobs), GAVEL_FLEET, policy, TraceSettings(costs=costs))
            )
    for rule, found in lost.items():
        hours = sum(one.lost_device_s for one in found) / HOUR
        stops = sum(one.stops for one in found)
        key = rule.replace("-", "_")
        figures |= {f"lost_{key}_device_h": hours, f"stops_{key}": stops}
        rows.append(
            report.Row(
                what=f"victims by {rule}, {SEEDS} draws",
                ours=f"{hours:.1f} device hours lost",
                baseline=f"{stops} victims",
            )
        )
    ratio = _ratio(figures["lost_checkpoint_age_device_h"], figures["lost_recency_device_h"])
    figures["victim_lost_ratio"] = ratio


def lost_by_the_operator(
    trace: JobTrace, figures: dict[str, report.Figure], rows: list[report.Row]
) -> None:
    """The same with the operator's own preemption, told or not told how old checkpoints are."""
    costs = Costs(restart_s=30.0, every_s=SAVES_EVERY_S, saves_on_stop=False)
    chance = random.Random(0)
    jobs = tuple(
        replace(job, priority=int(chance.random() < URGENT))
        for job in trace.first(OPERATOR_JOBS).jobs
    )
    hours: dict[bool, float] = {}
    for ages in (False, True):
        found = run_decided(
            replace(trace, jobs=jobs),
            OPERATOR_FLEET,
            POLICIES["fifo"],
            TraceSettings(costs=costs),
            ages=ages,
        )
        hours[ages] = found.lost_device_s / HOUR
        rows.append(
            report.Row(
                what=f"operator, {'ages told' if ages else 'by recency'}, {len(jobs)} jobs",
                ours=f"{hours[ages]:.2f} device hours lost",
                baseline=f"{found.stops} victims",
            )
        )
    figures["operator_victim_lost_ratio"] = _ratio(hours[True], hours[False])


def _ratio(part: report.Figure, whole: report.Figure) -> float | None:
    return part / whole if part is not None and whole else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=report.DATA)
    parser.add_argument("--jobs", type=int, default=300)
    options = parser.parse_args()
    try:
        trace = fitted(msr(options.data, options.jobs), GAVEL_FLEET)
    except JobTraceError as error:
        print(f"bench traces: left out, the public trace is not there: {error}")
        return 0
    figures: dict[str, report.Figure] = {
        "jobs": len(trace.jobs),
        **{f"devices_{kind}": count for kind, count in GAVEL_FLEET.devices.items()},
    }
    rows: list[report.Row] = [report.Row(what=note, ours="") for note in trace.notes]
    with Progress() as progress:
        progress.say("completion times beside a queue")
        against_a_queue(trace, figures, rows)
        progress.say("work that preemption loses")
        lost_to_victims(trace, figures, rows)
        progress.say("the operator's own preemption")
        lost_by_the_operator(fitted(trace, OPERATOR_FLEET), figures, rows)
    for name, limit in (
        ("fifo_flavor_ratio", "1.3 at least"),
        ("p99_ratio", "1 at most"),
        ("victim_lost_ratio", "0.5 at most"),
    ):
        rows.append(report.Row(what=name, ours=f"{figures[name]:.2f}", limit=limit))
    report.write("traces", figures, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
