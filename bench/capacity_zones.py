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

from bench.capacity_traces import ZONES, ZONES_BATCH, Trace, of_batch
from bench.report import Figure, Row
from ullage.engines.capacity.cost import Scaling, Terms
from ullage.engines.capacity.decide import decide
from ullage.engines.capacity.hazard import Hazard, Prior
from ullage.engines.capacity.records import Ask, Holding, Pool

STARTS: Final = 40
FIRST_DAY: Final = 10.0
LAST_DAY: Final = 38.0
"""Later starts might not end before the traces do."""
MACHINES: Final = 16
WORK_H: Final = 288.0
ON_DEMAND: Final = 3.06
TERMS: Final = Terms(
    scaling=Scaling(per_doubling=0.97),
    eviction_h=5 / 60,
    change_h=3 / 60,
    reliable_per_hour=ON_DEMAND,
)
PRIOR: Final = Prior(events=0.1, hours=10.0)
FIXED: Final = "us-east-1f"
LIMITS: Final = {"cost": 0.41, "oracle": 1.03, "fixed_cost": 0.90, "fixed_time": 0.55, "evict": 0.9}

Counts = tuple[int, ...]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The zones side by side.

    Attributes:
        names: Of the zones, sorted.
        prices: Dollars per hour of an instance.
        up: Zones x ticks.
        rates: Posterior hazard per hour, zones x ticks.
        lives: Ticks that each zone stays up from each tick on.
        tick_h: Hours per tick.
    """

    names: tuple[str, ...]
    prices: tuple[float, ...]
    up: NDArray[np.bool_]
    rates: Floats
    lives: NDArray[np.int64]
    tick_h: float


@dataclass(slots=True)
class Play:
    """A job under way."""

    held: Counts
    since: list[int]
    """Tick at which each zone's instances were acquired."""
    cost: float = 0.0
    work: float = 0.0
    debt_h: float = 0.0
    evictions: int = 0
    moves: int = 0
    hours: float = 0.0


Rule = Callable[[World, Play, int], Counts]


def world(traces: Sequence[Trace]) -> World:
    """The six zones with what probes know of them at each tick."""
    zones = sorted(of_batch(traces, ZONES_BATCH), key=lambda one: one.zone)
    ticks = min(len(one.up) for one in zones)
    up = np.array([one.up[:ticks] > 0 for one in zones])
    rates, lives = np.zeros(up.shape), np.zeros(up.shape, dtype=np.int64)
    hours = zones[0].gap_s / 3600
    for zone in range(len(zones)):
        hazard = Hazard(prior=PRIOR)
        for tick in range(ticks):
            was = tick > 0 and bool(up[zone, tick - 1])
            hazard = hazard.after(hours, held=was)
            if was and not up[zone, tick]:
                hazard = hazard.lost()
            elif up[zone, tick] and not was:
                hazard = hazard.gained()
            rates[zone, tick] = hazard.rate_per_hour
        life = 0
        for tick in range(ticks - 1, -1, -1):
            life = life + 1 if up[zone, tick] else 0
            lives[zone, tick] = life
    return World(
        names=tuple(one.zone for one in zones),
        prices=tuple(ZONES[one.zone] for one in zones),
        up=up,
        rates=rates,
        lives=lives,
        tick_h=hours,
    )


def ours(here: World, play: Play, tick: int) -> Counts:
    """The engine's decision."""
    pools = [
        Pool(
            name=name,
            price_per_hour=price,
            hazard_per_hour=float(rate),
            available=bool(there),
        )
        for name, price, rate, there in zip(
            here.names, here.prices, here.rates[:, tick], here.up[:, tick], strict=True
        )
    ]
    held = tuple(
        Holding(pool=name, instances=count, held_s=(tick - since) * here.tick_h * 3600)
        for name, count, since in zip(here.names, play.held, play.since, strict=True)
        if count
    )
    chosen = decide(Ask(most=MACHINES, held=held), pools, TERMS).chosen
    counts = {one.pool: one.instances for one in chosen.shares}
    return tuple(counts.get(name, 0) for name in here.names)


def refill(order: Callable[[World, int], Sequence[int]]) -> Rule:
    """Fill what is missing from the first zone of an order that is up."""

    def rule(here: World, play: Play, tick: int) -> Counts:
        missing = MACHINES - sum(play.held)
        first = next((zone for zone in order(here, tick) if here.up[zone, tick]), None)
        if not missing or first is None:
            return play.held
        return tuple(count + missing * (zone == first) for zone, count in enumerate(play.held))

    return rule


