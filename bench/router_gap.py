# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The simulator beside the real router on the same arrivals, in real time over sockets.

Both know the same: run times of earlier requests and what a batch costs. The model server takes
exactly the time that the simulator reckons with, so what differs is the router's own doing: time on
the wire and in its loop, and what it learned of run times by measuring them.
"""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from bench.batching_play import Arrivals, play
from bench.progress import Progress
from bench.router_load import OK, Sent, closed_loop_of, open_loop, payload
from bench.router_processes import Process, model_server, router
from ullage.engines.batching.batch_time import BatchCosts
from ullage.engines.batching.chooser import BatchChooser, BatchRules
from ullage.engines.batching.histogram import Floats, TimeHistogram

PLAYS: Final = 10
LATE_S: Final = 0.001
"""Mean delay of an arrival. Near saturation a millisecond changes which batches are formed, and
one play alone is off by points."""
OUTCOME: Final = re.compile(r'ullage_requests_total\{.*outcome="(\w+)".*\} (\S+)')


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Finish rates over all arrivals."""

    simulated: float
    routed: float

    @property
    def points(self) -> float:
        """Points of finish rate between both."""
        return 100 * abs(self.simulated - self.routed)


def gaps(
    costs: BatchCosts, earlier_s: Floats, cells: Mapping[str, Arrivals], progress: Progress
) -> dict[str, Gap]:
    """Play each cell in the simulator and through a router that ran the earlier requests.

    Args:
        costs: What batches cost, known to both.
        earlier_s: Times of single requests that both learn from, seconds.
        cells: Arrivals by name.
        progress: What is done now.

    Raises:
        RuntimeError: the router failed a request.
    """
    known = TimeHistogram.of(earlier_s)
    found = {}
    with model_server(costs) as model:
        words = ["--objective-ms", "60000", "--fixed-ms", str(1e3 * costs.fixed_s)]
        with router(model, words) as ours:
            progress.say("the router learns")
            learned = closed_loop_of(ours.port, [payload(float(one)) for one in earlier_s])
            if set(learned.statuses) != {OK}:
                raise RuntimeError(f"the router failed: {learned.statuses} {learned.refusals}")
            for name, arrivals in cells.items():
                progress.say(f"simulator and router: {name}")
                simulated = _simulated(arrivals, known, costs)
                found[name] = Gap(simulated=simulated, routed=_routed(ours, arrivals))
    return found


def _simulated(arrivals: Arrivals, known: TimeHistogram, costs: BatchCosts) -> float:
    """Mean finish rate of plays whose arrivals are late by a little, as on a wire."""
    rng = np.random.default_rng(1)
    rates = []
    for _ in range(PLAYS):
        late = rng.exponential(LATE_S, arrivals.arrival_s.size)
        order = np.argsort(arrivals.arrival_s + late)
        moved = Arrivals(
            arrival_s=(arrivals.arrival_s + late)[order],
            single_s=arrivals.single_s[order],
            deadline_s=(arrivals.deadline_s + late)[order],
        )
        chooser = BatchChooser(rules=BatchRules(), costs=costs, histograms={"default": known})
        rates.append(play(moved, chooser, costs).finish_rate)
    return float(np.mean(rates))


def _routed(ours: Process, arrivals: Arrivals) -> float:
    """The part of all arrivals that the router says it answered in time."""
    before = _outcomes(ours)
    requests = [
        Sent(due_s=float(came), payload=payload(float(single), 1e3 * float(due - came)))
        for came, single, due in zip(
            arrivals.arrival_s, arrivals.single_s, arrivals.deadline_s, strict=True
        )
    ]
    open_loop(ours.port, requests)
    after = _outcomes(ours)
    counts = {name: count - before.get(name, 0) for name, count in after.items()}
    if counts.get("failed") or sum(counts.values()) != len(requests):
        raise RuntimeError(f"{len(requests)} requests, and the router counts {counts}")
    return counts.get("met", 0) / len(requests)


def _outcomes(ours: Process) -> dict[str, int]:
    url = f"http://127.0.0.1:{ours.metrics_port}/metrics"
    with urllib.request.urlopen(url, timeout=10) as page:
        text = page.read().decode()
    return {name: int(float(count)) for name, count in OUTCOME.findall(text)}
