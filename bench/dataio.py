# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Data input: starvation on a real volume, limits against it, and workers of stock loaders.

Volumes: a loop device of one rate for all (:mod:`bench.dataio_volume`), readers in real control
groups, and the node agent's own reader, windows, judgement and limiter; without kubelets. A drawn
case counts as found if victim, hog and volume are named within three windows; a fair window with
any name is a false alarm. Loaders: an unchanged torch loop over eight drawn devices of user space
with the hook, beside the best of all numbers of workers and beside none.

    TORCH_PYTHON=interpreter-with-torch python -m bench.dataio
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import ullage
import ullage_run
from bench import report
from bench.dataio_volume import CGROUPS, SlowDevice, Tenant, slow_device
from ullage.engines.dataio.fairness import VolumeUse
from ullage.engines.dataio.limits import next_limits
from ullage.engines.dataio.starvation import Starvation, StarvationWatch
from ullage_node.dataio.windows import IoReader, IoReading, window
from ullage_node.devices.cgroup_io import WaitSampler
from ullage_node.guard.io_limits import IoLimiter
from ullage_node.guard.protocol import IoLimit

WINDOW_S: Final = 1.5
SAMPLE_S: Final = 0.05
CASES: Final = 20
FAIR: Final = 200
WINDOWS: Final = 3
ENFORCED_WINDOWS: Final = 10
RATE: Final = 100e6
WORKERS: Final = (0, 1, 2, 4, 6, 8)
MOST: Final = 8
EPOCHS: Final = 5
BARS: Final[report.Bars] = {
    "recall": lambda part: part >= 0.95,
    "false_alarms": lambda count: count == 0,
    "jain_before": lambda jain: jain < 0.7,
    "jain_enforced": lambda jain: jain >= 0.95,
    "best_fraction_min": lambda part: part >= 0.95,
    "default_speedup_min": lambda times: times >= 2,
}


