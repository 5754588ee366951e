# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Dynamic pricing: the study's ratios reproduced, and the product's policy beside the optimum.

The policy pays whole instances and restarts; its limit knows all prices. It must never charge the
policy less than the optimum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Final

import numpy as np

from bench.capacity_optimum import IDLE, Market, cheapest
from bench.capacity_prices import MODELS, Prices, Series
from bench.report import Figure, Row
from bench.study_pricing import StudyOffer, study_cost
from ullage.engines.capacity.pricing import PricedOffer, SwitchingTerms, choose_offer

PUBLISHED: Final = {
    "A3C": 3.53,
    "Transformer-256": 3.21,
    "Recommendation-8192": 2.76,
    "LM-80": 1.81,
    "CycleGAN": 1.64,
    "ResNet-50-128": 1.53,
}
RATIO_LIMIT: Final = 0.01
OPTIMUM_LIMIT: Final = 1.05
HONEST: Final = 1.5
RESTARTS_H: Final = (5 / 60, 0.25)
FROM: Final = date(2020, 2, 24)
"""Before it the second cloud has no prices: the optimum would wait for what no one could know."""
SLACK: Final = 1.2
"""Deadline of the deadline runs, in times the work takes on one V100."""
JOB_DAYS: Final = 4
"""Of one V100."""

Pick = Callable[[Series], bool]
STRATEGIES: Final[dict[str, tuple[Pick, bool]]] = {
    "baseline": (lambda one: one.kind == "p3.2xlarge", False),
    "gpu_type": (lambda one: one.kind in ("p3.2xlarge", "p2.xlarge"), False),
    "packed": (lambda one: one.cloud == "aws", False),
    "multi_cloud": (lambda one: True, False),
    "preemption": (lambda one: True, True),
}


def reproduce(prices: Prices, model: str) -> dict[str, float]:
    """Mean dollars of each of the study's strategies over its starts."""
    work = JOB_DAYS * 86400 * prices.speeds[model, "v100"]
    means = {}
    for name, (pick, again) in STRATEGIES.items():
        offers = [
            StudyOffer(
                name=one.name,
                gpus=one.gpus,
                speed=prices.speeds[model, one.gpu],
                prices=one.prices,
                ranked_whole=one.cloud == "azure",
            )
            for one in prices.series
            if pick(one)
        ]
        costs = [study_cost(offers, work, start, again=again) for start in prices.starts]
        means[name] = float(np.mean(costs))
    return means


@dataclass(frozen=True, slots=True, kw_only=True)
class Honest:
    """One job under honest charging.

    Attributes:
        policy: Dollars of the product's policy.
        optimum: Dollars of the cheapest way that ends on the same day or before.
        patient: Dollars of the cheapest way, however long it takes.
        baseline: Dollars on the zone of p3.2xlarge that is cheapest at the start.
        switches: Moves of the policy.
        unpaid: Moves whose saving was no more than their cost.
        late: With a deadline of 1.2 times the work on one V100 it ends too late.
    """

    policy: float
    optimum: float
    patient: float
    baseline: float
    switches: int
    unpaid: int
    late: bool


def honest(prices: Prices, model: str, start: int, restart_h: float) -> Honest:
    """The policy and its limit from one start."""
    mine = [one for one in prices.series if one.gpus == 1]
    speeds = np.array([prices.speeds[model, one.gpu] * 3600 for one in mine])
    table = np.array(
        [[np.nan if p is None else p for p in one.prices[start:]] for one in mine], dtype=float
    ).T
    market = Market(prices=table, speeds=speeds, restart_h=restart_h)
    work = JOB_DAYS * 24 * prices.speeds[model, "v100"] * 3600
    policy, days, switches, unpaid, _ = _follow(market, work, restart_h)
    base = [index for index, one in enumerate(mine) if one.kind == "p3.2xlarge"]
    fixed = min(base, key=lambda index: (np.nan_to_num(table[0, index], nan=np.inf), index))
    return Honest(
        policy=policy,
        optimum=cheapest(market, work, may_wait=False, periods=days).cost,
        patient=cheapest(market, work, may_wait=False).cost,
        baseline=_stay(market, work, fixed),
        switches=switches,
        unpaid=unpaid,
        late=_follow(market, work, restart_h, within_h=SLACK * JOB_DAYS * 24)[4] > 1e-6,
    )


