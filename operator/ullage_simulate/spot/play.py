# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One job on interruptible pools: its cost, work, losses, and end.

Every rule is simulated in the same order: losses first, then the rule decides, then a tick is paid
and worked. A rule sees only the past and the present; this module must never decide for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ullage.engines.capacity.records import CapacityType
from ullage_simulate.spot.market import SpotMarket

Counts = tuple[int, ...]


@dataclass(slots=True)
class SpotRun:
    """A job in progress; times in seconds.

    Attributes:
        held: Instances of each pool.
        since: Tick at which each pool's instances were acquired.
        first: Tick of its start.
        paid_s: Instance seconds paid for, by pool.
        dollars: Spent.
        done: Finished work, in the job's unit.
        safe: Work that a loss cannot affect.
        lost: Lost work.
        stall_s: Seconds until it works.
        elapsed_s: Since its start.
        evictions: Losses of pools.
        starts: Number of changes of capacity.
        committed: On-demand until the end; stored for the rule.
        history: (elapsed seconds, work done, spot instances, others) at each tick.
    """

    held: Counts
    since: list[int]
    first: int
    paid_s: list[float]
    dollars: float = 0.0
    done: float = 0.0
    safe: float = 0.0
    lost: float = 0.0
    stall_s: float = 0.0
    elapsed_s: float = 0.0
    evictions: int = 0
    starts: int = 0
    committed: bool = False
    history: list[tuple[float, float, int, int]] = field(default_factory=list)


Rule = Callable[[SpotMarket, SpotRun, int], Counts]
"""Chooses the capacity at a tick; it may only set ``committed``."""
Toll = Callable[[SpotRun, int, bool], float]
"""Seconds until the job works: (run, pools lost now, changed capacity) -> seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotJob:
    """The job to simulate.

    Attributes:
        work: Work to be done.
        speed: Work per second of this many instances.
        toll: Cost of losses and changes.
        reliable_per_hour: Dollars per hour beside the pools.
        noticed: Losses are announced early enough for a checkpoint.
        flush_s: Seconds that this checkpoint takes; they do no work.
        checkpoint_s: Seconds between checkpoints; 0 = only when asked to stop.
    """

    work: float
    speed: Callable[[int], float]
    toll: Toll
    reliable_per_hour: float = 0.0
    noticed: bool = True
    flush_s: float = 0.0
    checkpoint_s: float = 0.0


def restarts(seconds: float) -> Toll:
    """A run that loses or changes its machines restarts; an earlier start is dropped."""

    def toll(run: SpotRun, lost: int, changed: bool) -> float:
        return seconds if (lost or changed) and any(run.held) else run.stall_s

    return toll


def play(market: SpotMarket, job: SpotJob, rule: Rule, start: int = 0) -> SpotRun:
    """One job from a tick on.

    Raises:
        ValueError: the traces end before the job does, and no pool outlives them.
    """
    count = len(market.names)
    run = SpotRun(held=(0,) * count, since=[start] * count, first=start, paid_s=[0.0] * count)
    tick = start
    while True:
        lost = _lose(market, job, run, tick)
        changed = _carry_out(run, rule(market, run, tick), tick)
        run.stall_s = job.toll(run, lost, changed)
        run.history.append((run.elapsed_s, run.done, *_split(market, run.held)))
        if _work(market, job, run, tick):
            return run
        tick += 1
        if tick >= market.ticks and not any(market.gives(tick)):
            raise ValueError("the traces end before the job does")


def _lose(market: SpotMarket, job: SpotJob, run: SpotRun, tick: int) -> int:
    """Apply losses; returns the number of lost pools."""
    gives = market.gives(tick)
    gone = [pool for pool, held in enumerate(run.held) if held and not gives[pool]]
    if not gone:
        return 0
    at_risk = run.done - run.safe
    if job.noticed:
        # the checkpoint of the notice ends with the machine: only its own seconds are missing
        at_risk = min(at_risk, job.flush_s * job.speed(sum(run.held)))
    run.done -= at_risk
    run.lost += at_risk
    run.safe = run.done
    run.evictions += len(gone)
    run.held = tuple(0 if pool in gone else held for pool, held in enumerate(run.held))
    return len(gone)


def _carry_out(run: SpotRun, wanted: Counts, tick: int) -> bool:
    if wanted == run.held:
        return False
    run.starts += any(wanted)
    fresh = [pool for pool, count in enumerate(wanted) if count and not run.held[pool]]
    for pool in fresh:
        run.since[pool] = tick
    run.held = wanted
    run.safe = run.done  # a job that is asked to stop saves its work
    return True


def _work(market: SpotMarket, job: SpotJob, run: SpotRun, tick: int) -> bool:
    """Pay and work for one tick; true if the job is done."""
    count, tick_s = sum(run.held), market.tick_s
    speed = job.speed(count) if count else 0.0
    working_s = max(0.0, tick_s - run.stall_s) if count else 0.0
    left = job.work - run.done
    last = count > 0 and speed * working_s >= left
    # the last tick is paid for and lasts only until the work is done
    spent_s = tick_s - working_s + left / speed if last else float(tick_s)
    per_hour = job.reliable_per_hour
    for pool, (held, price) in enumerate(zip(run.held, market.prices(tick), strict=True)):
        if held:
            run.paid_s[pool] += held * spent_s
            per_hour += held * price
    run.dollars += per_hour * spent_s / 3600
    run.elapsed_s += spent_s
    run.done = job.work if last else run.done + speed * working_s
    if count:
        run.stall_s = max(0.0, run.stall_s - tick_s)
        every = job.checkpoint_s * speed
        if every:
            run.safe += (run.done - run.safe) // every * every
    return last


def _split(market: SpotMarket, held: Counts) -> tuple[int, int]:
    """Instances on spot, and others."""
    spot = sum(
        count for count, kind in zip(held, market.kinds, strict=True) if kind is CapacityType.SPOT
    )
    return spot, sum(held) - spot
