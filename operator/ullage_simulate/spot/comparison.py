# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Compares several ways of buying on the same spot pools, from textual options.

One job is simulated from many starts under every rule; the same seed gives the same figures. Reads
files; prints and writes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ullage.engines.capacity import deadline
from ullage.engines.capacity.cost import CostTerms, ScalingCurve
from ullage.engines.capacity.deadline import ProgressLine
from ullage_simulate.fleets import parsed_prices
from ullage_simulate.outcome import percentile
from ullage_simulate.progress import Follow
from ullage_simulate.spot.market import (
    ON_DEMAND,
    ON_DEMAND_PRICE,
    Series,
    SpotMarket,
    generate,
    market,
)
from ullage_simulate.spot.play import Rule, SpotJob, SpotRun, play, restarts
from ullage_simulate.spot.readers import read_series
from ullage_simulate.spot.rules import (
    by_deadline,
    by_engine,
    deadline_ask,
    elastic_ask,
    on_demand_only,
)
from ullage_simulate.trace import JobTraceError

DRAWN: Final = "zones"
SPOT: Final = "spot"
"""Price of a spot pool without a separate one."""
GREEDY: Final = "greedy"
UNIFORM: Final = "uniform-progress"
PER_WORK: Final = "cost-per-work"
STARTS: Final = 40
POLICIES: Final = (ON_DEMAND, GREEDY, UNIFORM, PER_WORK)
DOUBLING: Final = 0.97
"""Factor of the work per instance for each doubling of instances."""
_HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotRequest:
    """Options of a comparison.

    Attributes:
        trace: ``zones`` (drawn), a file, a folder or a pattern.
        select: pool=NAME each: these pools only.
        prices: POOL=DOLLARS each; ``spot`` and ``on-demand`` are understood.
        policies: Policies beside the baselines.
        seed: Seed of traces and starts.
        starts: Number of start times.
        work_h: Hours of work of the whole gang.
        deadline_h: Hours from start to deadline.
        replicas: Instances of the gang.
        min_replicas: Minimum where cost per work decides; 0 = the whole gang.
        restart_s: Seconds of every start.
        checkpoint_s: Seconds between checkpoints; 0 = only when asked to stop.
        notice_s: Seconds of notice before a loss; 0 = none.
        flush_s: Seconds of a checkpoint on notice.
    """

    trace: str = DRAWN
    select: Sequence[str] = ()
    prices: Sequence[str] = ()
    policies: Sequence[str] = (UNIFORM, PER_WORK)
    seed: int = 0
    starts: int = STARTS
    work_h: float = 48.0
    deadline_h: float = 60.0
    replicas: int = 4
    min_replicas: int = 0
    restart_s: float = 720.0
    checkpoint_s: float = 1800.0
    notice_s: float = 120.0
    flush_s: float = 30.0

    @property
    def noticed(self) -> bool:
        """True if a notice leaves time for a checkpoint."""
        return self.notice_s >= max(self.flush_s, 1.0)

    @property
    def at_risk_s(self) -> float:
        """Maximum seconds of work lost by an interruption."""
        if self.noticed:
            return self.flush_s
        return self.checkpoint_s or self.work_h * _HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotOutcome:
    """Outcome of a rule, start by start.

    Attributes:
        policy: Name.
        runs: One per start.
        spot_s: Instance seconds on spot of each.
        on_demand_s: On other pools.
        late_s: Seconds past the deadline of each; 0 = in time.
    """

    policy: str
    runs: tuple[SpotRun, ...]
    spot_s: tuple[float, ...]
    on_demand_s: tuple[float, ...]
    late_s: tuple[float, ...]

    @property
    def dollars(self) -> float:
        """Mean cost of the job."""
        return _mean([run.dollars for run in self.runs])

    def figures(self, work_h: float, on_demand: float) -> dict[str, float | int]:
        """Figures for table and scripts: means over the starts, with units in the names."""
        hours = [run.elapsed_s / _HOUR for run in self.runs]
        return {
            "starts": len(self.runs),
            "dollars": self.dollars,
            "dollars_per_work_h": self.dollars / work_h,
            "vs_on_demand": self.dollars / on_demand,
            "saved": 1 - self.dollars / on_demand,
            "spot_instance_h": _mean(self.spot_s) / _HOUR,
            "on_demand_instance_h": _mean(self.on_demand_s) / _HOUR,
            "mean_h": _mean(hours),
            "max_h": max(hours, default=0.0),
            "p99_h": percentile(hours, 99),
            "late": sum(late_s > 0 for late_s in self.late_s),
            "worst_late_h": max(self.late_s, default=0.0) / _HOUR,
            "evictions": _mean([float(run.evictions) for run in self.runs]),
            "job_starts": _mean([float(run.starts) for run in self.runs]),
            "lost_work_h": _mean([run.lost / _HOUR for run in self.runs]),
        }


