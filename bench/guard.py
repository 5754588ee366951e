# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""How soon a best-effort neighbour that doubles a tenant's step time stands still.

A training process with an objective has an emulated device (a CPU core) to itself; then a second
process takes half of it away, as two slices of one core do. The window that completes two of three
above the objective is found from the windows themselves, and the moment at which the neighbour
stands still from the kernel. The wait of 60 s between two pauses is off: trials follow one another.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry

from bench import report
from bench.guard_node import BenchNode, Running, bench_node, guard_process, what_is_missing
from bench.progress import Progress
from ullage.process.environment import LogLevel
from ullage.process.logs import configure_logs
from ullage_node.events import AgentEvent
from ullage_node.guard.client import FreezerClient
from ullage_node.guard.gather import subjects, tenants
from ullage_node.guard.guard import Guard, GuardDependencies
from ullage_node.guard.machine import GuardLimits, GuardMachine
from ullage_node.guard.metrics import GuardMetrics
from ullage_node.guard.pause import HISTORY, VIOLATED
from ullage_node.guard.windows import StepWindows
from ullage_node.model.guard import GuardSubject, ObjectiveWindow, Windows, WindowVerdict

TRIALS: Final = 50
LIMIT_SECONDS: Final = 2.0
MAX_SLOWDOWN_PERCENT: Final = 140
QUIET_SECONDS: Final = 12.0
"""Alone at first: warm-up, and the reference of the step time."""
PATIENCE_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.005


class Recorder:
    """Passes windows on and keeps them."""

    def __init__(self, inner: Windows) -> None:
        self._inner = inner
        self.kept: list[ObjectiveWindow] = []

    def next(self, watched: tuple[GuardSubject, ...], now: float) -> tuple[ObjectiveWindow, ...]:
        """Windows that ended since the last call."""
        found = self._inner.next(watched, now)
        self.kept += [one for one in found if one.verdict is not WindowVerdict.NO_DATA]
        return found

    def cut(self, key: object, now: float) -> None:
        """End the running window."""
        self._inner.cut(key, now)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One injected interference; seconds after the window that proved it."""

    delay_s: float | None
    """``None`` = it never stood still."""
    detected_s: float
    """From the start of the neighbour to that window's end."""
    cured: bool
    before: float
    """Step time over the allowed one with the neighbour, then without."""
    without: float


@dataclass(slots=True)
class Bench:
    """The node with its guard, and what is being measured."""

    node: BenchNode
    guard: Guard
    windows: Recorder
    victim: Running
    events: list[AgentEvent]
    trials: list[Trial] = field(default_factory=list)

    async def trial(self, number: int) -> Trial:
        """Start a neighbour at any moment of a window, and wait for what happens to it."""
        await asyncio.sleep(random.uniform(0, 1))
        first = len(self.windows.kept)
        told = len(self.events)
        begun = time.monotonic()
        noise = await self.node.start(f"noise-{number}", protected=False)
        frozen_at = await self._when_frozen(noise)
        proof = _proof(self.windows.kept[first:])
        await self._until(lambda: bool(self._reasons(told) & {"Interfering", "SelfViolating"}), 11)
        cured = "Interfering" in self._reasons(told)
        without = self.windows.kept[-1].ratio
        noise.leaving = True  # as when the operator moves it: it runs again, then it ends
        await self._until(lambda: not self.guard.machine.frozen, 5)
        await self.node.end(noise)
        await self._until(self._calm, PATIENCE_SECONDS)
        in_order = proof is not None and frozen_at is not None
        return Trial(
            delay_s=frozen_at - proof.at_s if in_order and proof and frozen_at else None,
            detected_s=proof.at_s - begun if proof else 0.0,
            cured=cured,
            before=proof.ratio if proof else 0.0,
            without=without,
        )

    def _reasons(self, since: int) -> set[str]:
        return {event.reason for event in self.events[since:]}

    async def _when_frozen(self, noise: Running) -> float | None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.node.groups.is_frozen(noise.group):
            if time.monotonic() > deadline:
                return None
            await asyncio.sleep(POLL_SECONDS)
        return time.monotonic()

    def _calm(self) -> bool:
        last = self.windows.kept[-HISTORY:]
        return not self.guard.marks and all(
            one.verdict is not WindowVerdict.VIOLATED for one in last
        )

    async def _until(self, true: object, seconds: float) -> None:
        assert callable(true)
        deadline = time.monotonic() + seconds
        while not true() and time.monotonic() < deadline:
            await asyncio.sleep(POLL_SECONDS)


