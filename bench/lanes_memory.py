# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Trainings that run out of memory where averages are packed, and the same ones in a lane.

``python -m bench.lanes_memory`` (root, Linux) adds its figures to ``build/bench/lanes.json``. The
device is a control group of memory: who takes more than is there is killed by the kernel. Real
processes keep some memory and take more during each step. A device is filled in order as long as
the sums of what trainings take in the mean fit, and these trainings run twice: without lanes, and
in the lane of the real server.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from bench import report
from bench.guard_node import Groups, what_is_missing
from bench.lanes_residents import Fits, RuleDevice, packing, single_lane
from ullage.api.environment import LANE_SOCKET
from ullage.engines.lanes.records import JobDemand
from ullage_node.lanes.members import LaneMember
from ullage_node.lanes.server import LaneServer, LaneTenant, SharedDevice

NAME: Final = "lanes"
BARS: Final[report.Bars] = {
    "memory_killed": lambda found: found == 0,
    "memory_killed_by_averages": lambda found: found >= 1,
}
MEMORY_MIB: Final = 1024
DRAWN: Final = 24
PERSISTENT_MIB: Final = (32, 64)
EPHEMERAL_MIB: Final = (80, 400)
"""What a training keeps, and what a step takes above it; drawn."""
INTERPRETER_MIB: Final = 24
"""Part of what it keeps."""
HOLDS_S: Final = 0.1
RESTS_S: Final = 0.2
"""A step holds its memory for so long; then the training waits for data."""
DUTY: Final = HOLDS_S / (HOLDS_S + RESTS_S)
STEPS: Final = 20
SEED: Final = 1
LIMIT_S: Final = 300.0
KILLED: Final = -signal.SIGKILL
WAITS: Final = 'read _ && exec "$@"'
"""The process begins in its control group."""
PROGRAM: Final = """
import sys, time
from ullage_run import lanes

path, kept_mib, step_mib, interpreter_mib = sys.argv[1], *map(int, sys.argv[2:5])
steps, holds_s, rests_s = int(sys.argv[5]), *map(float, sys.argv[6:8])
mib, plain = 1 << 20, lanes.Plain()
kept = b"1" * ((kept_mib - interpreter_mib) * mib)
lane = lanes.Lane(path, kept_mib, step_mib, plain)
for _ in range(steps):
    with lane.step():
        plain.count(kept_mib, step_mib)
        taken = b"1" * (step_mib * mib)
        time.sleep(holds_s)
        del taken
    time.sleep(rests_s)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How many trainings ended well, and how many were killed for memory."""

    ended: int
    killed: int


def drawn(count: int = DRAWN) -> list[JobDemand]:
    """Trainings in the order in which they come."""
    chance = np.random.default_rng(SEED)
    kept = chance.integers(*PERSISTENT_MIB, count, endpoint=True).tolist()
    steps = chance.integers(*EPHEMERAL_MIB, count, endpoint=True).tolist()
    return [
        JobDemand(name=f"job-{at:02}", persistent_mib=p, ephemeral_mib=e, duty=DUTY)
        for at, (p, e) in enumerate(zip(kept, steps, strict=True))
    ]


def averages(demands: Sequence[JobDemand], usable_mib: int) -> bool:
    """Whether all fit by what they take in the mean: sum of P + duty E within the device.

    Args:
        demands: Residents.
        usable_mib: The device, MiB.
    """
    taken = sum(one.persistent_mib + one.duty * one.ephemeral_mib for one in demands)
    return taken <= usable_mib


def filled(demands: Sequence[JobDemand], fits: Fits) -> list[JobDemand]:
    """Those that a device takes at once by a rule, in order.

    Args:
        demands: In the order in which they come.
        fits: The rule.
    """
    device = RuleDevice(usable_mib=MEMORY_MIB, fits=fits)
    for one in demands:
        device.offer(one)
    return list(device.residents.values())


