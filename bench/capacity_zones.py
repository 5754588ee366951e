# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""An elastic job over six real zones: expected cost per work beside simpler ways to choose pools.

All rules see the same zones at the same ticks; the hazard posterior is fed by probes from the
start of the traces. The oracle alone knows how long a zone will last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.capacity_live import live as as_it_runs
from bench.capacity_traces import ZONES, ZONES_BATCH, Trace, of_batch
from bench.devicechoice_tables import TableError
from bench.report import Figure, Row
from ullage.api.spot import SpotTerms
from ullage.engines.capacity.cost import CostTerms, ScalingCurve
from ullage.engines.capacity.records import Ask
from ullage_simulate.spot.market import Series, SpotMarket, market
from ullage_simulate.spot.play import Counts, Rule, SpotJob, SpotRun, play
from ullage_simulate.spot.rules import by_engine

STARTS: Final = 40
FIRST_DAY: Final = 10.0
LAST_DAY: Final = 38.0
"""Later starts might not end before the traces do."""
MACHINES: Final = 16
WORK_H: Final = 288.0
ON_DEMAND: Final = 3.06
TERMS: Final = CostTerms(
    scaling=ScalingCurve(per_doubling=0.97),
    eviction_h=5 / 60,
    change_h=3 / 60,
    reliable_per_hour=ON_DEMAND,
)
LIVE_TERMS: Final = SpotTerms(restart_cost_s=round(3600 * (TERMS.eviction_h + TERMS.change_h)))
"""What the operator is told that a restart costs."""
LIMITS: Final = {"cost": 0.41, "oracle": 1.03, "fixed_cost": 0.90, "fixed_time": 0.55, "evict": 0.9}

Lives = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The zones side by side.

    Attributes:
        market: Zones by name, with what probes know of them at each tick.
        lives: Ticks that each zone stays up from each tick on; the oracle's alone.
    """

    market: SpotMarket
    lives: Lives


def world(traces: Sequence[Trace], prices: Mapping[str, float]) -> World:
    """The zones with what probes know of them at each tick.

    Args:
        traces: Of all zones.
        prices: Dollars per hour of an instance, by the name of a zone; others are left out.

    Raises:
        TableError: a zone has no trace.
    """
    known = {trace.zone: trace for trace in of_batch(traces, ZONES_BATCH)}
    if unknown := sorted(prices.keys() - known.keys()):
        raise TableError(f"no trace of {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    zones = [known[name] for name in sorted(prices)]
    series = [
        Series(
            name=one.zone,
            tick_s=one.gap_s,
            up=one.up > 0,
            price=np.full(len(one.up), prices[one.zone]),
        )
        for one in zones
    ]
    here = market(series, None)
    lives = np.zeros(here.up.shape, dtype=np.int64)
    for zone in range(len(zones)):
        life = 0
        for tick in range(here.ticks - 1, -1, -1):
            life = life + 1 if here.up[zone, tick] else 0
            lives[zone, tick] = life
    return World(market=here, lives=lives)


def refill(order: Callable[[SpotMarket, int], Sequence[int]]) -> Rule:
    """Fill what is missing from the first zone of an order that is up."""

    def rule(here: SpotMarket, run: SpotRun, tick: int) -> Counts:
        missing = MACHINES - sum(run.held)
        gives = here.gives(tick)
        first = next((zone for zone in order(here, tick) if gives[zone]), None)
        if not missing or first is None:
            return run.held
        return tuple(count + missing * (zone == first) for zone, count in enumerate(run.held))

    return rule


def _cheapest(here: SpotMarket, tick: int) -> Sequence[int]:
    prices = here.prices(tick)
    return sorted(range(len(prices)), key=lambda zone: prices[zone])


def _random(here: SpotMarket, tick: int) -> Sequence[int]:
    order: list[int] = np.random.default_rng([2, tick]).permutation(len(here.names)).tolist()
    return order


def _longest(lives: Lives) -> Callable[[SpotMarket, int], Sequence[int]]:
    last = lives.shape[1] - 1

    def order(here: SpotMarket, tick: int) -> Sequence[int]:
        return sorted(range(len(here.names)), key=lambda zone: -lives[zone, min(tick, last)])

    return order


def rules(here: World) -> Mapping[str, Rule]:
    """All ways to choose zones."""
    return {
        "fixed": refill(lambda market, tick: _cheapest(market, tick)[:1]),
        "cheapest_first": refill(_cheapest),
        "random": refill(_random),
        "ours": by_engine(Ask(most=MACHINES), TERMS),
        "live": as_it_runs(MACHINES, JOB.work, WHOLE_S, LIVE_TERMS, delay=ON_DEMAND),
        "live_fixed_size": as_it_runs(MACHINES, JOB.work, WHOLE_S, LIVE_TERMS),
        "oracle": refill(_longest(here.lives)),
    }


def _toll(run: SpotRun, lost: int, changed: bool) -> float:
    """Losses and changes cost their own minutes each; the first start is no one's loss."""
    change_h = TERMS.change_h if changed and run.done else 0.0
    return run.stall_s + 3600 * (TERMS.eviction_h * (lost > 0) + change_h)


JOB: Final = SpotJob(
    work=3600 * WORK_H,
    speed=lambda count: count * TERMS.scaling.at(count),
    toll=_toll,
    reliable_per_hour=TERMS.reliable_per_hour,
)
"""What a loss costs stands in the toll, so nothing falls back to a checkpoint here."""
WHOLE_S: Final = JOB.work / JOB.speed(MACHINES)
"""Seconds that the undisturbed gang needs."""


