# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The replay twin: a few devices, a queue that never ends, and one rule that says who joins whom.

Time jumps from event to event; between two of them every tenant's slowdown is the measured one of
its pair, and each window of five seconds adds noise of its own. Rules see windows, never the
table. It judges no rule; `bench.twin` does.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from bench.twin_data import JobClass, World
from ullage.engines.admission.probation import Outcome, Trial, end_of_trial

WINDOW_S: Final = 5.0
FIRST_ROW_S: Final = 30.0
NEXT_ROW_S: Final = 300.0
ALONE_S: Final = 3600.0
COOL_DOWN_S: Final = 60.0
RESTART_S: Final = 30.0
"""Work that a job loses when it is evicted."""
NOISE_SD: Final = 0.02
"""Of log slowdown, per window and tenant; the tables have one measurement per pair."""
MOST_TENANTS: Final = 2
LOOKAHEAD: Final = 30
"""Waiting jobs that are asked about, oldest first."""
VIOLATIONS: Final = 2
OF_WINDOWS: Final = 3

Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(slots=True)
class Job:
    """One arrival; ``left_s`` is the work it still has, in seconds alone on the device."""

    number: int
    workload_class: JobClass
    left_s: float


@dataclass(slots=True)
class Tenant:
    """A job that runs; ``trial`` is set while it is on trial."""

    job: Job
    trial: Trial | None = None


@dataclass(slots=True)
class Gpu:
    """One device and the segment of time since something changed on it."""

    index: int
    tenants: list[Tenant] = field(default_factory=list)
    since_s: float = 0.0
    joined_s: float = 0.0
    cool_until_s: float = 0.0
    version: int = 0
    meeting: int = 0
    slowdown: tuple[float, ...] = ()
    seen: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    above: Flags = field(default_factory=lambda: np.zeros((0, 0), dtype=np.bool_))
    tail: list[tuple[bool, ...]] = field(default_factory=list)
    """Windows before this segment with the same tenants, as flags of who was above."""
    ends_as: str = ""

    @property
    def trial(self) -> Trial | None:
        """The trial that runs here."""
        return next((one.trial for one in self.tenants if one.trial), None)

    def has_room(self, now_s: float) -> bool:
        """Whether one more may be asked about."""
        return len(self.tenants) < MOST_TENANTS and now_s >= self.cool_until_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was measured of a pair since the last time, and how it stands."""

    meeting: int
    tenants: tuple[JobClass, JobClass]
    slowdown: tuple[float, float]
    violated: bool
    trial: bool
    trial_s: float | None
    """Length of a trial that ended, ``None`` while it goes on or where there was none."""
    now_s: float


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a job goes."""

    gpu: int
    trial: Trial | None = None


class Rule(Protocol):
    """Says who joins whom."""

    name: str
    guarded: bool
    """Whether a guard evicts the newest after two bad windows of three."""

    def place(self, job: Job, gpus: Sequence[Gpu], now_s: float) -> Spot | None:
        """A device for a job, or none yet."""
        ...

    def slowdown(self, one: JobClass, other: JobClass) -> tuple[float, float] | None:
        """What each really suffers beside the other; ``None`` = never together."""
        ...

    def learn(self, seen: Seen, meeting: tuple[int, ...]) -> None:
        """Take in what was measured; ``meeting`` are the numbers of the jobs."""
        ...


@dataclass(slots=True)
class Tally:
    """What came of a rule; windows are of tenants, trials counted apart."""

    windows: int = 0
    violations: int = 0
    shared_windows: int = 0
    trial_windows: int = 0
    trial_violations: int = 0
    goodput: float = 0.0
    finished: int = 0
    evictions: int = 0
    trials: int = 0
    shared_admissions: int = 0