@dataclass(slots=True)
class SpotComparison:
    """A comparison and its outcomes."""

    asked: SpotRequest
    market: SpotMarket
    starts: tuple[int, ...]
    notes: tuple[str, ...]
    outcomes: list[SpotOutcome] = field(default_factory=list)

    @property
    def on_demand(self) -> float:
        """Mean cost on on-demand alone, which is always first."""
        return self.outcomes[0].dollars

    def figures(self) -> dict[str, dict[str, float | int]]:
        """Of every policy."""
        return {
            outcome.policy: outcome.figures(self.asked.work_h, self.on_demand)
            for outcome in self.outcomes
        }


def compare(asked: SpotRequest, follow: Follow) -> SpotComparison:
    """Simulate every policy from the same starts, on-demand and greedy first.

    Raises:
        ValueError: the request is invalid; the text has the correction.
    """
    _check(asked)
    series = _priced(asked)
    here = market(series, _on_demand_price(asked))
    line = _line(asked, here.tick_s)
    refused = deadline.infeasible(line, allow_spot=True, allow_on_demand=True)
    if refused is not None:
        raise JobTraceError(f"--deadline {asked.deadline_h:g}: {refused}")
    comparison = SpotComparison(
        asked=asked, market=here, starts=_starts(asked, here), notes=_notes(asked, series)
    )
    job = SpotJob(
        work=asked.work_h * _HOUR,
        speed=_speed(asked.replicas),
        toll=restarts(asked.restart_s),
        noticed=asked.noticed,
        flush_s=asked.flush_s,
        checkpoint_s=asked.checkpoint_s,
    )
    wanted = {ON_DEMAND, GREEDY, *asked.policies}
    for name in [policy for policy in POLICIES if policy in wanted]:
        tell, runs = follow(name, len(comparison.starts)), []
        for start in comparison.starts:
            runs.append(play(here, job, _rule(name, asked, line), start))
            tell(len(runs))
        comparison.outcomes.append(_outcome(name, here, runs, asked))
    return comparison


def to_json(comparison: SpotComparison, *, each: bool) -> str:
    """Output for scripts: pools, job, figures of every policy, and optionally every start."""
    asked, here = comparison.asked, comparison.market
    body = {
        "trace": asked.trace,
        "pools": {
            name: {
                "capacity": kind.value,
                "price": _mean(price.tolist()),
                "available": float(up.mean()),
            }
            for name, kind, price, up in zip(
                here.names, here.kinds, here.price, here.up, strict=True
            )
        },
        "notes": list(comparison.notes),
        "seed": asked.seed,
        "starts": len(comparison.starts),
        "work_h": asked.work_h,
        "deadline_h": asked.deadline_h,
        "replicas": asked.replicas,
        "restart_s": asked.restart_s,
        "checkpoint_s": asked.checkpoint_s,
        "notice_s": asked.notice_s,
        "flush_s": asked.flush_s,
        "policies": {
            outcome.policy: {
                **comparison.figures()[outcome.policy],
                **({"each": _each(comparison, outcome)} if each else {}),
            }
            for outcome in comparison.outcomes
        },
    }
    return json.dumps(body, indent=2, allow_nan=False) + "\n"


def _each(comparison: SpotComparison, outcome: SpotOutcome) -> list[dict[str, float | int]]:
    return [
        {
            "start_h": start * comparison.market.tick_s / _HOUR,
            "dollars": run.dollars,
            "hours": run.elapsed_s / _HOUR,
            "late_h": late / _HOUR,
            "evictions": run.evictions,
            "job_starts": run.starts,
            "lost_work_h": run.lost / _HOUR,
        }
        for start, run, late in zip(comparison.starts, outcome.runs, outcome.late_s, strict=True)
    ]


def _check(asked: SpotRequest) -> None:
    strange = [policy for policy in asked.policies if policy not in POLICIES]
    if strange:
        raise JobTraceError(f"no way to buy {strange[0]!r}: there are {', '.join(POLICIES)}")
    if not 0 <= asked.min_replicas <= asked.replicas or asked.replicas < 1 or asked.starts < 1:
        raise JobTraceError(
            "a job has 1 replica or more, no more of them at least than at most, and is played"
            " from 1 start or more"
        )
    times = (asked.restart_s, asked.checkpoint_s, asked.notice_s, asked.flush_s)
    if not (asked.work_h > 0 and asked.deadline_h > 0) or min(times) < 0:
        raise JobTraceError("work and deadline are above 0 hours, and no time is below 0 seconds")


def _priced(asked: SpotRequest) -> tuple[Series, ...]:
    """The pools with their prices: by name, else for all spot, else of the trace."""
    prices = parsed_prices(asked.prices)
    drawn = asked.trace == DRAWN
    series = generate(seed=asked.seed) if drawn else read_series(asked.trace)
    series = _selected(series, asked.select)
    names = {series.name for series in series}
    strange = sorted(prices.keys() - names - {SPOT, ON_DEMAND})
    if strange:
        known = ", ".join((*sorted(names), SPOT, ON_DEMAND))
        raise JobTraceError(f"--price {strange[0]}: no such pool; there are {known}")
    priced = []
    for pool in series:
        price = prices.get(pool.name, prices.get(SPOT))
        if price is None and not len(pool.price):
            raise JobTraceError(
                f"no price of {pool.name}: add --price {pool.name}=DOLLARS, or --price"
                f" {SPOT}=DOLLARS for every pool"
            )
        row = pool.price if price is None else np.full(len(pool.up), price)
        priced.append(Series(name=pool.name, tick_s=pool.tick_s, up=pool.up, price=row))
    return tuple(priced)