def _follow(
    market: Market, work: float, restart_h: float, *, within_h: float | None = None
) -> tuple[float, int, int, int, float]:
    """Dollars, days, moves, unpaid moves and hours too late, of the product's policy."""
    cost, done, held, hours = 0.0, 0.0, IDLE, 0.0
    switches = unpaid = period = 0
    while done < work * (1 - 1e-12):
        row = market.row(period)
        offers = [
            PricedOffer(name=f"{index:03d}", price_per_hour=float(row[index]), speed=float(speed))
            for index, speed in enumerate(market.speeds)
            if not np.isnan(row[index])
        ]
        found = choose_offer(
            offers,
            None if held == IDLE else f"{held:03d}",
            work - done,
            hours_left=None if within_h is None else within_h - hours,
            settings=SwitchingTerms(restart_h=restart_h),
        )
        if found.chosen is None:
            raise ValueError("nothing is offered")
        offer = int(found.chosen.name)
        moved = held not in (IDLE, offer)
        switches += moved
        unpaid += moved and found.saving <= found.move_cost
        paid, more = market.run(period, offer, work - done, moved=moved)
        hours += paid / float(row[offer])
        cost, done, held, period = cost + paid, done + more, offer, period + 1
    late_h = 0.0 if within_h is None else max(0.0, hours - within_h)
    return cost, period, switches, unpaid, late_h


def _stay(market: Market, work: float, offer: int) -> float:
    cost, done, period = 0.0, 0.0, 0
    while done < work * (1 - 1e-12):
        paid, more = market.run(period, offer, work - done, moved=False)
        cost, done, period = cost + paid, done + more, period + 1
    return cost


def measure(prices: Prices, tick: Callable[[str], None]) -> tuple[dict[str, Figure], list[Row]]:
    """Both halves, as figures and rows."""
    figures: dict[str, Figure] = {}
    rows: list[Row] = []
    errors, worst, patient, gains, unpaid, late_runs = [], [], [], [], 0, 0
    for model in MODELS:
        means = reproduce(prices, model)
        ratio = means["baseline"] / means["preemption"]
        errors.append(abs(ratio / PUBLISHED[model] - 1))
        late = [start for start in prices.starts if prices.days[start] >= FROM]
        runs = [honest(prices, model, start, hours) for hours in RESTARTS_H for start in late]
        worst.append(max(one.policy / one.optimum for one in runs))
        patient.append(max(one.policy / one.patient for one in runs))
        paid = float(np.mean([one.policy for one in runs]))
        gains.append(float(np.mean([one.baseline for one in runs])) / paid)
        unpaid += sum(one.unpaid for one in runs)
        late_runs += sum(one.late for one in runs)
        name = model.lower().replace("-", "_")
        figures |= {f"{name}_ratio": round(ratio, 4), f"{name}_vs_optimum_max": round(worst[-1], 4)}
        figures[f"{name}_vs_patient_optimum_max"] = round(patient[-1], 4)
        figures[f"{name}_vs_baseline"] = round(gains[-1], 3)
        rows.append(
            Row(
                what=f"{model}: study, ratio baseline / re-decided daily",
                ours=f"{ratio:.2f} ({means['baseline']:.2f} / {means['preemption']:.2f} $)",
                baseline=f"{PUBLISHED[model]:.2f} published",
                limit="within 1 %",
            )
        )
        rows.append(
            Row(
                what=f"{model}: product policy, {len(late)} starts, restarts of 5 and 15 min",
                ours=f"{worst[-1]:.3f} x optimum of the same days at worst, "
                f"{patient[-1]:.3f} x one that may take any time",
                baseline=f"{gains[-1]:.2f} x cheaper than one zone of one type",
                limit=f"<= {OPTIMUM_LIMIT} x; >= {HONEST} x on 4 of 6",
            )
        )
        tick(f"prices: {model} {ratio:.3f}, {worst[-1]:.3f} x optimum")
    figures |= {
        "pricing_ratio_max_error": round(max(errors), 5),
        "vs_offline_optimum_max": round(max(worst), 5),
        "vs_patient_optimum_max": round(max(patient), 5),
        "models_beating_baseline": sum(gain >= HONEST for gain in gains),
        "switches_that_did_not_pay": unpaid,
        "pricing_deadline_misses": late_runs,
    }
    return figures, rows