class Twin:
    """One rule over one list of arrivals."""

    def __init__(
        self, world: World, rule: Rule, *, gpus: int, arrivals: Sequence[tuple[float, Job]],
        seed: int,
    ) -> None:  # fmt: skip
        self.world = world
        self.rule = rule
        self.tally = Tally()
        self._gpus = [Gpu(index) for index in range(gpus)]
        self._noise = np.random.default_rng([seed, 7])
        self._waiting: list[Job] = []
        self._events: list[tuple[float, int, int, int]] = []
        self._order = 0
        self._meetings = 0
        self._arrivals = list(reversed(arrivals))

    def run(self, until_s: float) -> Tally:
        """Play until a moment, seconds.

        Raises:
            RuntimeError: the queue ran empty, so the arrivals say nothing about the rule.
        """
        now = 0.0
        while True:
            while self._arrivals and self._arrivals[-1][0] <= now:
                self._waiting.append(self._arrivals.pop()[1])
            self._dispatch(now)
            if not self._waiting:
                raise RuntimeError("the queue ran empty: raise the rate of arrivals")
            upcoming = self._events[0][0] if self._events else until_s
            if self._arrivals:
                upcoming = min(upcoming, self._arrivals[-1][0])
            if upcoming >= until_s:
                break
            now = upcoming
            while self._events and self._events[0][0] <= now:
                _, _, index, version = heapq.heappop(self._events)
                if self._gpus[index].version == version:
                    self._happens(self._gpus[index], now)
        for gpu in self._gpus:
            self._close(gpu, until_s)
        return self.tally

    def _dispatch(self, now: float) -> None:
        position = 0
        while position < min(LOOKAHEAD, len(self._waiting)):
            gpus = [one for one in self._gpus if one.has_room(now)]
            if not gpus:
                return
            spot = self.rule.place(self._waiting[position], gpus, now)
            if spot is None:
                position += 1
                continue
            self._join(self._gpus[spot.gpu], self._waiting.pop(position), spot.trial, now)

    def _join(self, gpu: Gpu, job: Job, trial: Trial | None, now: float) -> None:
        self._close(gpu, now)
        gpu.tenants.append(Tenant(job, trial))
        self._changed(gpu, now)
        self.tally.trials += trial is not None
        self.tally.shared_admissions += len(gpu.tenants) > 1

    def _changed(self, gpu: Gpu, now: float) -> None:
        """Another company: what was seen of the last one says nothing about it."""
        self._meetings += 1
        gpu.meeting = self._meetings
        gpu.joined_s = now
        gpu.tail = []
        self._open(gpu, now)

    def _open(self, gpu: Gpu, now: float) -> None:
        """Draw the windows up to the next thing that can happen by itself, and note it."""
        gpu.version += 1
        gpu.since_s = now
        classes = [one.job.workload_class for one in gpu.tenants]
        gpu.slowdown = self._truth(classes)
        if not gpu.tenants:
            return
        lasts = [one.job.left_s * s for one, s in zip(gpu.tenants, gpu.slowdown, strict=True)]
        horizon = min(lasts)
        gpu.ends_as = "finish"
        fresh = now - gpu.joined_s < FIRST_ROW_S
        chunk = ALONE_S if len(classes) < MOST_TENANTS else FIRST_ROW_S if fresh else NEXT_ROW_S
        if gpu.trial:
            chunk = max(0.0, gpu.joined_s + gpu.trial.seconds - now)
        if chunk < horizon:
            horizon, gpu.ends_as = chunk, "row"
        count = int(horizon // WINDOW_S) + 1
        noise = self._noise.normal(0.0, NOISE_SD, (count, len(classes)))
        gpu.seen = np.array(gpu.slowdown) * np.exp(noise)
        gpu.above = gpu.seen > np.array([one.allowed for one in classes])
        stop = self._stopped(gpu, count) if len(classes) > 1 else None
        if stop is not None and (stop[0] + 1) * WINDOW_S <= horizon:
            horizon, gpu.ends_as = (stop[0] + 1) * WINDOW_S, stop[1]
        self._order += 1
        heapq.heappush(self._events, (now + horizon, self._order, gpu.index, gpu.version))

    def _truth(self, classes: Sequence[JobClass]) -> tuple[float, ...]:
        if len(classes) < MOST_TENANTS:
            return (1.0,) * len(classes)
        both = self.rule.slowdown(classes[0], classes[1])
        if both is None:
            raise RuntimeError(f"{self.rule.name} put an unmeasured pair together")
        return both

    def _stopped(self, gpu: Gpu, count: int) -> tuple[int, str] | None:
        """The first window after which a trial ends or the guard acts."""
        before = np.array(gpu.tail, dtype=np.bool_).reshape(-1, gpu.above.shape[1])
        flags = np.vstack([before, gpu.above])
        if gpu.trial:
            windows: list[bool | None] = [bool(row.any()) for row in flags]
            for last in range(1, len(windows) + 1):
                outcome = end_of_trial(windows[:last], elapsed_s=last * WINDOW_S, trial=gpu.trial)
                if outcome is not Outcome.GOES_ON:
                    name = "commit" if outcome is Outcome.COMMIT else "evict"
                    return max(0, last - 1 - len(before)), name
            return None
        if not self.rule.guarded:
            return None
        padded = np.vstack([np.zeros((OF_WINDOWS - 1, flags.shape[1]), dtype=np.int64), flags])
        sums = padded[2:].astype(int) + padded[1:-1] + padded[:-2]
        bad = np.nonzero((sums >= VIOLATIONS).any(axis=1)[len(before) :])[0]
        return (int(bad[0]), "evict") if len(bad) else None

    def _close(self, gpu: Gpu, now: float) -> None:
        """Count the windows since the segment began and move the work on."""
        passed = now - gpu.since_s
        if not gpu.tenants or passed <= 0:
            return
        count = min(len(gpu.seen), int(passed / WINDOW_S + 1e-9))
        seen, above = gpu.seen[:count], gpu.above[:count]
        tally, total = self.tally, int(above.size)
        self.tally.goodput += float((1 / seen[~above]).sum())
        if gpu.trial:
            tally.trial_windows += total
            tally.trial_violations += int(above.sum())
        else:
            tally.windows += total
            tally.violations += int(above.sum())
            tally.shared_windows += total if len(gpu.tenants) > 1 else 0
        for one, slowdown in zip(gpu.tenants, gpu.slowdown, strict=True):
            one.job.left_s -= passed / slowdown
        gpu.tail = (gpu.tail + [tuple(map(bool, row)) for row in above[-12:]])[-12:]
        if len(gpu.tenants) > 1 and count:
            self._tell(gpu, seen, now)

    def _tell(self, gpu: Gpu, seen: Floats, now: float) -> None:
        first, second = (one.job.workload_class for one in gpu.tenants)
        mean = seen.mean(axis=0)
        over = bool((mean > np.array([first.allowed, second.allowed])).any())
        trial, ended = gpu.trial, gpu.ends_as in ("commit", "evict")
        self.rule.learn(
            Seen(
                meeting=gpu.meeting,
                tenants=(first, second),
                slowdown=(float(mean[0]), float(mean[1])),
                violated=over or gpu.ends_as == "evict",
                trial=trial is not None,
                trial_s=now - gpu.joined_s if trial and ended else None,
                now_s=now,
            ),
            tuple(one.job.number for one in gpu.tenants),
        )

    def _happens(self, gpu: Gpu, now: float) -> None:
        self._close(gpu, now)
        what = gpu.ends_as
        done = [one for one in gpu.tenants if one.job.left_s <= 1e-6]
        if done:
            self.tally.finished += len(done)
            gpu.tenants = [one for one in gpu.tenants if one not in done]
            for one in gpu.tenants:
                one.trial = None
            self._changed(gpu, now)
        elif what == "evict":
            self.tally.evictions += 1
            job = gpu.tenants.pop().job
            job.left_s += RESTART_S
            self._waiting.insert(0, job)
            gpu.cool_until_s = now + COOL_DOWN_S
            self._changed(gpu, now)
        else:
            if what == "commit":
                for one in gpu.tenants:
                    one.trial = None
            self._open(gpu, now)