def _selected(series: Sequence[Series], select: Sequence[str]) -> tuple[Series, ...]:
    wanted = []
    for text in select:
        column, _, name = text.partition("=")
        if column != "pool" or name not in {pool.name for pool in series}:
            known = ", ".join(pool.name for pool in series)
            raise JobTraceError(f"--select {text!r}: write pool=NAME; there are {known}")
        wanted.append(name)
    return tuple(pool for pool in series if not wanted or pool.name in wanted)


def _on_demand_price(asked: SpotRequest) -> float:
    price = parsed_prices(asked.prices).get(ON_DEMAND)
    if price is not None:
        return price
    if asked.trace == DRAWN:
        return ON_DEMAND_PRICE
    raise JobTraceError(f"no price of {ON_DEMAND}: add --price {ON_DEMAND}=DOLLARS")


def _line(asked: SpotRequest, tick_s: int) -> ProgressLine:
    """Work and deadline; a start wastes exactly the loss and the restart.

    Whole seconds, rounded conservatively.
    """
    return ProgressLine(
        work_s=int(-(-asked.work_h * _HOUR // 1)),
        deadline_s=int(asked.deadline_h * _HOUR),
        changeover_s=int(-(-(asked.restart_s + asked.at_risk_s) // 1)),
        tick_s=tick_s,
    )


def _starts(asked: SpotRequest, here: SpotMarket) -> tuple[int, ...]:
    """Ticks drawn by the seed, each with the traces up to its deadline."""
    last = here.ticks - int(asked.deadline_h * _HOUR // here.tick_s) - 1
    if last < 1:
        raise JobTraceError(
            f"the traces last {here.ticks * here.tick_s / _HOUR:.1f} h, less than the deadline of"
            f" {asked.deadline_h:g} h"
        )
    drawn = np.random.default_rng([asked.seed, 1]).integers(0, last, asked.starts)
    return tuple(drawn.tolist())


def _speed(gang: int) -> Callable[[int], float]:
    """Seconds of the whole gang's work by this many instances in a second."""
    scaling = ScalingCurve(per_doubling=DOUBLING)

    def speed(count: int) -> float:
        return 1.0 if count == gang else count * scaling.at(count) / (gang * scaling.at(gang))

    return speed


def _rule(name: str, asked: SpotRequest, line: ProgressLine) -> Rule:
    gang = asked.replicas
    loses_s = asked.flush_s if asked.noticed else asked.at_risk_s / 2
    terms = CostTerms(
        scaling=ScalingCurve(per_doubling=DOUBLING),
        eviction_h=(asked.restart_s + loses_s) / _HOUR,
        change_h=asked.restart_s / _HOUR,
    )
    if name == ON_DEMAND:
        return on_demand_only(gang)
    if name == GREEDY:
        return by_deadline(deadline.greedy, line, gang)
    if name == UNIFORM:
        return by_engine(deadline_ask(gang), terms, line)
    return by_engine(elastic_ask(asked.min_replicas or gang, gang), terms)


def _outcome(
    name: str, here: SpotMarket, runs: Sequence[SpotRun], asked: SpotRequest
) -> SpotOutcome:
    base = here.names.index(ON_DEMAND)
    return SpotOutcome(
        policy=name,
        runs=tuple(runs),
        spot_s=tuple(sum(run.paid_s) - run.paid_s[base] for run in runs),
        on_demand_s=tuple(run.paid_s[base] for run in runs),
        late_s=tuple(max(0.0, run.elapsed_s - asked.deadline_h * _HOUR) for run in runs),
    )


def _notes(asked: SpotRequest, series: Sequence[Series]) -> tuple[str, ...]:
    """Notes on the basis of the figures."""
    hours: Mapping[str, float] = {pool.name: 100 * pool.available for pool in series}
    up = ", ".join(f"{name} {part:.0f} %" for name, part in hours.items())
    days = min(len(pool.up) * pool.tick_s for pool in series) / 86_400
    notes = [f"pools give instances in {up} of {days:.0f} days; starts overlap."]
    if asked.noticed:
        notes.append(
            f"a loss is announced {asked.notice_s:g} s before: a checkpoint of"
            f" {asked.flush_s:g} s saves the work."
        )
    else:
        every = f"{asked.checkpoint_s:g} s" if asked.checkpoint_s else "none but when asked to stop"
        notes.append(f"no notice in time: a loss falls back to the last checkpoint ({every}).")
    if asked.trace == DRAWN:
        notes.append("drawn by the seed from hazards and run lengths measured on six zones.")
    return tuple(notes)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