def measure(
    traces: Sequence[Trace],
    tick: Callable[[str], None],
    starts: int = STARTS,
    prices: Mapping[str, float] = ZONES,
    days: tuple[float, float] = (FIRST_DAY, LAST_DAY),
) -> tuple[dict[str, Figure], list[Row]]:
    """Every rule from the same starts.

    Args:
        traces: Of all zones.
        tick: Told of each step.
        starts: Of the job.
        prices: Dollars per hour of an instance, by the name of each zone to play on.
        days: Of the traces, between which the jobs start.

    Raises:
        TableError: a zone has no trace, or no job ends within the traces.
    """
    here = world(traces, prices)
    tick("zones: posteriors from probes")
    first = np.linspace(*days, starts) * 86_400 / here.market.tick_s
    alone = ON_DEMAND * MACHINES * WORK_H / (MACHINES * TERMS.scaling.at(MACHINES))
    mean: dict[str, tuple[float, float, float, float]] = {}
    ways = rules(here)
    plays = {name: list[SpotRun]() for name in ways}
    for start in first:
        try:
            once = {name: play(here.market, JOB, rule, int(start)) for name, rule in ways.items()}
        except ValueError:  # some rule does not end within the traces
            continue
        for name, run in once.items():
            plays[name].append(run)
    if not plays["ours"]:
        raise TableError("no job ends within the traces: choose other zones or earlier days")
    for name, runs in plays.items():
        mean[name] = (
            float(np.mean([run.dollars for run in runs])) / alone,
            float(np.mean([run.elapsed_s for run in runs])) / 3600,
            float(np.mean([run.evictions for run in runs])),
            float(np.mean([run.starts for run in runs])),
        )
        tick(f"zones: {name} {mean[name][0]:.3f}, {mean[name][1]:.1f} h, {mean[name][2]:.1f} lost")
    return _figures(mean), _rows(mean, len(plays["ours"]))


def _figures(mean: Mapping[str, tuple[float, float, float, float]]) -> dict[str, Figure]:
    mine, fixed = mean["ours"], mean["fixed"]
    found: dict[str, Figure] = {
        "cost_per_work": round(mine[0], 4),
        "oracle_cost_per_work": round(mean["oracle"][0], 4),
        "cost_vs_oracle": round(mine[0] / mean["oracle"][0], 4),
        "cost_vs_fixed": round(mine[0] / fixed[0], 4),
        "runtime_vs_fixed": round(mine[1] / fixed[1], 4),
        "evictions_ratio": round(mine[2] / mean["cheapest_first"][2], 4),
        "live_cost_per_work": round(mean["live"][0], 4),
        "live_vs_fixed": round(mean["live"][0] / fixed[0], 4),
        "live_runtime_vs_fixed": round(mean["live"][1] / fixed[1], 4),
        "live_evictions_ratio": round(mean["live"][2] / mean["cheapest_first"][2], 4),
    }
    for name, (cost, hours, evictions, moves) in mean.items():
        found |= {
            f"zones_{name}_cost_per_work": round(cost, 4),
            f"zones_{name}_runtime_hours": round(hours, 3),
            f"zones_{name}_evictions": round(evictions, 3),
            f"zones_{name}_changes": round(moves, 3),
        }
    return found


def _rows(mean: Mapping[str, tuple[float, float, float, float]], starts: int) -> list[Row]:
    mine, fixed, cheap = mean["ours"], mean["fixed"], mean["cheapest_first"]
    oracle, live = mean["oracle"], mean["live"]
    return [
        Row(
            what=f"zones, {starts} starts, with probes: cost per work, part of on-demand",
            ours=f"{mine[0]:.3f}",
            baseline=f"{cheap[0]:.3f} cheapest first, {mean['random'][0]:.3f} random",
            limit=f"<= {LIMITS['cost']}; oracle {oracle[0]:.3f}",
        ),
        Row(
            what="cost against one fixed zone",
            ours=f"{mine[0] / fixed[0]:.3f}",
            baseline=f"{fixed[0]:.3f} of on-demand",
            limit=f"<= {LIMITS['fixed_cost']}",
        ),
        Row(
            what="run time against one fixed zone",
            ours=f"{mine[1] / fixed[1]:.3f} ({mine[1]:.1f} h)",
            baseline=f"{fixed[1]:.1f} h",
            limit=f"<= {LIMITS['fixed_time']}",
        ),
        Row(
            what="evictions against cheapest first",
            ours=f"{mine[2] / cheap[2]:.3f} ({mine[2]:.1f})",
            baseline=f"{cheap[2]:.1f}, {mean['random'][2]:.1f} random",
            limit=f"<= {LIMITS['evict']}; oracle {oracle[2]:.1f}",
        ),
        Row(
            what="as the operator runs, without probes: cost per work",
            ours=f"{live[0]:.3f} of on-demand, {live[0] / fixed[0]:.3f} of the fixed zone",
            baseline=f"{cheap[0]:.3f} cheapest first, {mean['live_fixed_size'][0]:.3f} fixed size",
            limit=f"<= {LIMITS['fixed_cost']} of the fixed zone; oracle {oracle[0]:.3f}",
        ),
        Row(
            what="as the operator runs: run time, evictions",
            ours=f"{live[1]:.1f} h, {live[2]:.1f}",
            baseline=f"{cheap[1]:.1f} h, {cheap[2]:.1f} cheapest first",
            limit=f"oracle {oracle[1]:.1f} h, {oracle[2]:.1f}",
        ),
    ]