def _cheapest(here: World, _: int) -> Sequence[int]:
    return sorted(range(len(here.names)), key=lambda zone: here.prices[zone])


def _random(here: World, tick: int) -> Sequence[int]:
    order: list[int] = np.random.default_rng([2, tick]).permutation(len(here.names)).tolist()
    return order


def _longest(here: World, tick: int) -> Sequence[int]:
    return sorted(range(len(here.names)), key=lambda zone: -here.lives[zone, tick])


RULES: Final[Mapping[str, Rule]] = {
    "fixed": refill(lambda here, _: [here.names.index(FIXED)]),
    "cheapest_first": refill(_cheapest),
    "random": refill(_random),
    "ours": ours,
    "oracle": refill(_longest),
}


def run(here: World, rule: Rule, start: int) -> Play:
    """One job from a tick on.

    Raises:
        ValueError: the traces end before the job does.
    """
    zones = len(here.names)
    play = Play(held=(0,) * zones, since=[start] * zones)
    for tick in range(start, here.up.shape[1]):
        lost = [zone for zone in range(zones) if play.held[zone] and not here.up[zone, tick]]
        if lost:
            play.evictions += len(lost)
            play.debt_h += TERMS.eviction_h
            play.held = tuple(0 if zone in lost else n for zone, n in enumerate(play.held))
        wanted = rule(here, play, tick)
        if wanted != play.held:
            play.moves += 1
            play.debt_h += TERMS.change_h if play.work else 0.0
            fresh = [zone for zone in range(zones) if wanted[zone] and not play.held[zone]]
            play.since = [tick if zone in fresh else at for zone, at in enumerate(play.since)]
            play.held = wanted
        if _work(here, play):
            return play
    raise ValueError("the traces end before the job does")


def _work(here: World, play: Play) -> bool:
    """One tick of paying and working; whether the job is done."""
    count = sum(play.held)
    speed = count * TERMS.scaling.at(count)
    working = max(0.0, here.tick_h - play.debt_h) if count else 0.0
    left = WORK_H - play.work
    done = speed * working >= left
    spent = here.tick_h - working + left / speed if done else here.tick_h
    price = TERMS.reliable_per_hour + sum(
        price * held for price, held in zip(here.prices, play.held, strict=True)
    )
    play.cost += price * spent
    play.hours += spent
    play.work = WORK_H if done else play.work + speed * working
    if count:
        play.debt_h = max(0.0, play.debt_h - here.tick_h)
    return done


def measure(
    traces: Sequence[Trace], tick: Callable[[str], None], starts: int = STARTS
) -> tuple[dict[str, Figure], list[Row]]:
    """Every rule from the same starts."""
    here = world(traces)
    tick("zones: posteriors from probes")
    first = np.linspace(FIRST_DAY, LAST_DAY, starts) * 24 / here.tick_h
    alone = ON_DEMAND * MACHINES * WORK_H / (MACHINES * TERMS.scaling.at(MACHINES))
    mean: dict[str, tuple[float, float, float, float]] = {}
    for name, rule in RULES.items():
        plays = [run(here, rule, int(start)) for start in first]
        mean[name] = (
            float(np.mean([one.cost for one in plays])) / alone,
            float(np.mean([one.hours for one in plays])),
            float(np.mean([one.evictions for one in plays])),
            float(np.mean([one.moves for one in plays])),
        )
        tick(f"zones: {name} {mean[name][0]:.3f}, {mean[name][1]:.1f} h, {mean[name][2]:.1f} lost")
    return _figures(mean), _rows(mean, starts)


def _figures(mean: Mapping[str, tuple[float, float, float, float]]) -> dict[str, Figure]:
    mine, fixed = mean["ours"], mean["fixed"]
    found: dict[str, Figure] = {
        "cost_per_work": round(mine[0], 4),
        "oracle_cost_per_work": round(mean["oracle"][0], 4),
        "cost_vs_oracle": round(mine[0] / mean["oracle"][0], 4),
        "cost_vs_fixed": round(mine[0] / fixed[0], 4),
        "runtime_vs_fixed": round(mine[1] / fixed[1], 4),
        "evictions_ratio": round(mine[2] / mean["cheapest_first"][2], 4),
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
    oracle = mean["oracle"]
    return [
        Row(
            what=f"six zones, {starts} starts: cost per work, part of on-demand",
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
    ]
