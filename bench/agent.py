# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the node costs: CPU and memory of agent and guard, as the chart starts them.

Three times: 32 slices of 8 devices whose containers do nothing; the same containers with 1,000
steps a second together; and eight busy tenants, of which four serve and have a latency objective.
The agent looks at all of them every second, reads the servers' pages, learns and writes its status.
The guard is two processes, itself and its watchdog; both count. Of kubelet there is registration
alone, so its other calls are not in the figures. A start takes as long as the agent needs to offer
its first device.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import report
from bench.agent_node import Load, PretendedNode
from bench.progress import Progress

SLICES: Final = 32
STEPS_PER_SECOND: Final = 1000.0
"""Of all containers."""
TENANTS: Final = 8
TENANT_STEPS_PER_SECOND: Final = 50.0
LOADS: Final = {
    "idle": Load(tenants=SLICES),
    "steps": Load(tenants=SLICES, steps_per_second=STEPS_PER_SECOND / SLICES),
    "busy": Load(tenants=TENANTS, servers=True, steps_per_second=TENANT_STEPS_PER_SECOND),
}
SAID: Final = {
    "idle": f"{SLICES} idle slices",
    "steps": f"{SLICES} slices, {STEPS_PER_SECOND:,.0f} steps/s",
    "busy": f"{TENANTS} tenants, 4 serve",
}
START_MOST_SECONDS: Final = 120.0
SETTLE_SECONDS: Final = 20.0
MEASURE_SECONDS: Final = 60.0
BUSY_PERCENT: Final = 1.0
"""The agent beside busy tenants; guard and watchdog do the same whatever runs."""
IDLE_PERCENT: Final = 0.5
"""All three, beside idle slices."""
AGENT_RSS_LIMIT_MIB: Final = 90.0
RSS_LIMIT_MIB: Final = 100.0
"""All three; pages that two of them share count twice."""
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

    offered_s: float
    """From the start of the agent's process to the first device that kubelet was told of."""
    steps_per_second: float
    cpu_percent: dict[str, float]
    rss_mib: dict[str, float]
    pss_mib: float
    minutes: float
    pages: int
    status_bytes: tuple[int, ...]
    observations: int


def usage(pid: int | str) -> Usage:
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


async def measure(seconds: float, load: Load) -> Look:
    """Run agent and guard beside containers and say what they used.

    Raises:
        TimeoutError: the agent offers no device.
    """
    with tempfile.TemporaryDirectory() as folder:
        node = PretendedNode(Path(folder), load)
        await node.start()
        work = asyncio.create_task(node.work())
        watchdog = await _start("guard", node.environment())
        began = time.monotonic()
        agent = await _start("agent", node.environment())
        try:
            async with asyncio.timeout(START_MOST_SECONDS):
                await node.kubelet.offered.wait()
            offered_s = time.monotonic() - began
            await asyncio.sleep(SETTLE_SECONDS)
            pids = dict(
                zip(PROCESSES, (agent.pid, *_children(watchdog.pid), watchdog.pid), strict=True)
            )
            pages, writes, steps = node.pages, len(node.status_bytes), node.steps
            before = {name: usage(pid) for name, pid in pids.items()}
            await asyncio.sleep(seconds)
            after = {name: usage(pid) for name, pid in pids.items()}
            steps = node.steps - steps
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
        offered_s=offered_s,
        steps_per_second=steps / seconds,
        cpu_percent={name: cpu / seconds * 100 for name, cpu in used.items()},
        rss_mib={name: process.rss_mib for name, process in after.items()},
        pss_mib=sum(process.pss_mib for process in after.values()),
        minutes=seconds / 60,
        pages=node.pages - pages,
        status_bytes=tuple(node.status_bytes[writes:]),
        observations=node.observations,
    )


def _figures(looks: Mapping[str, Look]) -> dict[str, report.Figure]:
    figures: dict[str, report.Figure] = {"slices": SLICES}
    for state, look in looks.items():
        for name in PROCESSES:
            figures[f"{state}_{name}_rss_mib"] = round(look.rss_mib[name], 1)
            figures[f"{state}_{name}_cpu_percent"] = round(look.cpu_percent[name], 2)
        figures[f"{state}_rss_mib"] = round(sum(look.rss_mib.values()), 1)
        figures[f"{state}_pss_mib"] = round(look.pss_mib, 1)
        figures[f"{state}_cpu_percent"] = round(sum(look.cpu_percent.values()), 2)
        figures[f"{state}_status_writes_per_minute"] = round(
            len(look.status_bytes) / look.minutes, 2
        )
    busy = looks["busy"]
    return figures | {
        "first_device_s": round(looks["idle"].offered_s, 2),
        "steps_per_second": round(looks["steps"].steps_per_second, 1),
        "pages_per_minute": round(busy.pages / busy.minutes, 1),
        "status_bytes": busy.status_bytes[-1] if busy.status_bytes else 0,
        "observations": busy.observations,
    }


def _rows(looks: Mapping[str, Look]) -> list[report.Row]:
    limits = {"idle": f"{IDLE_PERCENT:.1f} %", "busy": f"agent {BUSY_PERCENT:.1f} %"}
    rows = []
    for state, look in looks.items():
        beside = SAID[state]
        parts = [f"{name} {look.cpu_percent[name]:.2f}" for name in PROCESSES]
        rows.append(
            report.Row(
                what=f"CPU beside {beside}, of one core",
                ours=f"{sum(look.cpu_percent.values()):.2f} % ({', '.join(parts)})",
                limit=limits.get(state, ""),
            )
        )
        parts = [f"{name} {look.rss_mib[name]:.1f}" for name in PROCESSES]
        rows.append(
            report.Row(
                what=f"memory beside {beside}",
                ours=f"{sum(look.rss_mib.values()):.1f} MiB ({', '.join(parts)})",
                limit=f"{RSS_LIMIT_MIB:.0f} MiB, agent {AGENT_RSS_LIMIT_MIB:.0f} MiB",
            )
        )
        rows.append(report.Row(what="  shared pages once", ours=f"{look.pss_mib:.1f} MiB"))
        writes = len(look.status_bytes) / look.minutes
        rows.append(report.Row(what="  status writes per minute", ours=f"{writes:.1f}"))
    busy = looks["busy"]
    rows.append(report.Row(what="pages read per minute", ours=f"{busy.pages / busy.minutes:.0f}"))
    rows.append(report.Row(what="start to first device", ours=f"{looks['idle'].offered_s:.1f} s"))
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure beside each load.

    Returns:
        0, or 1 when a limit is passed.
    """
    parser = argparse.ArgumentParser(prog="bench.agent", description=__doc__)
    parser.add_argument("--seconds", type=float, default=MEASURE_SECONDS, help="how long, each")
    options = parser.parse_args(arguments)
    looks: dict[str, Look] = {}
    with Progress() as progress:
        for state, load in LOADS.items():
            progress.say(f"{SAID[state]}: {options.seconds:.0f} s")
            looks[state] = asyncio.run(measure(options.seconds, load))
    figures = _figures(looks)
    report.write("agent", figures, _rows(looks))
    bars: report.Bars = {
        "busy_agent_cpu_percent": lambda percent: percent <= BUSY_PERCENT,
        "idle_cpu_percent": lambda percent: percent <= IDLE_PERCENT,
        **{f"{state}_agent_rss_mib": lambda mib: mib <= AGENT_RSS_LIMIT_MIB for state in LOADS},
        **{f"{state}_rss_mib": lambda mib: mib <= RSS_LIMIT_MIB for state in LOADS},
    }
    return report.judge(figures, bars)


if __name__ == "__main__":
    sys.exit(main())