def _proof(windows: list[ObjectiveWindow]) -> ObjectiveWindow | None:
    """The window that completes two of three above the objective."""
    for end in range(1, len(windows) + 1):
        last = windows[max(0, end - HISTORY) : end]
        above = [one.verdict is WindowVerdict.VIOLATED for one in last]
        if above[-1] and sum(above) >= VIOLATED:
            return windows[end - 1]
    return None


async def _observe(node: BenchNode) -> None:
    while True:
        await asyncio.sleep(1)
        await node.observe()


async def measure(node: BenchNode, client: FreezerClient, trials: int, progress: Progress) -> Bench:
    """Run the trials."""
    await node.probe.start()
    windows, events = Recorder(StepWindows.below(node.steps_dir)), list[AgentEvent]()

    def say(event: AgentEvent) -> bool:
        events.append(event)
        return True

    guard = Guard(
        around=GuardDependencies(
            tenants=lambda: tenants(node.table.held, node.attachments, node.pods),
            subjects=lambda: subjects(node.table.held, node.progress),
            windows=windows,
            freezer=client,
            learn=lambda observation: None,
            metrics=GuardMetrics(CollectorRegistry()),
            model_of=lambda gpu: "emulated",
            say=say,
        ),
        machine=GuardMachine(GuardLimits(cool_down_seconds=0.0, pauses_per_hour=10**6)),
    )
    victim = await node.start("work", protected=True, max_slowdown_percent=MAX_SLOWDOWN_PERCENT)
    bench = Bench(node, guard, windows, victim, events)
    tasks = [asyncio.create_task(guard.run()), asyncio.create_task(_observe(node))]
    try:
        await asyncio.sleep(QUIET_SECONDS)
        alone = [one.ratio for one in windows.kept]
        seen = f"{len(alone)} windows at {statistics.median(alone or [0]):.2f} of the objective"
        progress.say(f"alone: {seen}")
        count = progress.task("trials", trials)
        for number in range(trials):
            bench.trials.append(await bench.trial(number))
            count.advance()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
    return bench


def main() -> int:
    """Measure and report.

    Returns:
        0, or 1 when a neighbour stood still too late or never.
    """
    parser = argparse.ArgumentParser(prog="bench.guard")
    parser.add_argument("--trials", type=int, default=TRIALS)
    options = parser.parse_args()
    if missing := what_is_missing():
        sys.exit(f"bench guard: {missing}")
    configure_logs(LogLevel.ERROR)
    with bench_node() as node, guard_process(node.scratch / "run") as socket:
        client = FreezerClient(socket)
        with Progress() as progress:
            bench = asyncio.run(measure(node, client, options.trials, progress))
    return _report(bench)


def _report(bench: Bench) -> int:
    done = bench.trials
    delays = sorted(one.delay_s for one in done if one.delay_s is not None)
    in_time = sum(delay <= LIMIT_SECONDS for delay in delays)
    paused = Counter(event.reason for event in bench.events)["BestEffortPaused"]
    worst, median = max(delays, default=0.0), statistics.median(delays or [0.0])
    before = statistics.median(one.before for one in done)
    without = statistics.median(one.without for one in done)
    figures = {
        "trials": len(done),
        "frozen_in_time": in_time,
        "cured": sum(one.cured for one in done),
        "pauses": paused,
        "delay_p50_ms": round(1000 * median, 1),
        "delay_max_ms": round(1000 * worst, 1),
        "detected_p50_s": round(statistics.median(one.detected_s for one in done), 2),
        "ratio_with_neighbour": round(before, 2),
        "ratio_without": round(without, 2),
    }
    report.write(
        "guard",
        figures,
        [
            report.Row(
                what="neighbour stands still in time",
                ours=f"{in_time} of {len(done)}",
                limit=f"{len(done)} of {len(done)} within {LIMIT_SECONDS:.0f} s",
            ),
            report.Row(
                what="after the window that proves it",
                ours=f"p50 {1000 * median:.0f} ms, most {1000 * worst:.0f} ms",
                limit=f"{LIMIT_SECONDS:.0f} s",
            ),
            report.Row(
                what="after the neighbour's start, p50", ours=f"{figures['detected_p50_s']} s"
            ),
            report.Row(
                what="step time over the allowed one",
                ours=f"{without:.2f} with the neighbour paused",
                baseline=f"{before:.2f} beside it",
                limit="1.00",
            ),
            report.Row(what="neighbour found to be the cause", ours=f"{figures['cured']}"),
        ],
    )
    return 0 if in_time == len(done) else 1


if __name__ == "__main__":
    sys.exit(main())
