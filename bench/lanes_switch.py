# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What turns cost: three real processes in one lane of the real server, and one alone.

``python -m bench.lanes_switch`` adds ``switch_p50_ms``, ``switch_p99_ms``, ``overhead`` and
``jain_live`` to the figures of ``build/bench/lanes.json``. A switch is the time from the end of a
step to the begin of the next one of another process. The overhead is a step of the runtime that
does nothing, by a program alone in its lane, beside 20 ms of work; ``overhead_cpu`` is the
processor time of both sides for it, which other work on the machine does not stretch. Jain's index
is of the time that each process ran while all three did, with steps of different lengths.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from bench import report
from ullage.api.environment import LANE_SOCKET
from ullage_node.lanes.members import LaneMember
from ullage_node.lanes.server import LaneServer, LaneTenant, SharedDevice

NAME: Final = "lanes"
BARS: Final[report.Bars] = {
    "switch_p99_ms": lambda ms: ms <= 20,
    "overhead": lambda part: part <= 0.02,
    "jain_live": lambda index: index >= 0.95,
}
SECONDS: Final = 20.0
STEPS_MS: Final = (10, 20, 40)
"""A step of each process; FAIR gives them the same time all the same."""
ALONE_STEPS: Final = 300
WORK_MS: Final = 20
PROGRAM: Final = """
import json, sys, time
from ullage_run import lanes

path, step_ms, until = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
spans = []
lane = lanes.Lane(path, 100, 300, lanes.Plain())
while time.monotonic() < until:
    with lane.step():
        begin = time.monotonic()
        time.sleep(step_ms / 1000)
        spans.append((begin, time.monotonic()))
print(json.dumps(spans))
"""
ALONE: Final = """
import json, sys, time
from ullage_run import lanes

path, steps = sys.argv[1], int(sys.argv[2])
lane = lanes.Lane(path, 100, 300, lanes.Plain())
costs = []
cpu = time.process_time()
for _ in range(steps):
    began = time.perf_counter()
    with lane.step():
        pass
    costs.append(time.perf_counter() - began)
    time.sleep(0.002)
print(json.dumps([*costs, (time.process_time() - cpu) / steps]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What was measured; times in milliseconds."""

    switch_p50_ms: float
    switch_p99_ms: float
    switches: int
    overhead: float
    overhead_cpu: float
    jain_live: float


async def _run(program: str, *arguments: str) -> Any:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, *arguments, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError("a program of the bench failed")
    return json.loads(out)


async def _node(folder: Path, jobs: Sequence[str]) -> tuple[LaneServer, list[Path]]:
    """A device on which these jobs have one lane."""
    server = LaneServer(folder, Path("/proc"))
    tenants = tuple(
        LaneTenant(
            member=LaneMember(job=job, memory_mib=400, persistent_mib=100, ephemeral_mib=300),
            pod_uid=job,
            slot=f"slot-{number:02d}",
        )
        for number, job in enumerate(jobs)
    )
    device = SharedDevice(memory_mib=100 * len(jobs) + 300, counts_only=True, tenants=tenants)
    await server.settle({"gpu": device})
    return server, [server.folder(one.slot) / LANE_SOCKET for one in tenants]


async def turns(folder: Path) -> tuple[list[float], list[float]]:
    """Times of switches in ms, and seconds that each process ran while all did."""
    server, paths = await _node(folder, [f"job-{number}" for number in range(len(STEPS_MS))])
    until = server._clock() + SECONDS
    try:
        told = await asyncio.gather(
            *(
                _run(PROGRAM, str(path), str(step_ms), str(until))
                for path, step_ms in zip(paths, STEPS_MS, strict=True)
            )
        )
    finally:
        await server.close()
    spans = sorted((begin, end, who) for who, one in enumerate(told) for begin, end in one)
    if any(before[1] > after[0] for before, after in pairwise(spans)):
        raise RuntimeError("two steps of one lane overlap")
    began, ended = max(one[0][0] for one in told), min(one[-1][1] for one in told)
    both = [one for one in spans if one[0] >= began and one[1] <= ended]
    switches = [1000 * (b[0] - a[1]) for a, b in pairwise(both) if a[2] != b[2]]
    ran = [sum(end - begin for begin, end, who in both if who == n) for n in range(len(told))]
    return switches, ran


async def alone(folder: Path) -> tuple[float, float]:
    """Seconds that the runtime adds to a step of a program alone: median, and processor time."""
    server, (path,) = await _node(folder, ["job"])
    before = os.times()
    try:
        *costs, cpu_s = await _run(ALONE, str(path), str(ALONE_STEPS))
    finally:
        await server.close()
    after = os.times()
    ours_s = after.user + after.system - before.user - before.system
    return statistics.median(costs), cpu_s + ours_s / ALONE_STEPS


def jain(shares: Sequence[float]) -> float:
    """Jain's index of fairness, 1 where all are equal (Jain, Chiu and Hawe, DEC-TR-301, 1984).

    Args:
        shares: What each received, in one unit.
    """
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


def measure() -> Figures:
    """Measure all; the state of the server lies in memory, as on a node."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        switches, ran = asyncio.run(turns(Path(folder) / "turns"))
        cost_s, cpu_s = asyncio.run(alone(Path(folder) / "alone"))
    cuts = statistics.quantiles(switches, n=100, method="inclusive")
    return Figures(
        switch_p50_ms=round(cuts[49], 3),
        switch_p99_ms=round(cuts[98], 3),
        switches=len(switches),
        overhead=round(cost_s * 1000 / WORK_MS, 5),
        overhead_cpu=round(cpu_s * 1000 / WORK_MS, 5),
        jain_live=round(jain(ran), 4),
    )


def main() -> int:
    """Measure, and add the figures to those that stand there."""
    found = measure()
    figures: dict[str, report.Figure] = {name: getattr(found, name) for name in Figures.__slots__}
    file = report.FOLDER / f"{NAME}.json"
    known = json.loads(file.read_text())["figures"] if file.is_file() else {}
    rows = [report.Row(what=name, ours=f"{value}") for name, value in figures.items()]
    report.write(NAME, known | figures, rows)
    return report.judge(figures, BARS)


if __name__ == "__main__":
    sys.exit(main())
