# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Hours of churn and faults beside one operator: does its memory follow what exists?

A control plane with KWOK nodes and fake agents. Jobs and services come, are edited, end and go;
some are hostile. The API server restarts, connections are cut and stall, agents are killed, the
operator is frozen for longer than it may lead. It is never killed: a new process would begin a new
series. ``python -m bench.soak``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import csv
import os
import signal
import socket
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from bench.kwok import kwok_cluster
from bench.report import ROOT, Bars, Figure, Row, judge, write
from bench.soak_faults import Agents, Cutter, Faults
from bench.soak_load import Churn
from demo.progress import ending_with_a_reason
from ullage.kube.client import K8sCluster
from ullage.kube.credentials import find_credentials
from ullage_simulate.plotter import DPI, NoPlotter, plotter

SAMPLE_S: Final = 10.0
TELL_S: Final = 60.0
FREEZE_S: Final = 20.0
MOST_GROWTH: Final = 0.05
PARTS: Final = ("parent", "solver", "learner")
FOLDER: Final = ROOT / "build" / "bench"
BARS: Final[Bars] = {"soak_growth": lambda value: value <= MOST_GROWTH}
JUDGED_MINUTES: Final = 60
"""A shorter one tells its figures and is not judged: caches still fill."""
PAGE_KIB: Final = os.sysconf("SC_PAGE_SIZE") / 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Memory of one moment, MiB by part."""

    at_s: float
    series: int
    """Counts the operator's processes: memory is compared within one of them."""
    parts: dict[str, float]

    @property
    def together(self) -> float:
        """All parts, MiB."""
        return sum(self.parts.values())


@dataclass(slots=True, kw_only=True)
class Subject:
    """The operator under load, started again if it ends."""

    kubeconfig: Path
    log: Path
    process: asyncio.subprocess.Process | None = None
    series: int = 0
    exits: list[int] = field(default_factory=list)

    async def run(self) -> None:
        """Keep one running until cancelled."""
        environment = {
            **os.environ,
            "ULLAGE_KUBECONFIG": str(self.kubeconfig),
            "ULLAGE_LEASE_NAMESPACE": "default",
            "ULLAGE_HTTP_PORT": str(free_port()),
        }
        with self.log.open("a") as output:
            while True:
                self.process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "ullage.app.main", "run",
                    env=environment, stdout=output, stderr=output,
                )  # fmt: skip
                self.series += 1
                try:
                    self.exits.append(await self.process.wait())
                finally:
                    if self.process.returncode is None:
                        self.process.terminate()
                        await self.process.wait()
                await asyncio.sleep(2.0)

    async def freeze(self) -> None:
        """Stop the operator for longer than its leadership lasts; it goes on as a standby."""
        if self.process is None or self.process.returncode is not None:
            return
        self.process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(FREEZE_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)

    def memory(self) -> dict[str, float]:
        """Resident MiB of the operator and of its children."""
        if self.process is None or self.process.returncode is not None:
            return {}
        pid = self.process.pid
        found = {"parent": rss_mib(pid)}
        for child in children(pid):
            command = Path(f"/proc/{child}/cmdline").read_bytes()
            if b"spawn_main" not in command and b"forkserver" not in command:
                continue
            part = "learner" if niceness(child) > niceness(pid) else "solver"
            found[part] = found.get(part, 0.0) + rss_mib(child)
        return found


def free_port() -> int:
    """A free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def rss_mib(pid: int) -> float:
    """Resident memory of one process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_KIB / 1024


def niceness(pid: int) -> int:
    """How readily a process lets others go first."""
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[16])


def children(pid: int) -> list[int]:
    """Every process below this one."""
    direct = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return direct + [below for one in direct for below in children(one)]


def growth(samples: Sequence[Sample], part: str = "") -> float | None:
    """Memory of the last ten minutes over that of the second ten, less 1; ``None`` = too short.

    The first ten are left out: caches fill and imports are made. Less than an hour counts by
    sixths. Only the samples of the last process count.
    """
    series = [one for one in samples if one.series == samples[-1].series] if samples else []
    if len(series) < 12:
        return None
    began, ended = series[0].at_s, series[-1].at_s
    window = min(600.0, (ended - began) / 6)

    def middle(first: float, last: float) -> float:
        return statistics.median(
            one.parts.get(part, 0.0) if part else one.together
            for one in series
            if first <= one.at_s <= last
        )

    before = middle(began + window, began + 2 * window)
    return middle(ended - window, ended) / before - 1.0 if before else None


