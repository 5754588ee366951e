# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m bench.stragglers``: slow ranks get smaller batches, and are found in public traces.

A stock program of four ranks over gloo runs on this machine, each rank under its own CPU quota;
the quota of one is halved while it runs. Policies are compared in the same session, in turn.
``TORCH_PYTHON`` names an interpreter with torch; root is needed for quotas. Traces are ByteDance's
and Alibaba's, in ``stragglers`` of the folder ``--data``.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import gzip
import itertools
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import report
from ullage.api.steps import RankRecord
from ullage.engines.stragglers.detector import RankTimes, find_stragglers
from ullage_run.uneven_plan import divide, gain

RANKS: Final = 4
SLOW_RANK: Final = 2
BATCH: Final = 32
QUOTA: Final = 0.3
"""CPUs of a rank."""
PERIOD_US: Final = 100_000
SLOW_FROM: Final = 15
"""Step from which the slow rank's quota is half."""
WITHIN: Final = 20
"""Steps after which the gain must be there."""
STEPS: Final = 80
"""A step takes several periods of its quota, else their length is all that is measured."""
PATIENCE_S: Final = 400.0
HANG_S: Final = 60.0
WINDOW: Final = 300
"""Iterations of Alibaba's jobs of which the mean is judged."""
BARS: Final[report.Bars] = {
    "speedup": lambda value: value >= 1.5,
    "integer_ideal_ratio": lambda value: value <= 1.12,
    "clean_cost": lambda value: value <= 1.02,
    "parameter_error": lambda value: value <= 1e-6,
    "wrong_sums": lambda value: value == 0,
    "hangs": lambda value: value == 0,
    "trace_errors": lambda value: value == 0,
}


