# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Requests answered in time: the router beside BentoML, Ray Serve and every static batch size.

All get the same arrivals in front of a model whose batches take c0 + c1(k) * longest, and a client
counts what came back in time. Static sizes are the router's own FIFO with one size, so that what
differs is the choice alone. Ray Serve waits for a batch as long as it is told, whatever the load:
it runs with several settings, each a peer of its own, and drops what is later than the objective.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from bench.batching_play import Arrivals
from bench.progress import Progress
from bench.router_load import Sent, closed_loop_of, http, open_loop, payload
from bench.router_processes import Filling, Process, bentoml, model_server, rayserve, router
from ullage.engines.batching.batch_time import BatchCosts
from ullage.engines.batching.histogram import Floats

OURS: Final = "router"
BENTOML: Final = "BentoML"
RAY_SERVE: Final = "Ray Serve"
COMMANDS: Final[Mapping[str, str]] = {
    BENTOML: "bentoml/bin/bentoml",
    RAY_SERVE: "rayserve/bin/serve",
}
"""Where a peer's command lies once its environment is there."""
WARM: Final = 20
"""Requests that a peer answers before it is measured; its first ones take longer."""
RAY_WAIT_S: Final = 0.01
"""Default wait of Ray Serve for a batch to fill."""
RAY_SETTINGS: Final = ((16, 0.0), (4, 0.4), (8, 0.25), (8, 0.4), (16, 0.25))
"""Largest batch, and the part of the objective that it may take to fill (0: the default wait).
With small batches and short waits Ray Serve keeps tight objectives, with larger ones loose ones."""
OBJECTIVE: Final = ("--objective-ms", "60000")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """What serves the model: how it starts for an objective, and how it is asked."""

    start: Callable[[float], AbstractContextManager[Process]]
    ask: Callable[[float, float], bytes]
    learns: bool = False


def peer_payload(single_s: float, _: float) -> bytes:
    """A request of BentoML's service and of Ray Serve's; it has no deadline of its own."""
    return http(b"/infer", orjson.dumps({"seconds": [single_s]}))


def peers(model: Process, costs: BatchCosts, programs: Mapping[str, Path]) -> dict[str, Peer]:
    """All that are there; those that need a program only where it is installed."""
    fixed = ("--fixed-ms", str(1e3 * costs.fixed_s))
    found = {
        OURS: Peer(
            start=lambda _: router(model, [*OBJECTIVE, *fixed]),
            ask=lambda single_s, limit_s: payload(single_s, 1e3 * limit_s),
            learns=True,
        )
    }
    if BENTOML in programs:
        found[BENTOML] = Peer(
            start=lambda limit_s: bentoml(programs[BENTOML], costs, limit_s), ask=peer_payload
        )
    if RAY_SERVE in programs:
        found |= _ray_peers(programs[RAY_SERVE], costs)
    for size in costs.sizes:
        words = [*OBJECTIVE, "--policy", "FIFO", "--sizes", str(size)]
        found[f"static {size}"] = Peer(
            start=lambda _, words=words: router(model, words),  # type: ignore[misc]
            ask=lambda single_s, limit_s: payload(single_s, 1e3 * limit_s),
        )
    return found


def _ray_peers(program: Path, costs: BatchCosts) -> dict[str, Peer]:
    def peer(size: int, part: float) -> Peer:
        def start(limit_s: float) -> AbstractContextManager[Process]:
            wait_s = part * limit_s or RAY_WAIT_S
            filling = Filling(size=min(size, max(costs.sizes)), wait_s=wait_s)
            return rayserve(program, costs, filling, limit_s)

        return Peer(start=start, ask=peer_payload)

    return {
        f"{RAY_SERVE} {size} wait {round(100 * part)}pct": peer(size, part)
        for size, part in RAY_SETTINGS
    }


def goodput(
    costs: BatchCosts,
    earlier_s: Floats,
    cells: Mapping[str, Arrivals],
    programs: Mapping[str, Path],
    progress: Progress,
) -> dict[str, dict[str, float]]:
    """The part of all arrivals that came back in time, by cell and peer."""
    found: dict[str, dict[str, float]] = {cell: {} for cell in cells}
    with model_server(costs) as model:
        for name, peer in peers(model, costs, programs).items():
            limits = {cell: float((a.deadline_s - a.arrival_s)[0]) for cell, a in cells.items()}
            for limit_s in sorted(set(limits.values())):
                with peer.start(limit_s) as process:
                    first = earlier_s if peer.learns else earlier_s[:WARM]
                    bodies = [peer.ask(float(one), limit_s) for one in first]
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


def installed(folder: Path) -> dict[str, Path]:
    """Commands of the peers that were installed, each in an environment of its own."""
    found = {name: folder / command for name, command in COMMANDS.items()}
    return {name: command for name, command in found.items() if os.access(command, os.X_OK)}
