# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Replicas by objective beside HPA and a clairvoyant, on public traces, in virtual time.

Every scaler sees the same requests and decides every fifteen seconds. HPA follows the utilisation
of its replicas by its own rules; its target and its stabilization window are tuned on the very
trace, until it attains what ours does with the fewest device-seconds. The clairvoyant knows the
load of every bin to come, and its margin is tuned in the same way. Ours is tuned on nothing.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from bench import autoscale_harvest, report
from bench.autoscale_service import MEAN_S, QUANTILE, SERVICE, TARGET
from bench.autoscale_traces import Trace, traces
from bench.progress import Progress
from ullage.engines.scaling.autoscaler import ScalingTerms
from ullage.engines.scaling.configurations import Configuration
from ullage.engines.scaling.pooled_queue import PooledLoad, replicas_needed
from ullage.engines.scaling.simulator import (
    PlayedRequests,
    RequestLoad,
    Scaler,
    ScalerView,
    play_requests,
)
from ullage.engines.scaling.stabilisation import ReplicaNeed, desired_replicas
from ullage.scheduling.times import LOAD_SEASON_S
from ullage_simulate.serving import objective_scaler

BIN_S: Final = 15.0
LAUNCH_S: Final = 45.0
AHEAD: Final = int(np.ceil(LAUNCH_S / BIN_S)) + 1
"""Bins in which what is asked for now begins to serve."""
MOST: Final = 200
TOLERANCE: Final = 0.1
"""HPA changes nothing within this part of its target."""
WINDOWS_S: Final = (0.0, 60.0, 300.0)
"""Stabilization windows that are tried for HPA."""
TARGETS: Final = tuple(np.arange(0.95, 0.2, -0.05))
MARGINS: Final = tuple(np.arange(0.8, 2.01, 0.05))
LIVE: Final = ("wake_ratio", "wake_s", "start_s", "start_unlimited_s", "wakes", "lost")
"""What `bench.wake` measured on a cluster."""
BARS: Final[report.Bars] = {
    "attainment": lambda found: found >= QUANTILE,
    "device_seconds_vs_hpa": lambda found: found <= 0.8,
    "vs_clairvoyant": lambda found: found <= 1.25,
    **autoscale_harvest.BARS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a scaler attained, and the device-seconds that it took."""

    attainment: float
    replica_s: float
    tuned: str = ""


def requests_of(trace: Trace, seed: int) -> RequestLoad:
    """Arrivals of the trace, with service times drawn from the seed."""
    drawn = np.random.default_rng(seed).lognormal(
        math.log(MEAN_S) - SERVICE.sigma**2 / 2, SERVICE.sigma, trace.arrival_s.size
    )
    return RequestLoad(arrival_s=trace.arrival_s, service_s=drawn)


def ours() -> Scaler:
    """The autoscaler of `ullage simulate --requests`."""
    terms = ScalingTerms(
        target=TARGET, least=1, most=MOST, bin_s=BIN_S, launch_s=LAUNCH_S, season_s=LOAD_SEASON_S
    )
    one = Configuration(accelerator="any", share_percent=100, service=SERVICE, cost=1.0)
    return objective_scaler(one, terms)


def hpa(target: float, window_s: float) -> Scaler:
    """HorizontalPodAutoscaler on utilisation: its ratio, tolerance, policies and window."""
    needs: list[ReplicaNeed] = []

    def scaler(seen: ScalerView) -> int:
        ratio = seen.busy / max(1, seen.ready) / target
        wanted = seen.current
        if abs(ratio - 1) > TOLERANCE:
            wanted = min(MOST, max(1, int(np.ceil(seen.ready * ratio - 1e-9))))
        wanted = min(wanted, max(2 * seen.current, seen.current + 4))
        needs.append(ReplicaNeed(at_s=seen.now_s, replicas=wanted))
        return desired_replicas(needs, seen.now_s, window_s, seen.current)

    return scaler


def needs_of(trace: Trace, margin: float) -> list[int]:
    """Replicas that the true load of each bin needs."""
    rates = trace.rates(BIN_S) * margin
    return [
        replicas_needed(SERVICE, PooledLoad(requests_per_s=float(rate)), TARGET, MOST) or MOST
        for rate in rates
    ]


def clairvoyant(trace: Trace, margin: float) -> Scaler:
    """Knows the load of each bin; what it asks for serves in time."""
    needs = needs_of(trace, margin)

    def scaler(seen: ScalerView) -> int:
        at = round(seen.now_s / BIN_S)
        return max(needs[at : at + AHEAD], default=1)

    return scaler


def played(trace: Trace, scaler: Scaler, seed: int) -> PlayedRequests:
    """A scaler on a trace."""
    return play_requests(
        requests_of(trace, seed),
        scaler,
        limit_s=TARGET.limit_s,
        bin_s=BIN_S,
        launch_s=LAUNCH_S,
        first=max(needs_of(trace, 1.0)[:AHEAD]),
    )


def result(trace: Trace, scaler: Scaler, seed: int, tuned: str = "") -> Result:
    """What a scaler attains on a trace."""
    found = played(trace, scaler, seed)
    return Result(attainment=found.attained(TARGET.limit_s), replica_s=found.replica_s, tuned=tuned)


def tuned(
    trace: Trace, seed: int, settings: Sequence[tuple[str, Callable[[], Scaler]]], goal: float
) -> Result:
    """The cheapest setting that attains the goal, the settings in order of rising cost.

    Where none does, the one that attains the most.
    """
    best: Result | None = None
    for name, make in settings:
        found = result(trace, make(), seed, name)
        if found.attainment >= goal:
            return found
        if best is None or found.attainment > best.attainment:
            best = found
    assert best is not None
    return best


def hpa_tuned(trace: Trace, seed: int, goal: float) -> Result:
    """HPA at its best target and window."""
    found = [
        tuned(
            trace,
            seed,
            [
                (
                    f"target {target:.2f}, window {window:.0f} s",
                    partial(hpa, target, window),
                )
                for target in TARGETS
            ],
            goal,
        )
        for window in WINDOWS_S
    ]
    keeps = [one for one in found if one.attainment >= goal]
    if keeps:
        return min(keeps, key=lambda one: one.replica_s)
    return max(found, key=lambda one: one.attainment)


def compare(trace: Trace, seed: int, progress: Progress) -> dict[str, Result]:
    """All scalers on one trace; the others are tuned to attain what ours does."""
    progress.say(f"{trace.name}: {trace.arrival_s.size:,} requests, ours")
    mine = result(trace, ours(), seed)
    goal = mine.attainment
    progress.say(f"{trace.name}: HPA")
    peer = hpa_tuned(trace, seed, goal)
    progress.say(f"{trace.name}: clairvoyant")
    margins = [(f"margin {margin:.2f}", partial(clairvoyant, trace, margin)) for margin in MARGINS]
    return {"ours": mine, "hpa": peer, "clairvoyant": tuned(trace, seed, margins, goal)}


def figures_of(found: dict[str, dict[str, Result]]) -> dict[str, report.Figure]:
    """The worst trace counts."""
    figures: dict[str, report.Figure] = {
        "attainment": min(one["ours"].attainment for one in found.values()),
        "objective": QUANTILE,
        "device_seconds_vs_hpa": max(
            one["ours"].replica_s / one["hpa"].replica_s for one in found.values()
        ),
        "vs_clairvoyant": max(
            one["ours"].replica_s / one["clairvoyant"].replica_s for one in found.values()
        ),
        "wake_ratio": None,
        "lost": None,
    }
    for name, results in found.items():
        for who, one in results.items():
            figures[f"{name}_{who}_attainment"] = one.attainment
            figures[f"{name}_{who}_device_seconds"] = one.replica_s
    return figures


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=report.DATA)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(words)
    found_traces = traces(given.data, given.seed)
    if not found_traces:
        print(f"no request traces in {given.data}/inference: nothing is measured")
        return 0
    with Progress() as progress:
        found = {trace.name: compare(trace, given.seed, progress) for trace in found_traces}
        beside = autoscale_harvest.play(given.data, given.seed, progress)
    before = report.figures_before("autoscale")
    live = {name: before[name] for name in LIVE if name in before}
    figures = figures_of(found) | autoscale_harvest.figures_of(beside) | live
    rows = [
        report.Row(
            what=f"{name}: {who}",
            ours=f"{one.attainment:.4f}",
            baseline=f"{one.replica_s:,.0f} device-s",
            limit=one.tuned,
        )
        for name, results in found.items()
        for who, one in results.items()
    ]
    report.write("autoscale", figures, [*rows, *autoscale_harvest.table(beside)])
    return report.judge(figures, BARS)


if __name__ == "__main__":
    sys.exit(main())