class Quotas:
    """A CPU control group for each rank.

    Raises:
        OSError: quotas cannot be set here.
    """

    def __init__(self) -> None:
        v1 = Path("/sys/fs/cgroup/cpu")
        self._v1 = v1.is_dir()
        root = v1 if self._v1 else Path("/sys/fs/cgroup")
        self._folder = root / _own_group(self._v1) / f"ullage-bench-{os.getpid()}"
        self._folder.mkdir()
        if not self._v1:
            (self._folder / "cgroup.subtree_control").write_text("+cpu")
        self.ranks = [self._folder / str(rank) for rank in range(RANKS)]
        for rank in self.ranks:
            rank.mkdir()

    def limit(self, rank: int, cpus: float) -> None:
        """Let a rank use so many CPUs; 0 = without a limit."""
        quota = int(cpus * PERIOD_US) if cpus else -1
        if self._v1:
            (self.ranks[rank] / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            stated = "max" if quota < 0 else str(quota)
            (self.ranks[rank] / "cpu.max").write_text(f"{stated} {PERIOD_US}")

    def take(self, rank: int, pid: int) -> None:
        """Put a process under the quota of a rank."""
        (self.ranks[rank] / "cgroup.procs").write_text(str(pid))

    def close(self) -> None:
        """Remove the groups, whose processes have ended."""
        for folder in (*self.ranks, self._folder):
            folder.rmdir()


def _own_group(v1: bool) -> str:
    """The control group of this process, so that ranks have no more CPUs than it."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(",") if v1 else not controllers:
            return path.lstrip("/")
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What a run of the program left."""

    sizes: Sequence[Sequence[int]]
    """Batches of each rank, by step."""
    times: Sequence[float]
    """End of each step, seconds."""
    epochs: Sequence[Sequence[int]]
    """Samples of all ranks in each whole epoch, in order."""
    weights: Sequence[float]
    unit_times: Sequence[float]
    """Own time of each rank for a sample, seconds, while one was slow."""

    def step_s(self, first: int) -> float:
        """Median time of a step, from one on."""
        ends = self.times[first:]
        return statistics.median(after - before for before, after in itertools.pairwise(ends))

    @property
    def wrong_sums(self) -> int:
        """Full steps whose batches are not the global batch together."""
        sums = [sum(step) for step in zip(*self.sizes, strict=True)]
        return sum(total not in (BATCH * RANKS, min(sums)) for total in sums)


class Program:
    """The ranks of a run.

    Args:
        folder: For what it writes.
        policy: Of the job.
        arguments: Of the program.
    """

    def __init__(self, folder: Path, policy: str, *arguments: str) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "trace").mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        runtime = report.ROOT / "runtime"
        path = (runtime / "ullage_run" / "autostep", runtime, report.ROOT / "operator")
        program = str(report.ROOT / "bench" / "straggler_program.py")
        python = os.environ.get("TORCH_PYTHON", sys.executable)
        self.ranks = [
            subprocess.Popen(
                [python, program, "--out", str(folder), f"--batch={BATCH}", *arguments],
                env={
                    **os.environ,
                    "PYTHONPATH": ":".join(map(str, path)),
                    "ULLAGE_STEPS": str(folder / "record"),
                    "ULLAGE_STRAGGLERS": policy,
                    "OMP_NUM_THREADS": "1",
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank),
                    "WORLD_SIZE": str(RANKS),
                },
                cwd=folder,
                stdout=subprocess.DEVNULL,
                stderr=(folder / f"errors-{rank}").open("wb"),
            )
            for rank in range(RANKS)
        ]

    def records(self) -> list[RankRecord]:
        """Records of the ranks that step, by rank."""
        records: list[RankRecord] = []
        for rank in range(RANKS):
            with contextlib.suppress(OSError):
                record = RankRecord.unpack((self.folder / "trace" / f"record-{rank}").read_bytes())
                if record is not None:
                    records.append(record)
        return records

    def until(self, steps: int) -> list[RankRecord]:
        """Wait until all ranks did so many steps.

        Raises:
            TimeoutError: they did not.
            RuntimeError: they ended before.
        """
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            records = self.records()
            done = len(records) == RANKS and min(record.steps for record in records) >= steps
            if done:
                return records
            if all(rank.poll() is not None for rank in self.ranks):
                raise RuntimeError((self.folder / "errors-0").read_text()[-2000:])
            time.sleep(0.05)
        raise TimeoutError(f"no {steps} steps within {PATIENCE_S:.0f} s")

    def end(self, within_s: float) -> bool:
        """Wait for all ranks; false if one had to be killed."""
        deadline = time.monotonic() + within_s
        ended = True
        for rank in self.ranks:
            try:
                rank.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                ended = False
                rank.kill()
                rank.wait()
        return ended

    def result(self, before: Sequence[RankRecord], after: Sequence[RankRecord]) -> Trained:
        """What the program wrote.

        Args:
            before: Records at the first step of those that are timed.
            after: Records at the last one.
        """
        reports = [
            json.loads((self.folder / f"rank-{rank}.json").read_text()) for rank in range(RANKS)
        ]
        parts = zip(*(each["epochs"] for each in reports), strict=True)
        return Trained(
            sizes=[each["sizes"] for each in reports],
            times=reports[0]["times"],
            epochs=[sorted(itertools.chain(*epoch)) for epoch in parts],
            weights=reports[0]["weights"],
            unit_times=[
                (new.compute_ns - old.compute_ns) / 1e9 / max(new.samples - old.samples, 1)
                for old, new in zip(before, after, strict=True)
            ],
        )


def train(folder: Path, policy: str, quotas: Quotas | None, *arguments: str, slow: bool) -> Trained:
    """Run the program to its end, one rank slow from a step on or not."""
    program = Program(folder, policy, f"--steps={STEPS}", *arguments)
    try:
        program.until(3)
        for rank, process in enumerate(program.ranks if quotas is not None else ()):
            assert quotas is not None
            quotas.take(rank, process.pid)
            quotas.limit(rank, QUOTA)
        program.until(SLOW_FROM)
        if slow and quotas is not None:
            quotas.limit(SLOW_RANK, QUOTA / 2)
        before = program.until(SLOW_FROM + WITHIN)
        after = program.until(STEPS - 5)
        if not program.end(PATIENCE_S):
            raise TimeoutError("the program did not end")
        return program.result(before, after)
    finally:
        program.end(0)


