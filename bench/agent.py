# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the node agent costs: CPU and memory of the real process beside eight busy tenants.

Four of them train and report steps, four serve and have a latency objective; the agent looks at
all of them every second, reads the servers' pages, learns and writes its status. There is no
kubelet on the pretended node, so its calls are not in the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import report
from bench.agent_node import PretendedNode
from bench.progress import Progress

TENANTS: Final = 8
SETTLE_SECONDS: Final = 15.0
MEASURE_SECONDS: Final = 60.0
CPU_LIMIT_PERCENT: Final = 1.0
RSS_LIMIT_MIB: Final = 100.0
TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a process has used so far."""

    cpu_seconds: float
    rss_mib: float


def usage(pid: int) -> Usage:
    """Read it from the kernel."""
    words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    rss = next(line for line in status if line.startswith("VmRSS:"))
    return Usage(
        cpu_seconds=(int(words[11]) + int(words[12])) / TICKS_PER_SECOND,
        rss_mib=int(rss.split()[1]) / 1024,
    )


async def measure(seconds: float, tenants: int) -> dict[str, float]:
    """Run the agent beside tenants and say what it used."""
    with tempfile.TemporaryDirectory() as folder:
        node = PretendedNode(Path(folder), tenants)
        await node.start()
        work = asyncio.create_task(node.work())
        agent = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.agent", "--agent"),
            env={**os.environ, **node.environment(), "ULLAGE_NODE_LOG_LEVEL": "error"},
        )
        try:
            await asyncio.sleep(SETTLE_SECONDS)
            before, pages, writes = usage(agent.pid), node.pages, len(node.status_bytes)
            await asyncio.sleep(seconds)
            after = usage(agent.pid)
        finally:
            agent.terminate()
            await agent.wait()
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await node.stop()
        if agent.returncode != 0:
            sys.exit(f"the agent ended with {agent.returncode}")
    return {
        "cpu_percent": round((after.cpu_seconds - before.cpu_seconds) / seconds * 100, 2),
        "rss_mib": round(after.rss_mib, 1),
        "tenants": tenants,
        "pages_per_minute": round((node.pages - pages) / seconds * 60, 1),
        "status_writes_per_minute": round((len(node.status_bytes) - writes) / seconds * 60, 2),
        "status_bytes": node.status_bytes[-1] if node.status_bytes else 0,
        "observations": node.observations,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure once.

    Returns:
        0, or 1 when a limit is passed.
    """
    parser = argparse.ArgumentParser(prog="bench.agent", description=__doc__)
    parser.add_argument("--seconds", type=float, default=MEASURE_SECONDS, help="how long")
    parser.add_argument("--tenants", type=int, default=TENANTS, help="how many")
    parser.add_argument("--agent", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.agent:
        from ullage_node.main import run

        run([])
        return 0
    with Progress() as progress:
        progress.say(f"{SETTLE_SECONDS:.0f} s to settle, {options.seconds:.0f} s measured")
        figures = asyncio.run(measure(options.seconds, options.tenants))
    rows = [
        report.Row(
            what=f"CPU beside {options.tenants} tenants, of one core",
            ours=f"{figures['cpu_percent']:.2f} %",
            limit=f"{CPU_LIMIT_PERCENT:.0f} %",
        ),
        report.Row(
            what="memory", ours=f"{figures['rss_mib']:.1f} MiB", limit=f"{RSS_LIMIT_MIB:.0f} MiB"
        ),
        report.Row(what="pages read per minute", ours=f"{figures['pages_per_minute']:.0f}"),
        report.Row(
            what="status writes per minute", ours=f"{figures['status_writes_per_minute']:.1f}"
        ),
    ]
    report.write("agent", figures, rows)
    within = figures["cpu_percent"] <= CPU_LIMIT_PERCENT and figures["rss_mib"] <= RSS_LIMIT_MIB
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
