# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pools of instances over time: available instances, price and hazard at each tick.

Drawn from hazards and run lengths measured on public traces, so that comparisons need no data.
Availability counts up: 1 means that a pool has instances, never the reverse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ullage.engines.capacity.hazard import Hazard, Prior
from ullage.engines.capacity.records import CapacityType, Pool
from ullage_simulate.times import MARKET_TICK_S

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

ON_DEMAND: Final = "on-demand"
"""Name of the pool that is always available."""
PRIOR: Final = Prior(events=0.1, hours=10.0)
DAYS: Final = 28
SPREAD: Final = 1.3
"""Standard deviation of the logarithm of a run: a coefficient of variation of 2.1. Measured on
public traces, of periods up and down alike: 1.4 to 2.6, medians a fifth to a half of the mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Instances of one pool over time, from a trace.

    Attributes:
        name: Of the pool, unique.
        tick_s: Seconds per tick.
        up: Availability at each tick.
        price: Dollars per hour of one instance at each tick; empty = unknown.
    """

    name: str
    tick_s: int
    up: Bools
    price: Floats

    @property
    def available(self) -> float:
        """Fraction of the time in which it was available."""
        return float(self.up.mean()) if len(self.up) else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotMarket:
    """Pools side by side.

    Attributes:
        names: Of the pools.
        kinds: Purchase option of each.
        up: Pools x ticks; spot is unavailable after the last one, on-demand never is.
        price: Dollars per hour of one instance, pools x ticks; the last one stays.
        hazard: Expected losses per hour of each pool, as estimated by probes, pools x ticks.
        tick_s: Seconds per tick.
    """

    names: tuple[str, ...]
    kinds: tuple[CapacityType, ...]
    up: Bools
    price: Floats
    hazard: Floats
    tick_s: int

    @property
    def ticks(self) -> int:
        """Length of the traces, in ticks."""
        return int(self.up.shape[1])

    def gives(self, tick: int) -> tuple[bool, ...]:
        """Available pools."""
        if tick < self.ticks:
            there: list[bool] = self.up[:, tick].tolist()
            return tuple(there)
        return tuple(kind is not CapacityType.SPOT for kind in self.kinds)

    def prices(self, tick: int) -> tuple[float, ...]:
        """Dollars per hour of an instance of each pool."""
        prices: list[float] = self.price[:, min(tick, self.ticks - 1)].tolist()
        return tuple(prices)

    def pools(self, tick: int) -> list[Pool]:
        """The pools as input of the engine."""
        rates: list[float] = self.hazard[:, min(tick, self.ticks - 1)].tolist()
        return [
            Pool(
                name=name,
                capacity_type=kind,
                price_per_hour=price,
                hazard_per_hour=rate if kind is CapacityType.SPOT else 0.0,
                available=there,
            )
            for name, kind, price, rate, there in zip(
                self.names, self.kinds, self.prices(tick), rates, self.gives(tick), strict=True
            )
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """Behaviour of a pool of spot instances.

    Attributes:
        name: Of the pool.
        price: Dollars per hour of one instance.
        hazard_per_hour: Losses per hour of availability.
        gap_h: Mean hours of unavailability.
    """

    name: str
    price: float
    hazard_per_hour: float
    gap_h: float


ZONES: Final = (
    Zone(name="zone-a", price=0.98, hazard_per_hour=1.39, gap_h=3.6),
    Zone(name="zone-c", price=0.953, hazard_per_hour=0.67, gap_h=1.7),
    Zone(name="zone-d", price=0.954, hazard_per_hour=0.60, gap_h=2.05),
    Zone(name="zone-f", price=0.941, hazard_per_hour=0.44, gap_h=1.55),
    Zone(name="zone-w", price=1.015, hazard_per_hour=0.16, gap_h=0.8),
    Zone(name="zone-x", price=1.002, hazard_per_hour=0.15, gap_h=0.85),
)
"""Hazards, gaps and prices as measured on six zones with one type of GPU in 2023 and 2020."""
ON_DEMAND_PRICE: Final = 3.06


def generate(
    zones: Sequence[Zone] = ZONES, *, seed: int = 0, days: float = DAYS, tick_s: int = MARKET_TICK_S
) -> tuple[Series, ...]:
    """Draw the availability of every zone: alternating lognormal runs of the zones' means.

    Args:
        zones: Each has separate draws, so that one more zone changes no other.
        seed: Seed of the draws.
        days: Length.
        tick_s: Seconds per tick; shorter runs are lost between two ticks.
    """
    ticks = round(days * 86_400 / tick_s)
    return tuple(
        Series(
            name=zone.name,
            tick_s=tick_s,
            up=_runs(zone, np.random.default_rng([seed, number]), ticks, tick_s),
            price=np.full(ticks, zone.price),
        )
        for number, zone in enumerate(zones)
    )


def _runs(zone: Zone, draw: np.random.Generator, ticks: int, tick_s: int) -> Bools:
    mean_s = (3600 * zone.gap_h, 3600 / zone.hazard_per_hour)
    state = bool(draw.random() < mean_s[1] / sum(mean_s))
    up, at_s = np.zeros(ticks, dtype=bool), 0.0
    while at_s < ticks * tick_s:
        # the mean of a lognormal is e^(m + s^2 / 2)
        length_s = mean_s[state] * float(np.exp(SPREAD * draw.normal() - SPREAD**2 / 2))
        first, last = round(at_s / tick_s), round((at_s + length_s) / tick_s)
        up[first:last] = state
        at_s, state = at_s + length_s, not state
    return up


def known_hazard(up: Bools, tick_s: int, prior: Prior = PRIOR) -> Floats:
    """Expected losses per hour at each tick, as estimated by a probe from the first tick on.

    Args:
        up: Of one pool.
        tick_s: Seconds per tick.
        prior: Prior.
    """
    hazard, hours = Hazard(prior=prior), tick_s / 3600
    rates = np.zeros(len(up))
    was = False
    for tick, there in enumerate(up.tolist()):
        hazard = hazard.after(hours, held=was)
        if was and not there:
            hazard = hazard.lost()
        elif there and not was:
            hazard = hazard.gained()
        rates[tick] = hazard.rate_per_hour
        was = there
    return rates


def market(series: Sequence[Series], on_demand: float | None) -> SpotMarket:
    """Pools side by side, on-demand last.

    Args:
        series: Of one tick length; each with its prices. The shortest sets the length of all.
        on_demand: Dollars per hour of an instance that is always available; ``None`` = there is
            none.

    Raises:
        ValueError: no pools, ticks of several lengths, or a pool without a price.
    """
    if not series:
        raise ValueError("a market has pools")
    gaps = {pool.tick_s for pool in series}
    if len(gaps) > 1:
        listed = ", ".join(f"{gap} s" for gap in sorted(gaps))
        raise ValueError(f"traces with ticks of {listed} do not run side by side")
    bare = [pool.name for pool in series if not len(pool.price)]
    if bare:
        raise ValueError(f"no price of {', '.join(bare)}")
    ticks = min(len(pool.up) for pool in series)
    if not ticks:
        raise ValueError("a trace without ticks")
    (tick_s,) = gaps
    up = [pool.up[:ticks] for pool in series]
    price = [pool.price[:ticks] for pool in series]
    hazard = [known_hazard(row, tick_s) for row in up]
    names = [pool.name for pool in series]
    kinds = [CapacityType.SPOT] * len(series)
    if on_demand is not None:
        up.append(np.ones(ticks, dtype=bool))
        price.append(np.full(ticks, on_demand))
        hazard.append(np.zeros(ticks))
        names.append(ON_DEMAND)
        kinds.append(CapacityType.ON_DEMAND)
    return SpotMarket(
        names=tuple(names),
        kinds=tuple(kinds),
        up=np.array(up),
        price=np.array(price),
        hazard=np.array(hazard),
        tick_s=tick_s,
    )