def trained_figures(rounds: int, burn: int) -> tuple[dict[str, report.Figure], list[report.Row]]:
    """Speed, cost and equality of the two policies."""
    work = f"--burn={burn}"
    speedups, ideals, costs, wrong, lost = [], [], [], 0, 0
    observed = rebalanced = 0.0
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder, quotas = Path(name), Quotas()
        stack.callback(quotas.close)
        first = SLOW_FROM + WITHIN
        for number in range(rounds):
            results = {
                (policy, slow): train(
                    folder / f"{number}-{policy}-{slow}", policy, quotas, work, slow=slow
                )
                for slow in (True, False)
                for policy in ("Observe", "Rebalance")
            }
            observed = results["Observe", True].step_s(first)
            rebalanced = results["Rebalance", True].step_s(first)
            units = results["Observe", True].unit_times
            even = (BATCH,) * RANKS
            ideal = observed * (1 - gain(units, even, divide(units, BATCH)))
            speedups.append(observed / rebalanced)
            ideals.append(rebalanced / ideal)
            costs.append(
                results["Rebalance", False].step_s(first) / results["Observe", False].step_s(first)
            )
            for policy, slow in results:
                wrong += results[policy, slow].wrong_sums
                lost += results[policy, slow].epochs != results["Observe", slow].epochs
        error = parameter_error(folder)
    figures: dict[str, report.Figure] = {
        "speedup": statistics.median(speedups),
        "integer_ideal_ratio": statistics.median(ideals),
        "clean_cost": statistics.median(costs),
        "parameter_error": error,
        "wrong_sums": wrong + lost,
    }
    rows = [
        report.Row(
            what=f"step, one of {RANKS} ranks at half its CPUs",
            ours=f"{rebalanced * 1e3:.0f} ms",
            baseline=f"{observed * 1e3:.0f} ms",
        ),
        report.Row(what="speed-up", ours=f"{figures['speedup']:.2f}", limit=">= 1.5"),
        report.Row(
            what="step over that of the best whole division",
            ours=f"{figures['integer_ideal_ratio']:.2f}",
            limit="<= 1.12",
        ),
        report.Row(
            what="step time without stragglers, relative to Observe",
            ours=f"{figures['clean_cost']:.3f}",
            limit="<= 1.02",
        ),
        report.Row(what="largest difference of a weight", ours=f"{error:.1e}", limit="<= 1e-6"),
        report.Row(what="wrong sums, lost samples", ours=str(wrong + lost), limit="0"),
    ]
    return figures, rows


def parameter_error(folder: Path) -> float:
    """Largest difference of a weight after the same steps, batches divided or not."""
    stock = ("--optimizer=AdamW", "--sample-s=0.002", "--slow=3", f"--slow-rank={SLOW_RANK}")
    even, uneven = (
        train(folder / policy, policy, None, *stock, "--steps=200", slow=False)
        for policy in ("Observe", "Rebalance")
    )
    if min(uneven.sizes[SLOW_RANK]) == BATCH:
        raise RuntimeError("batches were never divided")
    return max(abs(a - b) for a, b in zip(even.weights, uneven.weights, strict=True))


def kills(times: int, seed: int) -> int:
    """Programs that hang after a rank was killed while batches are divided."""
    random_ = random.Random(seed)
    hangs = 0
    with tempfile.TemporaryDirectory() as name:
        for number in range(times):
            slow = ("--slow=3", f"--slow-rank={SLOW_RANK}", "--sample-s=0.002", "--steps=1000")
            program = Program(Path(name) / str(number), "Rebalance", *slow)
            try:
                program.until(random_.randrange(8, 40))
                time.sleep(random_.random())
                program.ranks[random_.randrange(RANKS)].send_signal(signal.SIGKILL)
                hangs += not program.end(HANG_S)
            finally:
                program.end(0)
    return hangs