class Recorder:
    """Samples memory into a table and tells how it goes, terminal or not."""

    def __init__(
        self, file: Path, every_s: float, *, subject: Subject, churn: Churn, faults: Faults
    ) -> None:
        self.samples: list[Sample] = []
        self._every_s = every_s
        self._file = file
        self._subject = subject
        self._churn = churn
        self._faults = faults

    async def run(self) -> None:
        """Sample until cancelled."""
        began, told = time.monotonic(), 0.0
        with self._file.open("w", newline="") as output:
            table = csv.writer(output)
            table.writerow(
                ("seconds", "series", *(f"{one}_mib" for one in PARTS), "together_mib", "objects")
            )
            while True:
                with contextlib.suppress(OSError):  # a child ended between two looks
                    self._take(table, time.monotonic() - began)
                    output.flush()
                if time.monotonic() - told >= TELL_S:
                    told = time.monotonic()
                    self._tell(told - began)
                await asyncio.sleep(self._every_s)

    def _take(self, table: object, at_s: float) -> None:
        parts = self._subject.memory()
        if "solver" not in parts or "learner" not in parts:
            return
        one = Sample(at_s=at_s, series=self._subject.series, parts=parts)
        self.samples.append(one)
        row = [round(at_s, 1), one.series, *(round(parts[name], 1) for name in PARTS)]
        table.writerow([*row, round(one.together, 1), self._churn.alive])  # type: ignore[attr-defined]

    def _tell(self, at_s: float) -> None:
        last = self.samples[-1] if self.samples else None
        memory = ", ".join(f"{name} {last.parts[name]:.0f}" for name in PARTS) if last else "none"
        grown = growth(self.samples)
        print(
            f"soak: {at_s / 60:.0f} min, MiB: {memory}, growth "
            f"{'-' if grown is None else f'{grown:+.1%}'}, operator exits "
            f"{len(self._subject.exits)}, {self._churn.told()}, {self._faults.told()}",
            flush=True,
        )


async def soak(minutes: float, nodes: int, folder: Path, *, seed: int) -> dict[str, Figure]:
    """Run it and return the figures."""
    with kwok_cluster(nodes) as kubeconfig:
        cutter = Cutter(_server_port(kubeconfig))
        await cutter.start()
        through = _through(kubeconfig, cutter.port, folder)
        credentials = await find_credentials(str(kubeconfig))
        async with K8sCluster(credentials, user_agent="bench-soak") as cluster:
            subject = Subject(kubeconfig=through, log=folder / "soak-operator.log")
            agents = Agents(kubeconfig, folder / "soak-agents.log")
            churn = Churn(cluster, seed=seed)
            faults = Faults(cutter, agents, subject.freeze, seed=seed)
            every_s = min(SAMPLE_S, minutes)  # a short one has as many samples in a twelfth
            recorder = Recorder(
                folder / "soak.csv", every_s, subject=subject, churn=churn, faults=faults
            )
            parts = (subject, agents, churn, faults, recorder)
            try:
                async with (
                    asyncio.timeout(minutes * 60) as time_is_over,
                    asyncio.TaskGroup() as tasks,
                ):
                    # an early end still gives the figures so far, and leaves nothing running
                    for number in (signal.SIGTERM, signal.SIGINT):
                        asyncio.get_running_loop().add_signal_handler(
                            number, time_is_over.reschedule, 0.0
                        )
                    for part in parts:
                        tasks.create_task(part.run())
            except TimeoutError:
                pass  # the time is over
    try:
        picture(recorder.samples, folder / "soak.png")
    except NoPlotter as error:
        print(f"soak: {error}", flush=True)
    return _figures(recorder.samples, subject, churn, faults)


def _figures(
    samples: Sequence[Sample], subject: Subject, churn: Churn, faults: Faults
) -> dict[str, Figure]:
    last = [one for one in samples if one.series == samples[-1].series] if samples else []
    figures: dict[str, Figure] = {
        "soak_minutes": round((last[-1].at_s - last[0].at_s) / 60, 1) if last else 0,
        "soak_growth": growth(samples),
        "together_mib": round(last[-1].together, 1) if last else None,
        "operator_exits": len(subject.exits),
    }
    for part in PARTS:
        figures[f"{part}_growth"] = growth(samples, part)
        figures[f"{part}_mib"] = round(last[-1].parts[part], 1) if last else None
    return {**figures, **churn.counts, **faults.counts}


def _server_port(kubeconfig: Path) -> int:
    config = yaml.safe_load(kubeconfig.read_text())
    return int(config["clusters"][0]["cluster"]["server"].rsplit(":", 1)[1])


def _through(kubeconfig: Path, port: int, folder: Path) -> Path:
    """A kubeconfig that leads through the place where connections are cut."""
    config = yaml.safe_load(kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    file = folder / "soak-kubeconfig"
    file.write_text(yaml.safe_dump(config))
    file.chmod(0o600)
    return file


def picture(samples: Sequence[Sample], file: Path) -> None:
    """Memory over time.

    Raises:
        NoPlotter: matplotlib is missing.
    """
    plots = plotter()
    drawing, axes = plots.subplots(figsize=(9, 4))
    minutes = [one.at_s / 60 for one in samples]
    for part in PARTS:
        axes.plot(minutes, [one.parts[part] for one in samples], label=part)
    axes.plot(minutes, [one.together for one in samples], label="together")
    axes.set(xlabel="minutes", ylabel="resident MiB", ylim=(0, None))
    axes.legend()
    drawing.savefig(file, dpi=DPI)
    plots.close(drawing)


def main() -> int:
    """Soak, print one table, write soak.json, soak.csv and, with matplotlib, soak.png."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--nodes", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=FOLDER)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with ending_with_a_reason():
        figures = asyncio.run(soak(options.minutes, options.nodes, options.out, seed=options.seed))
    rows = [Row(what=name, ours=str(value)) for name, value in figures.items()]
    write("soak", figures, rows, folder=options.out)
    return judge(figures, BARS) if options.minutes >= JUDGED_MINUTES else 0


if __name__ == "__main__":
    sys.exit(main())
