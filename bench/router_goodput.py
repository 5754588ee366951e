# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Requests answered in time: the router beside BentoML and beside every static batch size.

All get the same arrivals in front of a model whose batches take c0 + c1(k) * longest, and a client
counts what came back in time. Static sizes are the router's own FIFO with one size, so that what
differs is the choice alone. Ray Serve is not among the peers yet.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from bench.progress import Progress
from bench.router_load import Sent, closed_loop_of, http, open_loop, payload
from bench.router_processes import Process, bentoml, model_server, router
from ullage.engines.batching.batch_time import BatchCosts
from ullage.engines.batching.histogram import Floats
from ullage.engines.batching.simulator import Arrivals

OURS: Final = "router"
BENTOML: Final = "BentoML"
OBJECTIVE: Final = ("--objective-ms", "60000")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """What serves the model: how it starts for an objective, and how it is asked."""

    start: Callable[[float], AbstractContextManager[Process]]
    ask: Callable[[float, float], bytes]
    learns: bool = False


def bentoml_payload(single_s: float, _: float) -> bytes:
    """A request of the BentoML service; it has no deadline of its own."""
    return http(b"/infer", orjson.dumps({"seconds": [single_s]}))


def peers(model: Process, costs: BatchCosts, bentoml_bin: Path | None) -> dict[str, Peer]:
    """All that are there."""
    fixed = ("--fixed-ms", str(1e3 * costs.fixed_s))
    found = {
        OURS: Peer(
            start=lambda _: router(model, [*OBJECTIVE, *fixed]),
            ask=lambda single_s, limit_s: payload(single_s, 1e3 * limit_s),
            learns=True,
        )
    }
    if bentoml_bin is not None:
        found[BENTOML] = Peer(
            start=lambda limit_s: bentoml(bentoml_bin, costs, limit_s), ask=bentoml_payload
        )
    for size in costs.sizes:
        words = [*OBJECTIVE, "--policy", "FIFO", "--sizes", str(size)]
        found[f"static {size}"] = Peer(
            start=lambda _, words=words: router(model, words),  # type: ignore[misc]
            ask=lambda single_s, limit_s: payload(single_s, 1e3 * limit_s),
        )
    return found


def goodput(
    costs: BatchCosts,
    earlier_s: Floats,
    cells: Mapping[str, Arrivals],
    bentoml_bin: Path | None,
    progress: Progress,
) -> dict[str, dict[str, float]]:
    """The part of all arrivals that came back in time, by cell and peer."""
    found: dict[str, dict[str, float]] = {cell: {} for cell in cells}
    with model_server(costs) as model:
        for name, peer in peers(model, costs, bentoml_bin).items():
            limits = {cell: float((a.deadline_s - a.arrival_s)[0]) for cell, a in cells.items()}
            for limit_s in sorted(set(limits.values())):
                with peer.start(limit_s) as process:
                    if peer.learns:
                        bodies = [peer.ask(float(one), limit_s) for one in earlier_s]
                        closed_loop_of(process.port, bodies)
                    for cell in (one for one in cells if limits[one] == limit_s):
                        progress.say(f"{name}: {cell}")
                        found[cell][name] = _met(process, peer, cells[cell], limit_s)
    return found


def _met(process: Process, peer: Peer, arrivals: Arrivals, limit_s: float) -> float:
    requests = [
        Sent(due_s=float(came), payload=peer.ask(float(single), limit_s), limit_s=limit_s)
        for came, single in zip(arrivals.arrival_s, arrivals.single_s, strict=True)
    ]
    return open_loop(process.port, requests).met / len(requests)


def bentoml_program(folder: Path) -> Path | None:
    """BentoML's command in its own environment, if it was installed there."""
    program = folder / "bentoml" / "bin" / "bentoml"
    return program if os.access(program, os.X_OK) else None