def trace_errors(data: Path) -> tuple[int, list[report.Row]]:
    """Wrong verdicts on public traces.

    Args:
        data: Folder of the tables.

    Raises:
        OSError: a table is missing.
    """
    errors = 0
    rows: list[report.Row] = []
    for name, ranks, stages in (("AR", [(0, 0)], []), ("ST", [], [3])):
        times, steps = _bytedance(data / f"bytedance_trace_{name}.csv.gz")
        keys = sorted(times)
        verdict = find_stragglers(
            [RankTimes(compute=times[key] / steps, stage=key[0]) for key in keys]
        )
        slow = [keys[straggler.at] for straggler in verdict.stragglers]
        slow_stages = [stage for stage, _ in verdict.stages]
        errors += (slow, slow_stages) != (ranks, stages)
        text = ", ".join(f"stage {stage} rank {rank}" for stage, rank in slow)
        stage_text = ", ".join(f"stage {stage}" for stage in slow_stages)
        rows.append(report.Row(what=f"ByteDance {name}", ours=text or stage_text))
    for job, least in ((1, {"6"}), (2, set[str]()), (3, {"0", "1"})):
        windows = list(_alibaba(data / f"alibaba_minibatch_job{job}.csv"))
        named = [_slow_workers(window) for window in windows]
        ever = set().union(*named)
        errors += not least <= ever or (not least and bool(ever))
        rows.append(
            report.Row(
                what=f"Alibaba job {job}",
                ours=f"workers {', '.join(sorted(ever)) or 'none'} in"
                f" {sum(map(bool, named))} of {len(named)} windows",
            )
        )
    return errors, rows


def _bytedance(path: Path) -> tuple[dict[tuple[int, int], float], int]:
    """Computing seconds by stage and rank among its peers, and the number of steps."""
    times: defaultdict[tuple[int, int], float] = defaultdict(float)
    steps: set[str] = set()
    with gzip.open(path, "rt") as file:
        for row in csv.DictReader(file):
            steps.add(row["step"])
            if row["optype"] in ("forward-compute", "backward-compute"):
                times[int(row["stage"]), int(row["dp_rank"])] += float(row["duration"])
    return times, len(steps)


def _alibaba(path: Path) -> Iterator[dict[str, list[float]]]:
    """Times of the workers in each window."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    for _, window in itertools.groupby(rows, lambda row: (int(row["iteration"]) - 1) // WINDOW):
        times: defaultdict[str, list[float]] = defaultdict(list)
        for row in window:
            times[row["worker"]].append(float(row["minibatch_time_norm_0_1000"]))
        yield times


def _slow_workers(window: dict[str, list[float]]) -> set[str]:
    workers = sorted(window)
    verdict = find_stragglers(
        [RankTimes(compute=statistics.fmean(window[worker])) for worker in workers]
    )
    return {workers[straggler.at] for straggler in verdict.stragglers}


def main() -> None:
    """Measure, print, and write ``build/bench/stragglers.json``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=report.DATA)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--burn", type=int, default=150, help="products of matrices a sample")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    stated = parser.parse_args()
    try:
        errors, rows = trace_errors(stated.data / "stragglers")
    except OSError as error:
        sys.exit(f"bench stragglers: {error}; give the folder of the tables with --data")
    figures: dict[str, report.Figure] = {"trace_errors": errors}
    if stated.rounds:
        trained, more = trained_figures(stated.rounds, stated.burn)
        figures, rows = {**trained, **figures}, [*more, *rows]
    if stated.kills:
        hangs = kills(stated.kills, stated.seed)
        figures["hangs"] = hangs
        rows.append(report.Row(what=f"hangs after {stated.kills} kills", ours=str(hangs)))
    report.write("stragglers", figures, rows)
    bars = {name: bar for name, bar in BARS.items() if name in figures}
    sys.exit(report.judge(figures, bars))


if __name__ == "__main__":
    main()