@dataclass(slots=True)
class Node:
    """The agent's own parts over some tenants, window by window."""

    tenants: Mapping[str, Tenant]
    device: SlowDevice
    limiter: IoLimiter
    enforce: bool = False
    uses: list[VolumeUse] = field(default_factory=list)
    watch: StarvationWatch = field(default_factory=StarvationWatch)
    _limits: dict[object, float] = field(default_factory=dict)
    _before: IoReading | None = None
    _reader: IoReader = field(
        default_factory=lambda: IoReader(
            cgroup_root=CGROUPS, sampler=WaitSampler(proc_root=Path("/proc"))
        )
    )

    def look(self) -> tuple[Starvation, ...]:
        """Wait for one window and judge it."""
        if self._before is None:
            self._before = self._read()
        until = time.monotonic() + WINDOW_S
        while time.monotonic() < until:
            time.sleep(SAMPLE_S)
            self._reader.sampler.sample()
        after = self._read()
        volumes = window(self._before, after, self._reader.sampler.take(), {})
        self._before = after
        volumes = {number: uses for number, uses in volumes.items() if number == self.device.number}
        starving = self.watch.take(volumes)
        self.uses = volumes.get(self.device.number, [])
        if self.enforce and self.uses:
            self._limit({case.newest.victim for case in starving})
        return starving

    @property
    def jain(self) -> float:
        """Jain's index of the newest window."""
        judged = self.watch.judgements.get(self.device.number)
        return judged.jain if judged is not None else 1.0

    def _limit(self, starved: set[object]) -> None:
        judged = self.watch.judgements[self.device.number]
        self._limits = next_limits(self._limits, self.uses, judged, starved)
        problem = self.limiter.hold(
            IoLimit(container=key, device=self.device.number, bytes_per_s=round(rate))  # type: ignore[arg-type]
            for key, rate in self._limits.items()
        )
        if problem:
            raise OSError(problem)

    def _read(self) -> IoReading:
        ours = {tenant.key for tenant in self.tenants.values()}
        reading = self._reader.read(time.monotonic())
        kept = {key: counters for key, counters in reading.containers.items() if key in ours}
        return IoReading(at_s=reading.at_s, containers=kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Readers of one tenant."""

    size: int
    count: int = 1
    gap_s: float = 0.0
    cpu: float = 0.0


def played(
    device: SlowDevice,
    limiter: IoLimiter,
    loads: Mapping[str, Load],
    windows: Callable[[Node], None],
    *,
    seed: int,
    enforce: bool = False,
) -> None:
    """Run tenants on a device while ``windows`` looks at them; they end with it."""
    tenants = {name: Tenant(name, cpu=load.cpu) for name, load in loads.items()}
    try:
        for at, (name, load) in enumerate(loads.items()):
            tenants[name].begin(
                device.path, size=load.size, count=load.count, gap_s=load.gap_s, seed=seed + at
            )
        time.sleep(1.0)
        windows(Node(tenants, device, limiter, enforce=enforce))
    finally:
        limiter.hold([])
        for tenant in tenants.values():
            tenant.end()


def found_cases(device: SlowDevice, limiter: IoLimiter, cases: int) -> int:
    """Drawn cases in which victim, hog and volume are named within three windows."""
    draw, found = random.Random(1), 0
    for case in range(cases):
        loads = {
            "train": Load(
                size=draw.choice((16, 32, 64)) << 10,
                gap_s=draw.choice((0.0, 0.0, 0.0005, 0.001)),
            ),
            "etl": Load(size=draw.choice((512, 1024)) << 10, count=draw.choice((1, 2, 4))),
        }
        if draw.random() < 0.5:
            loads["notebook"] = Load(size=4096, gap_s=0.5)

        def named(node: Node, loads: Mapping[str, Load] = loads) -> None:
            nonlocal found
            starving: tuple[Starvation, ...] = ()
            for _ in range(WINDOWS):
                starving = node.look()
            victim, hog = node.tenants["train"].key, node.tenants["etl"].key
            told = {(case.newest.victim, case.volume): case.newest.hog for case in starving}
            right = (victim, device.number) in told and set(told.values()) == {hog}
            found += right
            if not right:
                print("missed", loads, node.uses, file=sys.stderr)

        played(device, limiter, loads, named, seed=100 * case)
    return found


def false_alarms(device: SlowDevice, limiter: IoLimiter, windows: int) -> tuple[int, int]:
    """Windows of fair or otherwise slow tenants, and how many of them named someone."""
    draw, alarms, seen = random.Random(2), 0, 0
    mixes = (
        {"a": Load(size=256 << 10), "b": Load(size=256 << 10)},
        {"a": Load(size=1 << 20, count=2), "b": Load(size=64 << 10, gap_s=0.1)},
        {"a": Load(size=1 << 20), "slow": Load(size=64 << 10, gap_s=-0.02, cpu=0.1)},
        {"a": Load(size=128 << 10), "b": Load(size=128 << 10), "c": Load(size=128 << 10)},
        {"alone": Load(size=64 << 10)},
    )
    while seen < windows:

        def quiet(node: Node) -> None:
            nonlocal alarms, seen
            for _ in range(10):
                starving = node.look()
                seen += 1
                alarms += bool(starving)
                if starving:
                    print("false", node.uses, file=sys.stderr)

        played(device, limiter, draw.choice(mixes), quiet, seed=seen)
    return alarms, seen


def enforced(device: SlowDevice, limiter: IoLimiter) -> tuple[float, float]:
    """Jain's index before and under limits, medians of windows."""
    before: list[float] = []
    after: list[float] = []
    loads = {"train": Load(size=32 << 10), "etl": Load(size=1 << 20, count=2)}

    def windows(node: Node) -> None:
        for number in range(WINDOWS + ENFORCED_WINDOWS):
            node.look()
            if number < WINDOWS:
                before.append(node.jain)
            elif number >= WINDOWS + ENFORCED_WINDOWS // 2:
                after.append(node.jain)

    played(device, limiter, loads, windows, seed=7, enforce=True)
    return statistics.median(before), statistics.median(after)


def loaders(python: str, devices: int) -> tuple[float, float, list[report.Row]]:
    """Least speed of the tuned loop over the grid's best, and over no workers."""
    draw, rows = random.Random(3), []
    fractions: list[float] = []
    speedups: list[float] = []
    for number in range(devices):
        terms = {
            "latency_s": draw.uniform(0.004, 0.012),
            "wire_s": draw.uniform(0.0003, 0.0015),
            "cliff": draw.choice((5, 99, 99, 99)),
            "compute_s": draw.uniform(0.01, 0.03),
            "batches": 40,
        }
        grid = {n: _steps(python, terms, workers=n, epochs=2)[-1][1] for n in WORKERS}
        tuned = _steps(python, terms, workers=0, epochs=EPOCHS, hook=True)
        best, last = min(grid.values()), tuned[-1]
        fractions.append(best / last[1])
        speedups.append(grid[0] / last[1])
        rows.append(
            report.Row(
                what=f"device {number + 1}: step, workers {tuned[0][0]} -> {last[0]}",
                ours=f"{1e3 * last[1]:.1f} ms",
                baseline=f"best {1e3 * best:.1f} ms, none {1e3 * grid[0]:.1f} ms",
            )
        )
    return min(fractions), min(speedups), rows


def _steps(
    python: str, terms: Mapping[str, float], *, workers: int, epochs: int, hook: bool = False
) -> list[tuple[int, float]]:
    """Workers and seconds of a step of each epoch."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "trace").mkdir()
        sources = [str(Path(package.__file__ or "").parents[1]) for package in (ullage, ullage_run)]
        path = [str(Path(ullage_run.__file__ or "").parent / "autostep"), *sources] if hook else []
        environment = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"} | (
            {
                "PYTHONPATH": os.pathsep.join(path),
                "ULLAGE_STEPS": f"{folder}/record",
                "ULLAGE_LOADER": str(MOST),
            }
            if hook
            else {}
        )
        arguments = json.dumps({**terms, "workers": workers, "epochs": epochs})
        done = subprocess.run(
            [python, str(Path(__file__).with_name("dataio_loaders.py")), arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
    return [(int(count), float(step)) for count, step in json.loads(done.stdout)]


def main() -> int:
    """Run what the arguments ask for; figures of parts that did not run are kept."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", choices=("volumes", "loaders"))
    options.add_argument("--cases", type=int, default=CASES)
    options.add_argument("--fair", type=int, default=FAIR)
    options.add_argument("--devices", type=int, default=8)
    options.add_argument("--rate", type=float, default=RATE, help="bytes per second of the volume")
    arguments = options.parse_args()
    figures: dict[str, report.Figure] = report.figures_before("dataio")
    rows: list[report.Row] = []
    if arguments.only != "loaders":
        with (
            tempfile.TemporaryDirectory() as folder,
            slow_device(arguments.rate) as device,
        ):
            limiter = IoLimiter(cgroup_root=CGROUPS, journal=Path(folder) / "limits.json")
            limiter.hold([])  # a version 1 kernel begins to count
            found = found_cases(device, limiter, arguments.cases)
            alarms, seen = false_alarms(device, limiter, arguments.fair)
            before, after = enforced(device, limiter)
        figures |= {
            "recall": round(found / arguments.cases, 3),
            "false_alarms": alarms,
            "fair_windows": seen,
            "jain_before": round(before, 3),
            "jain_enforced": round(after, 3),
            "volume_mb_per_s": arguments.rate / 1e6,
        }
        rows += [
            report.Row(what=f"starvation named, {arguments.cases} cases", ours=f"{found}"),
            report.Row(what=f"false alarms, {seen} fair windows", ours=f"{alarms}"),
            report.Row(what="Jain, enforced", ours=f"{after:.2f}", baseline=f"{before:.2f}"),
        ]
    if arguments.only != "volumes":
        python = os.environ.get("TORCH_PYTHON", sys.executable)
        fraction, speedup, lines = loaders(python, arguments.devices)
        rows += lines
        figures |= {
            "best_fraction_min": round(fraction, 3),
            "default_speedup_min": round(speedup, 2),
        }
    report.write("dataio", figures, rows)
    return report.judge(figures, BARS)


if __name__ == "__main__":
    sys.exit(main())
