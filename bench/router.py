# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the router adds to a request beside nginx as a plain proxy, and how much a core carries.

Both stand in turn before the same model server, which answers at once. First each is driven as
fast as it goes, the router also by one client alone; then both get the same Poisson arrivals at
half of the router's own saturation. Rounds alternate, and the median of the rounds counts.

Goodput is measured before a model with known costs of batches, beside every static batch size, and
beside BentoML and Ray Serve where they are installed in ``build/peers``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from typing import Final

import numpy as np

from bench import report
from bench.batching import COSTS, routed_cells
from bench.progress import Progress
from bench.router_goodput import COMMANDS, OURS, goodput, installed
from bench.router_load import OK, Measured, Sent, closed_loop, open_loop, payload
from bench.router_processes import Process, model_server, nginx, nginx_program, router

CLIENTS: Final = 64
SATURATE_S: Final = 5.0
ROUND_S: Final = 4.0
ROUNDS: Final = 5
LEARNING: Final = 400
"""Single requests first, so that histograms are there."""
LEARN_S: Final = 3.0
WORDS: Final = ("--objective-ms", "1000")
PEERS: Final = report.ROOT / "build" / "peers"
GOODPUT_REQUESTS: Final = 200
BARS: Final[report.Bars] = {
    "goodput_vs_best_peer": lambda found: found >= 1.15,
    "worst_cell_vs_peer": lambda found: found >= 1,
    "p50_added_ms": lambda found: found <= 1,
    "p99_added_ms": lambda found: found <= 3,
    "rps_per_core": lambda found: found >= 1500,
}


def arrivals(rate_per_s: float, seconds: float, seed: int) -> list[Sent]:
    """Poisson arrivals."""
    gaps = np.random.default_rng(seed).exponential(1 / rate_per_s, int(rate_per_s * seconds))
    body = payload(1.0)
    return [Sent(due_s=float(at), payload=body) for at in np.cumsum(gaps)]


def saturated(process: Process, clients: int = CLIENTS) -> tuple[float, float]:
    """Requests a second, and requests for each second of CPU that the process took."""
    before = process.cpu_s()
    found = closed_loop(process.port, clients, SATURATE_S, payload(1.0))
    used = process.cpu_s() - before
    require_all_ok(found)
    return len(found.times_s) / found.span_s, len(found.times_s) / used


def require_all_ok(found: Measured) -> None:
    """Refuse figures of requests that failed.

    Raises:
        RuntimeError: an answer was not 200.
    """
    if set(found.statuses) != {OK}:
        raise RuntimeError(f"not all requests were answered: {found.statuses} {found.refusals}")


def added(ours: Process, proxy: Process, rate_per_s: float, progress: Progress) -> dict[str, float]:
    """Milliseconds at the median and the 99th percentile, of both; medians of the rounds."""
    found: dict[str, list[float]] = {}
    for at in range(ROUNDS):
        progress.say(f"round {at + 1} of {ROUNDS} at {rate_per_s:.0f} requests/s")
        for name, process in (("router", ours), ("nginx", proxy)):
            measured = open_loop(process.port, arrivals(rate_per_s, ROUND_S, at))
            require_all_ok(measured)
            for label, part in (("p50", 0.5), ("p99", 0.99)):
                found.setdefault(f"{name}_{label}_ms", []).append(measured.quantile_ms(part))
    medians = {name: statistics.median(values) for name, values in found.items()}
    for label in ("p50", "p99"):
        difference = medians[f"router_{label}_ms"] - medians[f"nginx_{label}_ms"]
        medians[f"{label}_added_ms"] = difference
    return medians


def measure(
    program: str | None, words: Sequence[str], progress: Progress
) -> dict[str, report.Figure]:
    """All figures; those of nginx only where it is installed."""
    with model_server() as model, router(model, words) as ours:
        progress.say("learn")
        require_all_ok(closed_loop(ours.port, 1, LEARN_S, payload(1.0)))
        progress.say("saturate the router")
        rate, per_core = saturated(ours)
        figures: dict[str, report.Figure] = {"rps": rate, "rps_per_core": per_core}
        progress.say("requests that come one by one")
        figures["alone_rps_per_core"] = saturated(ours, 1)[1]
        if program is None:
            return figures | {"p50_added_ms": None, "p99_added_ms": None}
        with nginx(model, program) as proxy:
            progress.say("saturate nginx")
            figures["nginx_rps"], figures["nginx_rps_per_core"] = saturated(proxy)
            return figures | added(ours, proxy, rate / 2, progress)


def compared(progress: Progress) -> dict[str, report.Figure]:
    """Goodput by cell and peer; the two figures beside the best only where every peer was there."""
    programs = installed(PEERS)
    earlier, cells = routed_cells(GOODPUT_REQUESTS)
    rates = goodput(COSTS, earlier, cells, programs, progress)
    figures: dict[str, report.Figure] = {}
    for cell, found in rates.items():
        for name, rate in found.items():
            figures[f"{cell}_{name}".replace(" ", "_").lower()] = rate
    absent = [name for name in COMMANDS if name not in programs]
    for name in absent:
        print(f"not measured: goodput beside {name}; it is not installed", file=sys.stderr)
    if absent:
        return figures | {"goodput_vs_best_peer": None, "worst_cell_vs_peer": None}
    ours = {cell: found.pop(OURS) for cell, found in rates.items()}
    names = next(iter(rates.values()))
    best = max(sum(found[name] for found in rates.values()) for name in names)
    figures["goodput_vs_best_peer"] = sum(ours.values()) / best
    figures["worst_cell_vs_peer"] = min(
        ours[cell] / max(found.values()) for cell, found in rates.items()
    )
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nginx", help="the program, where it is not on the path")
    program = nginx_program(parser.parse_args().nginx)
    if program is None:
        print("not measured: what is added to nginx; nginx is not installed", file=sys.stderr)
    with Progress() as progress:
        figures = measure(program, WORDS, progress)
        figures |= compared(progress)
    rows = [
        report.Row(what=name, ours="not measured" if value is None else f"{value:.4g}")
        for name, value in figures.items()
    ]
    report.write("router", figures, rows)
    return report.judge(figures, BARS)


if __name__ == "__main__":
    sys.exit(main())
