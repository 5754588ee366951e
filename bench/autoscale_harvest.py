# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Training in the headroom of a scaled service, beside the service alone and a static share.

The cluster has as many devices as the service alone needs at its peak. Idle is all their time but
what requests take; steps of training count in seconds that they take alone on a device, what a stop
loses is taken off, and no second of a device counts twice. The static share is what people do
without an operator: a replica and a job on every device, all the time.
``python -m bench.autoscale_harvest`` plays this alone, and keeps the other figures of the file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Final

import numpy as np

from bench import report
from bench.autoscale_cluster import Harvest, Served, ServedCluster
from bench.autoscale_service import SERVICE, TARGET
from bench.autoscale_traces import Trace, traces
from bench.progress import Progress
from bench.twin_data import Tables, load
from ullage.engines.scaling.forecast import Floats
from ullage.engines.scaling.pooled_queue import PooledLoad, replicas_needed

ACTS_AS: Final = "ResNet-50 (batch size 16)"
"""As `resnet50` serves in the twin."""
PEAK_PER_S: Final = 6.0
"""Requests per second of the highest minutes: a dozen devices at the objective."""
MOST: Final = 24
"""Devices of the service alone, more than it needs."""
FIRST_S: Final = 120.0
"""The load of so long is served from the beginning."""
WORSE: Final = 0.002
"""Part of the requests that training may make late."""
DEVICE: Final = "v100"
TRACES: Final = ("genai_fast", "azure_hour")
"""Played: the day as it was has the shape of the fast one, and takes five times as long."""
SERVED: Final = Served(time=SERVICE, target=TARGET, acts_as=ACTS_AS)
BARS: Final[report.Bars] = {
    "harvest_fraction": lambda found: found >= 0.6,
    "harvest_attainment_lost": lambda found: found <= WORSE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Harvested:
    """One way of using the devices of a trace."""

    attainment: float
    idle_s: float
    """Device-seconds in which no request is served, on devices of their own."""
    trained_s: float
    replica_s: float
    evictions: int = 0
    paused_s: float = 0.0

    @property
    def fraction(self) -> float:
        """The part of the idle time that became steps."""
        return self.trained_s / self.idle_s


def thinned(trace: Trace, seed: int) -> Floats:
    """A part of the requests, so that a dozen devices are enough for them."""
    peak = float(np.quantile(trace.rates(60.0), 0.99))
    keep = min(1.0, PEAK_PER_S / peak)
    drawn = np.random.default_rng([seed, 5]).random(trace.arrival_s.size)
    return np.asarray(trace.arrival_s[drawn < keep])


def compare(
    trace: Trace, served: Served, tables: Tables, seed: int, progress: Progress
) -> tuple[int, dict[str, Harvested]]:
    """The devices, and what came of each way of using them."""
    arrival_s = thinned(trace, seed)
    service_s = np.random.default_rng([seed, 6]).lognormal(
        np.log(served.time.mean_s) - served.time.sigma**2 / 2, served.time.sigma, arrival_s.size
    )
    limit_s, long_s = served.target.limit_s, float(arrival_s[-1])

    def harvested(found: Harvest, gpus: int) -> Harvested:
        return Harvested(
            attainment=found.attained(limit_s),
            idle_s=gpus * long_s - float(service_s.sum()),
            trained_s=found.trained_s,
            replica_s=found.replica_s,
            evictions=found.evictions,
            paused_s=found.paused_s,
        )

    first = first_replicas(served, arrival_s)
    progress.say(f"{trace.name}: {arrival_s.size:,} requests, the service alone")
    alone = ServedCluster(tables, served, gpus=MOST, first=first, trains=False, seed=seed)
    lonely = alone.run(arrival_s, service_s)
    gpus = lonely.most_replicas
    progress.say(f"{trace.name}: {gpus} devices, with training")
    ours = ServedCluster(tables, served, gpus=gpus, first=first, trains=True, seed=seed)
    with_training = ours.run(arrival_s, service_s)
    return gpus, {
        "alone": harvested(lonely, gpus),
        "ours": harvested(with_training, gpus),
        "static": harvested(
            static_share(tables, served, gpus, arrival_s, service_s, seed=seed), gpus
        ),
    }


def first_replicas(served: Served, arrival_s: Floats) -> int:
    """Replicas that the load of the beginning needs, each with a queue of its own."""
    rate = float(np.count_nonzero(arrival_s < FIRST_S)) / FIRST_S
    load = PooledLoad(requests_per_s=rate, pooled=False)
    return replicas_needed(served.time, load, served.target, MOST) or MOST


def static_share(
    tables: Tables, served: Served, gpus: int, arrival_s: Floats, service_s: Floats, *, seed: int
) -> Harvest:
    """A replica and a job on every device, all the time; jobs as they come, none is judged."""
    kinds = [one for one in tables.classes if one.serving is None and not one.whole]
    beside = list(islice(cycle(kinds), gpus))
    pairs = [tables.pairs[served.acts_as, one.acts_as] for one in beside]
    found = Harvest(most_replicas=gpus, replica_s=gpus * float(arrival_s[-1]))
    free_at = np.zeros(gpus)
    chosen = np.random.default_rng([seed, 3]).integers(gpus, size=arrival_s.size)
    for arrives, takes, at in zip(arrival_s, service_s, chosen, strict=True):
        ends = max(float(arrives), float(free_at[at])) + float(takes) * pairs[at][0]
        free_at[at] = ends
        found.latency_s.append(ends - float(arrives))
    found.trained_s = sum(float(arrival_s[-1]) / slowdown for _, slowdown in pairs)
    return found


Found = Mapping[str, tuple[int, Mapping[str, Harvested]]]
"""Devices, and what came of each way of using them, by trace."""


def play(data: Path, seed: int, progress: Progress) -> Found:
    """All ways on all traces that are there; none without the tables of slowdowns."""
    try:
        tables = load(data, DEVICE)
    except FileNotFoundError as error:
        progress.say(f"no tables ({error}): training beside the service is not measured")
        return {}
    return {
        trace.name: compare(trace, SERVED, tables, seed, progress)
        for trace in traces(data, seed)
        if trace.name in TRACES
    }


def figures_of(found: Found) -> dict[str, report.Figure]:
    """The worst trace counts."""
    if not found:
        return dict.fromkeys(BARS)
    ways = [by_way for _, by_way in found.values()]
    figures: dict[str, report.Figure] = {
        "harvest_fraction": min(one["ours"].fraction for one in ways),
        "harvest_attainment_lost": max(
            one["alone"].attainment - one["ours"].attainment for one in ways
        ),
    }
    for name, (gpus, by_way) in found.items():
        figures[f"harvest_{name}_devices"] = gpus
        for way, one in by_way.items():
            figures[f"harvest_{name}_{way}_attainment"] = one.attainment
            figures[f"harvest_{name}_{way}_fraction"] = one.fraction
            figures[f"harvest_{name}_{way}_replica_seconds"] = one.replica_s
            figures[f"harvest_{name}_{way}_stops"] = one.evictions
    return figures


def table(found: Found) -> list[report.Row]:
    """Every way on every trace."""
    return [
        report.Row(
            what=f"{name}, {gpus} devices: {way}",
            ours=f"{one.attainment:.4f}",
            baseline=f"{one.fraction:.1%} of idle time trained",
            limit=f"{one.evictions} stops",
        )
        for name, (gpus, by_way) in found.items()
        for way, one in by_way.items()
    ]


def main(words: Sequence[str] | None = None) -> int:
    """Play it alone and judge it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=report.DATA)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(words)
    with Progress() as progress:
        found = play(given.data, given.seed, progress)
    if not found:
        return 0
    figures = figures_of(found)
    report.write("autoscale", report.figures_before("autoscale") | figures, table(found))
    return report.judge(figures, BARS)


if __name__ == "__main__":
    sys.exit(main())
