# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the node costs: CPU and memory of agent and guard, as the chart starts them.

Twice: beside eight busy tenants and beside none. Four of the eight train and report steps, four
serve and have a latency objective; the agent looks at all of them every second, reads the servers'
pages, learns and writes its status. The guard is two processes, itself and its watchdog; both
count. There is no kubelet on the pretended node, so its calls are not in the figures.
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
BUSY_PERCENT: Final = 1.0
"""The agent beside its tenants; guard and watchdog do the same whatever runs."""
IDLE_PERCENT: Final = 0.5
"""All three, beside no one."""
RSS_LIMIT_MIB: Final = 100.0
TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
PROCESSES: Final = ("agent", "guard", "watchdog")
ABSENT: Final = ("rich",)
"""Taken by structlog where it is there; the image has none."""
PROGRAM: Final = (
    "import sys; sys.modules.update(dict.fromkeys({absent})); "
    "from ullage_node.main import run; run([{part!r}])"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a process has used so far."""

    cpu_seconds: float
    rss_mib: float
    pss_mib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What the processes used in one measurement."""

    cpu_percent: dict[str, float]
    rss_mib: dict[str, float]
    pss_mib: float
    minutes: float
    pages: int
    status_bytes: tuple[int, ...]
    observations: int


def usage(pid: int) -> Usage:
    """Read it from the kernel."""
    words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    memory = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    kib = {line.split()[0]: int(line.split()[1]) for line in memory[1:]}
    return Usage(
        cpu_seconds=(int(words[11]) + int(words[12])) / TICKS_PER_SECOND,
        rss_mib=kib["Rss:"] / 1024,
        pss_mib=kib["Pss:"] / 1024,
    )


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
    return [int(word) for word in text.split()]


async def _start(part: str, environment: dict[str, str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM.format(absent=ABSENT, part=part)),
        env={**os.environ, **environment, "ULLAGE_NODE_LOG_LEVEL": "error"},
    )


async def measure(seconds: float, tenants: int) -> Look:
    """Run agent and guard beside tenants and say what they used."""
    with tempfile.TemporaryDirectory() as folder:
        node = PretendedNode(Path(folder), tenants)
        await node.start()
        work = asyncio.create_task(node.work())
        watchdog = await _start("guard", node.environment())
        agent = await _start("agent", node.environment())
        try:
            await asyncio.sleep(SETTLE_SECONDS)
            pids = dict(
                zip(PROCESSES, (agent.pid, *_children(watchdog.pid), watchdog.pid), strict=True)
            )
            pages, writes = node.pages, len(node.status_bytes)
            before = {name: usage(pid) for name, pid in pids.items()}
            await asyncio.sleep(seconds)
            after = {name: usage(pid) for name, pid in pids.items()}
        finally:
            for process in (agent, watchdog):
                process.terminate()
                await process.wait()
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await node.stop()
        if agent.returncode or watchdog.returncode:
            sys.exit(f"agent and guard ended with {agent.returncode} and {watchdog.returncode}")
    used = {name: after[name].cpu_seconds - before[name].cpu_seconds for name in PROCESSES}
    return Look(
        cpu_percent={name: cpu / seconds * 100 for name, cpu in used.items()},
        rss_mib={name: one.rss_mib for name, one in after.items()},
        pss_mib=sum(one.pss_mib for one in after.values()),
        minutes=seconds / 60,
        pages=node.pages - pages,
        status_bytes=tuple(node.status_bytes[writes:]),
        observations=node.observations,
    )


def _figures(busy: Look, idle: Look) -> dict[str, report.Figure]:
    figures: dict[str, report.Figure] = {}
    for state, look in (("", busy), ("idle_", idle)):
        for name in PROCESSES:
            figures[f"{state}{name}_rss_mib"] = round(look.rss_mib[name], 1)
            figures[f"{state}{name}_cpu_percent"] = round(look.cpu_percent[name], 2)
        figures[f"{state}rss_mib"] = round(sum(look.rss_mib.values()), 1)
        figures[f"{state}pss_mib"] = round(look.pss_mib, 1)
        figures[f"{state}cpu_percent"] = round(sum(look.cpu_percent.values()), 2)
    return figures | {
        "pages_per_minute": round(busy.pages / busy.minutes, 1),
        "status_writes_per_minute": round(len(busy.status_bytes) / busy.minutes, 2),
        "status_bytes": busy.status_bytes[-1] if busy.status_bytes else 0,
        "observations": busy.observations,
    }


def _rows(busy: Look, idle: Look, tenants: int) -> list[report.Row]:
    rows = []
    for beside, limit, look in (
        (f"{tenants} tenants", f"agent {BUSY_PERCENT:.1f} %", busy),
        ("no tenant", f"{IDLE_PERCENT:.1f} %", idle),
    ):
        parts = [f"{name} {look.cpu_percent[name]:.2f}" for name in PROCESSES]
        rows.append(
            report.Row(
                what=f"CPU beside {beside}, of one core",
                ours=f"{sum(look.cpu_percent.values()):.2f} % ({', '.join(parts)})",
                limit=limit,
            )
        )
        parts = [f"{name} {look.rss_mib[name]:.1f}" for name in PROCESSES]
        rows.append(
            report.Row(
                what=f"memory beside {beside}",
                ours=f"{sum(look.rss_mib.values()):.1f} MiB ({', '.join(parts)})",
                limit=f"{RSS_LIMIT_MIB:.0f} MiB",
            )
        )
        rows.append(report.Row(what="  shared pages once", ours=f"{look.pss_mib:.1f} MiB"))
    rows.append(report.Row(what="pages read per minute", ours=f"{busy.pages / busy.minutes:.0f}"))
    writes = len(busy.status_bytes) / busy.minutes
    rows.append(report.Row(what="status writes per minute", ours=f"{writes:.1f}"))
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure once beside tenants and once beside none.

    Returns:
        0, or 1 when a limit is passed.
    """
    parser = argparse.ArgumentParser(prog="bench.agent", description=__doc__)
    parser.add_argument("--seconds", type=float, default=MEASURE_SECONDS, help="how long, each")
    parser.add_argument("--tenants", type=int, default=TENANTS, help="how many")
    options = parser.parse_args(arguments)
    with Progress() as progress:
        progress.say(f"twice {SETTLE_SECONDS:.0f} s to settle, {options.seconds:.0f} s measured")
        busy = asyncio.run(measure(options.seconds, options.tenants))
        idle = asyncio.run(measure(options.seconds, 0))
    figures = {"tenants": options.tenants, **_figures(busy, idle)}
    report.write("agent", figures, _rows(busy, idle, options.tenants))
    bars: report.Bars = {
        "agent_cpu_percent": lambda percent: percent <= BUSY_PERCENT,
        "idle_cpu_percent": lambda percent: percent <= IDLE_PERCENT,
        "rss_mib": lambda mib: mib <= RSS_LIMIT_MIB,
        "idle_rss_mib": lambda mib: mib <= RSS_LIMIT_MIB,
    }
    return report.judge(figures, bars)


if __name__ == "__main__":
    sys.exit(main())