def ran_of(codes: Sequence[int]) -> Ran:
    """What exit codes say.

    Raises:
        RuntimeError: a training failed in another way.
    """
    others = [code for code in codes if code not in (0, KILLED)]
    if others:
        raise RuntimeError(f"trainings of the bench failed with {others}")
    return Ran(ended=codes.count(0), killed=codes.count(KILLED))


async def _training(groups: Groups, demand: JobDemand, path: str) -> int:
    words = (demand.persistent_mib, demand.ephemeral_mib, INTERPRETER_MIB, STEPS, HOLDS_S, RESTS_S)
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", WAITS, "sh", sys.executable, "-c", PROGRAM, path, *map(str, words),
        stdin=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        groups.join("device", process.pid)
        await process.communicate(b"\n")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode


async def run(demands: Sequence[JobDemand], paths: Mapping[str, str]) -> Ran:
    """Run the trainings at once on a device of :data:`MEMORY_MIB`.

    Args:
        demands: All of them.
        paths: The socket of each one's lane; none without lanes.

    Raises:
        TimeoutError: they do not end.
        RuntimeError: one fails for another reason than memory.
    """
    groups = Groups(outweighs=False)
    try:
        groups.make("device")
        groups.limit_memory("device", MEMORY_MIB)
        trainings = (_training(groups, one, paths.get(one.name, "")) for one in demands)
        async with asyncio.timeout(LIMIT_S):
            codes = await asyncio.gather(*trainings)
    finally:
        groups.remove()
    return ran_of(codes)


async def in_a_lane(demands: Sequence[JobDemand], folder: Path) -> Ran:
    """Run them in lanes of the node's own server, which decides whose step is next."""
    server = LaneServer(folder, Path("/proc"))
    tenants = tuple(
        LaneTenant(
            member=LaneMember(
                job=one.name,
                memory_mib=one.persistent_mib + one.ephemeral_mib,
                persistent_mib=one.persistent_mib,
                ephemeral_mib=one.ephemeral_mib,
            ),
            pod_uid=one.name,
            slot=f"slot-{at:02d}",
        )
        for at, one in enumerate(demands)
    )
    device = SharedDevice(memory_mib=MEMORY_MIB, counts_only=True, tenants=tenants)
    await server.settle({"gpu": device})
    try:
        sockets = {one.member.job: str(server.folder(one.slot) / LANE_SOCKET) for one in tenants}
        return await run(demands, sockets)
    finally:
        await server.close()


def measure() -> dict[str, report.Figure]:
    """Both runs.

    Raises:
        RuntimeError: the lanes have no room for the trainings that averages let in.
    """
    demands = drawn()
    chosen = filled(demands, averages)
    if not single_lane(chosen, MEMORY_MIB):
        raise RuntimeError(f"{len(chosen)} trainings do not fit in one lane")
    packed = asyncio.run(run(chosen, {}))
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        ours = asyncio.run(in_a_lane(chosen, Path(folder)))
    return {
        "memory_trainings": len(chosen),
        "memory_trainings_by_peaks": len(filled(demands, packing)),
        "memory_killed": ours.killed,
        "memory_killed_by_averages": packed.killed,
        "memory_ended": ours.ended,
        "memory_ended_by_averages": packed.ended,
    }


def main() -> int:
    """Measure, and add the figures to those that stand there."""
    if missing := what_is_missing():
        print(f"not measured: who is killed for memory; {missing}", file=sys.stderr)
        return 0
    figures = measure()
    rows = [
        report.Row(
            what=f"of {figures['memory_trainings']} trainings on one device, killed for memory",
            ours=f"{figures['memory_killed']}",
            baseline=f"{figures['memory_killed_by_averages']} packed by averages",
            limit="0, and some",
        ),
        report.Row(
            what="trainings that a device holds",
            ours=f"{figures['memory_trainings']}",
            baseline=f"{figures['memory_trainings_by_peaks']} by peaks",
        ),
    ]
    report.write(NAME, report.figures_before(NAME) | figures, rows)
    return report.judge(figures, BARS)


if __name__ == "__main__":
    sys.exit(main())
