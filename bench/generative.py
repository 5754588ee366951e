# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""First tokens in time of two generative servers: behind the router, and asked in turn.

The servers are those of ``examples/generative``, and llama.cpp with a small model of random weights
where ``build/peers/llamacpp`` has it. In turn means that the load generator itself acts as a plain
proxy, which takes no time. Rounds alternate, with the same arrivals; the load is what both
servers finish when they are asked for everything at once, and the objective is half of the time
that an answer takes then.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from bench import report
from bench.progress import Progress
from bench.router_processes import Process, ended, free_port, routers, wait_for_answer
from generative.load import Asking, Seen, offer

EXAMPLES: Final = report.ROOT / "examples"
LLAMA: Final = report.ROOT / "build" / "peers" / "llamacpp" / "bin" / "python"
PLACES: Final = 4
AT_ONCE: Final = 60
REQUESTS: Final = 120
ROUNDS: Final = 3
LOAD: Final = 1.0
ONES: Final = {"numpy": Asking(), "llamacpp": Asking(end=2, chat=4.0, draft=1.96)}
"""Token 2 ends a text of llama.cpp's vocabularies."""
BARS: Final[report.Bars] = {"attainment_vs_in_turn": lambda ratio: ratio >= 1.0}


@contextmanager
def server(kind: str) -> Iterator[Process]:
    """A generative server of this kind."""
    port = free_port()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "generative.serve"]
    if kind == "numpy":
        environment |= {"PORT": str(port), "PLACES": str(PLACES)}
        environment["PYTHONPATH"] = os.pathsep.join([str(EXAMPLES), *sys.path])
    else:
        script = Path(__file__).with_name("generative_llama.py")
        words = [str(LLAMA), str(script), str(port), str(PLACES)]
        environment.pop("PYTHONPATH", None)
    started = subprocess.Popen(
        words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for_answer(port, "/health")
        yield Process(pids=(started.pid,), port=port)
    finally:
        ended(started)


def in_turn(processes: Sequence[Process]) -> list[str]:
    """Where they are."""
    return [f"http://127.0.0.1:{one.port}" for one in processes]


def measured(kind: str, progress: Progress) -> dict[str, report.Figure]:
    """The parts of all requests whose first token was in time, in both ways."""
    asking, parts = ONES[kind], dict[str, list[float]]()
    with ExitStack() as stack:
        replicas = [stack.enter_context(server(kind)) for _ in range(2)]
        progress.say(f"{kind}: what two servers finish")
        began = time.monotonic()
        all_at_once = asyncio.run(offer(in_turn(replicas), AT_ONCE, 1e6, 0, asking))
        _whole(all_at_once, AT_ONCE)
        rate = LOAD * AT_ONCE / (time.monotonic() - began)
        objective_s = 0.5 * 2 * PLACES / rate
        words = ["--generative", "--sizes", "1", "--in-flight", str(PLACES)]
        words += ["--probe-path", "/health", "--objective-ms", str(1e3 * objective_s)]
        router = stack.enter_context(routers(replicas, words))
        progress.say(f"{kind}: learn")
        asyncio.run(offer(in_turn([router]), REQUESTS, rate / 2, 99, asking))
        for seed in range(1, ROUNDS + 1):
            for name, urls in (("router", in_turn([router])), ("in_turn", in_turn(replicas))):
                progress.say(f"{kind}: round {seed}, {name}")
                seen = asyncio.run(offer(urls, REQUESTS, rate, seed, asking))
                parts.setdefault(name, []).append(seen.in_time(objective_s) / REQUESTS)
    means = {name: sum(found) / ROUNDS for name, found in parts.items()}
    return {
        f"{kind}_rate_per_s": rate,
        f"{kind}_objective_ms": 1e3 * objective_s,
        f"{kind}_attainment": means["router"],
        f"{kind}_attainment_in_turn": means["in_turn"],
        f"{kind}_attainment_vs_in_turn": means["router"] / max(means["in_turn"], 1 / REQUESTS),
    }


def _whole(seen: Seen, count: int) -> None:
    if seen.whole < count:
        raise RuntimeError(f"only {seen.whole} of {count} answers came whole")


def main() -> int:
    """Measure; the worst ratio is judged."""
    kinds = ["numpy", *(["llamacpp"] if LLAMA.exists() else [])]
    if len(kinds) == 1:
        print("not measured: llama.cpp; it is not installed", file=sys.stderr)
    figures: dict[str, report.Figure] = {}
    with Progress() as progress:
        for kind in kinds:
            figures |= measured(kind, progress)
    ratios = [figures[f"{kind}_attainment_vs_in_turn"] for kind in kinds]
    figures["attainment_vs_in_turn"] = min(one for one in ratios if one is not None)
    rows = [
        report.Row(
            what=kind,
            ours=f"{figures[f'{kind}_attainment']:.3f}",
            baseline=f"{figures[f'{kind}_attainment_in_turn']:.3f}",
        )
        for kind in kinds
    ]
    report.write("generative", figures, rows)
    return report.judge(figures, BARS)


if __name__ == "__main__":
    sys.exit(main())
