# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m bench.efficiency``: findings on counter series with a known truth; a report's cost.

Counter series, records of ranks and traces are synthetic: programs with drawn speeds, pauses,
bursts and noise, read by the agent's own meter in virtual time, and judged by the operator's own
code. Nothing here ran on a GPU, so recall and false alarms say whether rules and meter fit
together, not how often the antipatterns occur.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bench import report
from bench.efficiency_fleet import fleet_of, placed_job
from bench.efficiency_steps import OF_STEPS, claims_drawn, drawn_loss
from ullage.api.slices import DesiredSlice, SliceKey
from ullage.api.usage import ObservedUsage
from ullage.api.words import EfficiencyRule as Rule
from ullage.cli.efficiency import FleetEfficiency, to_json
from ullage.engines.efficiency.rules import JudgedWorkload, findings_of, gain_permille
from ullage_node.model.devices import Attachment, AttachState, StepProgress
from ullage_node.model.samples import DeviceSample, Metric
from ullage_node.model.slices import LaneReading
from ullage_node.telemetry.tenants import RunningTenant
from ullage_node.telemetry.usage import UsageMeter, UsageReading
from ullage_node.times import USAGE_WINDOW_S

JOBS: Final = 24
"""Jobs of a draw, each with one antipattern or none."""
DRAWS: Final = 10
LOOK_S: Final = 4
"""Seconds between two readings; the agent takes one a second."""
FLEET: Final = 10_000
MEMORY_MIB: Final = 80_000
GPU: Final = "GPU-0"
JOB: Final = placed_job("node", "job")
"""The job that ranks and traces are of."""
NONE_IN: Final = 3
"""One job in so many has no antipattern."""
CLEAN: Final = ("busy", "bursty", "small", "short", "limited")
"""Kinds of jobs without any: steady; in bursts; on a small share; over before or soon after it can
be judged; held back by its share."""
BARS: Final[report.Bars] = {
    "recall": lambda value: value >= 0.95,
    "false_alarms": lambda value: value == 0,
    "report_10000_s": lambda value: value <= 1,
    "report_10000_mib": lambda value: value <= 200,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A drawn job, alone on its device; fractions of the time or of the device.

    Attributes:
        planted: Its antipattern; ``None`` = none.
        percent: Share of the device.
        load: Multiprocessors busy while a step is under way.
        noise: Standard deviation of it from second to second.
        gap: Time within steps without a kernel.
        duty: Time in which a step is under way.
        memory: Device memory in use.
        warm_up_s: Seconds at the beginning in which nothing runs.
        pause_every_s: Seconds between pauses of twelve seconds (checkpoints); 0 = none.
        frozen_every_s: Seconds between freezes of four seconds by the guard; 0 = none.
        waits_percent: Time in which it waits for its lane.
        burst_s: Seconds from burst to burst; 0 = steady.
        burst: Part of them at full load.
        trough: Load between bursts, of the full one.
        ends_s: Seconds after which it ends; 0 = it goes on.
        loss: Part of each step that an antipattern of its steps costs.
    """

    planted: Rule | None
    percent: int
    load: float
    noise: float
    gap: float
    duty: float
    memory: float
    warm_up_s: int
    pause_every_s: int
    frozen_every_s: int
    waits_percent: int
    burst_s: int = 0
    burst: float = 0.5
    trough: float = 1.0
    ends_s: int = 0
    loss: float = 0.0


def drawn(planted: Rule | None, draw: random.Random) -> Program:
    """A job with this antipattern; its other properties are those of jobs without any."""
    percent = draw.choice((100, 100, 80, 60, 40)) if planted is not Rule.MEMORY_UNUSED else 60
    share = percent / 100
    job = Program(
        planted=planted,
        percent=percent,
        load=share * draw.uniform(0.78, 1.0),
        noise=draw.uniform(0, 0.08) * share,
        gap=draw.uniform(0.0, 0.14),
        duty=draw.uniform(0.95, 1.0),
        memory=share * draw.uniform(0.6, 0.95),
        warm_up_s=draw.choice((0, 0, 60, 180, 600)),
        pause_every_s=draw.choice((0, 600, 900)),
        frozen_every_s=draw.choice((0, 0, 40)),
        waits_percent=draw.choice((0, 0, 0, 12)),
    )
    match planted:
        case Rule.IDLE:
            return replace(job, load=0.0, noise=0.0, duty=0.0, gap=0.0, memory=0.0)
        case Rule.OVERSIZED_SHARE:
            return replace(job, percent=100, load=draw.uniform(0.05, 0.5), noise=0.02)
        case Rule.HOST_BOUND:
            gap = draw.uniform(0.3, 0.6)
            return replace(job, gap=gap, load=share * draw.uniform(0.2, 0.42), noise=0.1)
        case Rule.SMALL_BATCH:
            memory = share * draw.uniform(0.05, 0.45)
            return replace(job, load=share * draw.uniform(0.15, 0.44), memory=memory)
        case Rule.BETWEEN_STEPS:
            return replace(job, duty=draw.uniform(0.3, 0.8))
        case Rule.MEMORY_UNUSED:
            return replace(job, memory=share * draw.uniform(0.1, 0.45))
        case None:
            return _clean(job, draw)
        case _:  # of its steps: the device is not used for what is lost
            loss = drawn_loss(planted, draw)
            load = job.load * (1 - max(loss, 0.1))
            return replace(job, loss=loss, load=load, duty=1.0, pause_every_s=0)


def _clean(job: Program, draw: random.Random) -> Program:
    """A job that uses what it holds."""
    share = job.percent / 100
    match draw.choice(CLEAN):
        case "bursty":
            load = share * draw.uniform(0.9, 1.0)
            return replace(
                job,
                load=load,
                burst_s=draw.choice((8, 24, 120, 300)),
                burst=draw.choice((0.5, 0.25, 0.125)),
                trough=draw.uniform(0.05, 0.7),
            )
        case "small":
            percent = draw.choice((10, 20))
            less = percent / job.percent
            return replace(
                job,
                percent=percent,
                load=job.load * less,
                noise=job.noise * less,
                memory=job.memory * less,
            )
        case "short":
            return replace(job, ends_s=draw.randrange(120, 2200))
        case "limited":  # held back by its share all the time
            return replace(job, load=share * draw.uniform(0.95, 1.0), noise=0.0, gap=0.0, duty=1.0)
        case _:
            return job


def counters(job: Program, draw: random.Random, windows: int) -> ObservedUsage:
    """What the agent's meter says after the warm-up and so many windows, or until the job ends."""
    meter, part = UsageMeter(), _slice(job)
    steps, busy_ns, since_step = 0, 0, 0.0
    now, end = 0.0, job.warm_up_s + windows * USAGE_WINDOW_S + 2 * LOOK_S
    if job.ends_s:
        end = min(end, job.ends_s)
    while now <= end:
        paused = job.pause_every_s and now % job.pause_every_s < 3 * LOOK_S
        frozen = bool(job.frozen_every_s and now % job.frozen_every_s < LOOK_S)
        works = now >= job.warm_up_s and not paused and not frozen
        turns = 1 - job.waits_percent / 100 if works else 0.0
        height = job.trough if job.burst_s and now % job.burst_s >= job.burst_s * job.burst else 1.0
        load = min(job.percent / 100, max(0.0, draw.gauss(job.load, job.noise))) * height
        if works:
            busy_ns += int(job.duty * LOOK_S * 1e9)
            since_step += job.duty * LOOK_S
            made, since_step = int(since_step / 0.4), since_step % 0.4
            steps += made
        active = job.duty * turns  # while it waits for its lane, no kernel of it runs
        tenant = _tenant(job, part, steps, busy_ns, frozen=frozen)
        meter.take(_reading(job, tenant, now, load * active, (1 - job.gap) * active))
        now += LOOK_S
    usage = meter.usage(tenant.key)
    assert usage is not None
    return usage


def _slice(job: Program) -> DesiredSlice:
    return DesiredSlice(
        key=SliceKey(pod_uid="job", container="main"),
        pod_namespace="team",
        pod_name="job",
        gpu=GPU,
        percent=job.percent,
        memory_mib=MEMORY_MIB * job.percent // 100,
        epoch=1,
    )


def _tenant(
    job: Program, part: DesiredSlice, steps: int, busy_ns: int, *, frozen: bool
) -> RunningTenant:
    seen = Attachment(state=AttachState.ENFORCED, memory_used_mib=int(job.memory * MEMORY_MIB))
    made = StepProgress(steps=steps, busy_ns=busy_ns)
    return RunningTenant(desired=part, gpus=(GPU,), attachment=seen, progress=made, frozen=frozen)


def _reading(
    job: Program, tenant: RunningTenant, now: float, load: float, kernels: float
) -> UsageReading:
    ratios = {Metric.SM: load, Metric.GRAPHICS: kernels}
    return UsageReading(
        now=now,
        tenants=(tenant,),
        samples={GPU: DeviceSample(uuid=GPU, at_s=now, ratios=ratios)},
        turns={tenant.key.directory: LaneReading(wait_percent=job.waits_percent)},
    )


def judged(job: Program, usage: ObservedUsage, draw: random.Random) -> JudgedWorkload:
    """The job as the operator judges it, with ranks and a trace."""
    steps = job.planted if job.planted in OF_STEPS else None
    return JudgedWorkload(
        percent=job.percent,
        memory_mib=MEMORY_MIB * job.percent // 100,
        is_job=True,
        fixed_share=False,
        whole_device=job.percent == 100 and job.planted is not Rule.MEMORY_UNUSED,
        members=(usage,),
        claims=claims_drawn(steps, job.loss, JOB, draw),
    )


@dataclass(slots=True)
class Tally:
    """What was found of what was planted."""

    planted: Counter[str]
    found: Counter[str]
    alarms: Counter[str]
    others: Counter[str]
    clean: int = 0
    not_exact: int = 0

    def take(self, job: Program, usage: ObservedUsage, draw: random.Random) -> None:
        """Judge one job."""
        findings = findings_of(judged(job, usage, draw))
        rules = {finding.rule for finding in findings}
        self.not_exact += usage.used_ms + usage.wasted_ms != usage.allocated_ms
        if gain_permille(findings) > 1000:
            self.not_exact += 1
        if job.planted is None:
            self.clean += 1
            self.alarms.update(rule.value for rule in rules)
            return
        self.planted[job.planted.value] += 1
        self.found[job.planted.value] += job.planted in rules
        self.others.update(rule.value for rule in rules - {job.planted})


def plant(seed: int, draws: int) -> Tally:
    """Judge the jobs of all draws."""
    draw = random.Random(seed)
    tally = Tally(Counter(), Counter(), Counter(), Counter())
    for _ in range(draws):
        for planted in _kinds(draw):
            job = drawn(planted, draw)
            tally.take(job, counters(job, draw, windows=2), draw)
    return tally


def _kinds(draw: random.Random) -> Iterator[Rule | None]:
    rules: Sequence[Rule] = tuple(Rule)
    for at in range(JOBS):
        yield None if at % NONE_IN == 0 else draw.choice(rules)


def report_cost(jobs: int) -> tuple[float, float, float, int]:
    """Seconds, CPU seconds and MiB of a report of so many jobs, and the bytes that it is.

    It is made without collections, as the command does.
    """
    snapshot, now = fleet_of(jobs)
    workloads = list(snapshot.workloads.values())
    began, began_cpu = time.perf_counter(), time.process_time()
    fleet = FleetEfficiency(snapshot, workloads, now)
    passed_s, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    size = len(to_json(fleet, 10))
    assert fleet.summary.rows == jobs
    del fleet
    tracemalloc.start()
    FleetEfficiency(snapshot, workloads, now)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return passed_s, cpu_s, peak / 2**20, size


def main() -> int:
    """Measure and write the figures.

    Returns:
        0, or 1 when a bar is missed.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=DRAWS, help="draws of 24 jobs")
    parser.add_argument("--seed", type=int, default=1, help="of the draws")
    options = parser.parse_args()
    seconds, cpu_s, mib, size = report_cost(FLEET)
    tally = plant(options.seed, options.draws)
    planted, found = tally.planted.total(), tally.found.total()
    figures: dict[str, report.Figure] = {
        "recall": round(found / planted, 4) if planted else None,
        "false_alarms": tally.alarms.total(),
        "clean_jobs": tally.clean,
        "planted_jobs": planted,
        "sums_not_exact": tally.not_exact,
        "live": False,
        "report_10000_s": round(seconds, 3),
        "report_10000_cpu_s": round(cpu_s, 3),  # what it takes where other work is on the machine
        "report_10000_mib": round(mib, 1),
        "report_10000_bytes": size,
        "process_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    rows = [
        report.Row(
            what=f"{rule}: found of planted",
            ours=f"{tally.found[rule]} of {count}",
            limit="95 %",
        )
        for rule, count in sorted(tally.planted.items())
    ]
    rows += [
        report.Row(
            what=f"findings on {tally.clean} jobs without any",
            ours=str(tally.alarms.total()),
            limit="0",
        ),
        report.Row(
            what="other findings on jobs with one planted",
            ours=", ".join(f"{rule} {count}" for rule, count in sorted(tally.others.items())),
        ),
        report.Row(
            what="report of 10,000 jobs",
            ours=f"{seconds:.2f} s, {cpu_s:.2f} s of CPU",
            limit="1 s",
        ),
        report.Row(what="memory of it beside the snapshot", ours=f"{mib:.0f} MiB", limit="200 MiB"),
    ]
    report.write("efficiency", figures, rows)
    return report.judge(figures, BARS)


if __name__ == "__main__":
    sys.exit(main())
