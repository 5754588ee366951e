# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Ours in the replay twin: predict, admit or try out, observe, learn.

Only the product's own functions decide; what this file adds is when they are called and what is
kept of what was seen. It starts knowing no one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from unittest import mock

import numpy as np

from bench.twin_data import JobClass, World
from bench.twin_rules import WHOLE, Admitting, profile_of
from bench.twin_world import Gpu, Job, Seen, Spot
from ullage.engines.admission import learning
from ullage.engines.admission.colocations import Sides
from ullage.engines.admission.filters import proposal_for
from ullage.engines.admission.model import STEPS, Cells, LearnedModel, Models
from ullage.engines.admission.pair_gp import Posterior
from ullage.engines.admission.probation import Account, Trial, may_probe
from ullage.engines.admission.records import ClassProfile, Partner, Row
from ullage.engines.admission.verdict import Basis, RiskSettings, Verdict

REFIT_GROWTH: Final = 1.5
"""Everything is fitted again when there are so many times the rows of the last fit; ..."""
CONDITION_GROWTH: Final = 1.25
"""... conditioned on new rows when there are so many times those of the last time, ..."""
CONDITION_S: Final = 7200.0
"""... or when new ones have waited so long."""
LEAST_ROWS: Final = 10


def fill_whole_shares(
    posterior: Posterior,
    sides: Sides,
    wanted: Sequence[str],
    classes: int,
    *,
    keep: Cells = learning.NO_CELLS,
) -> Cells:
    """Cells of the only share that occurs here: 100 percent; the others are left open.

    The learner fills every share, which is most of its time, for cells no one asks about. All are
    asked again every time: nothing is kept.
    """
    count = len(sides.profiles)
    names = [one.workload_class for one in sides.profiles]
    victim, aggressor = (grid.ravel() for grid in np.mgrid[0:count, 0:count])
    logs = np.array(
        [
            sides.log_base(names[one], WHOLE, names[other], WHOLE)
            for one, other in zip(victim, aggressor, strict=True)
        ]
    )
    ones = np.ones(len(victim))
    mean, sd = posterior.predict(sides.rows(victim, aggressor, (ones, ones), logs))
    shape = (count, STEPS, count, STEPS)
    cells = np.full(shape, np.nan, np.float32), np.full(shape, np.nan, np.float32)
    for table, values in zip(cells, (mean, sd), strict=True):
        table[:, STEPS - 1, :, STEPS - 1] = values.reshape(count, count)
    return Cells(
        index={name: place for place, name in enumerate(names)}, mean=cells[0], sd=cells[1]
    )


@dataclass(slots=True)
class Lessons:
    """Rows for the product's learner, bounded.

    Those of one meeting of two tenants are averaged to one each way, and of every pair of classes
    the first meeting and the newest are kept.
    """

    accelerator: str
    model: LearnedModel | None = None
    fits: int = 0
    learned_s: float = 0.0
    _sums: dict[tuple[str, str, bool], tuple[float, int, Row]] = field(default_factory=dict)
    _meetings: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    _profiles: dict[str, ClassProfile] = field(default_factory=dict)
    _fitted: int = 0
    _conditioned: int = 0
    _fresh: bool = False

    def observe(self, rows: Sequence[Row], profiles: Sequence[ClassProfile], meeting: int) -> None:
        """Take in rows of a meeting; nothing is fitted."""
        for row in rows:
            pair = (row.workload_class, row.partners[0].workload_class)
            first, newest = self._meetings.get(pair, (meeting, meeting))
            self._meetings[pair] = (first, meeting)
            key = (*pair, meeting != first)
            fresh = meeting not in (first, newest)
            total, count, _ = (0.0, 0, row) if fresh else self._sums.get(key, (0.0, 0, row))
            self._sums[key] = (total + math.log(row.slowdown), count + 1, row)
        self._profiles |= {one.workload_class: one for one in profiles}
        self._fresh = True

    def due(self, now_s: float) -> bool:
        """Whether the background would learn now."""
        if not self._fresh or len(self._sums) < LEAST_ROWS:
            return False
        return (
            len(self._sums) >= CONDITION_GROWTH * self._conditioned
            or now_s >= self.learned_s + CONDITION_S
        )

    def learn(self, now_s: float) -> LearnedModel:
        """The product's learner over every row."""
        refit = len(self._sums) >= REFIT_GROWTH * self._fitted
        rows = [
            replace(row, slowdown=math.exp(total / count))
            for total, count, row in self._sums.values()
        ]
        with mock.patch.object(learning, "fill", fill_whole_shares):
            self.model = learning.learn(
                rows,
                self._profiles,
                accelerator=self.accelerator,
                previous=self.model,
                refit=refit,
                wanted=(),
            )
        self.fits += refit
        self._fitted = len(rows) if refit else self._fitted
        self._conditioned = len(rows)
        self.learned_s, self._fresh = now_s, False
        return self.model


def booked(
    account: Account, *, seconds: float, rows: tuple[int, int], faulted: bool = False
) -> Account:
    """The account after a trial.

    Rows that the trial itself gave do not fill the budget again.

    Args:
        account: Before the trial.
        seconds: How long the trial ran.
        rows: Rows of the class before and after it.
        faulted: Whether the class faulted the device.

    Raises:
        ValueError: the seconds are negative or no number.
    """
    if not 0 <= seconds < math.inf:
        raise ValueError(f"a trial takes at least 0 s, not {seconds:g}")
    before, after = rows
    spent = seconds if before > account.rows else account.spent_s + seconds
    return replace(account, spent_s=spent, rows=after, faults=account.faults + faulted)


@dataclass(slots=True)
class Ours(Admitting):
    """Admission with what was learned so far, trials where nothing is certified yet.

    A pair of classes that just went wrong is not asked about again before that was learned.
    """

    lessons: Lessons = field(default_factory=lambda: Lessons(""))
    settings: RiskSettings = field(default_factory=RiskSettings)
    name: str = "ours"
    guarded: bool = True
    models: int = 0
    _accounts: dict[str, Account] = field(default_factory=dict)
    _rows: dict[str, int] = field(default_factory=dict)
    _avoided: set[tuple[str, str]] = field(default_factory=set)
    _serial: int = 0

    def place(self, job: Job, gpus: Sequence[Gpu], now_s: float) -> Spot | None:
        """The product's choice; what was learned in the background comes in between."""
        if self.lessons.due(now_s):
            model = self.lessons.learn(now_s)
            self.models += 1
            self.basis = replace(
                self.basis,
                forecaster=Models(by_accelerator={self.world.accelerator: model}),
                thresholds=model.thresholds,
            )
            self._avoided.clear()
            self.forget_answers()
        return Admitting.place(self, job, gpus, now_s)

    def offered(self, job: Job, gpus: Sequence[Gpu]) -> list[Gpu]:
        """All but those where just this company went wrong."""
        return [
            one
            for one in Admitting.offered(self, job, gpus)
            if not one.tenants
            or (one.tenants[0].job.workload_class.name, job.workload_class.name)
            not in self._avoided
        ]

    def use(self, workload_class: JobClass) -> float:
        """Not measured: the tables hold no counters."""
        return 1.0

    def rows(self, workload_class: JobClass) -> int:
        """Rows of a class."""
        return self._rows.get(workload_class.name, 0)

    def otherwise(self, job: Job, gpus: Sequence[Gpu], verdicts: Sequence[Verdict]) -> Spot | None:
        """A trial on the device with the largest margin, where one is allowed."""
        account = self._accounts.get(
            job.workload_class.name, Account(workload_class=job.workload_class.name)
        )
        found: list[tuple[float, int, Trial]] = []
        for verdict in verdicts:
            gpu = next(one for one in gpus if f"{one.index:04d}" == verdict.device)
            if not gpu.tenants:
                continue
            device, newcomer = self.question(job.workload_class, gpu)
            proposal = proposal_for(newcomer, device)
            trial = may_probe(verdict, proposal, account, self.settings)
            if isinstance(trial, Trial):
                found.append((-verdict.z, gpu.index, trial))
        if not found:
            return None
        _, index, trial = min(found, key=lambda one: one[:2])
        return Spot(index, trial)

    def learn(self, seen: Seen, meeting: tuple[int, ...]) -> None:
        """Rows for the learner, seconds for the account of a class on trial."""
        first, second = seen.tenants
        before = self.rows(second)
        self.lessons.observe(
            self._as_rows(seen), [profile_of(one) for one in seen.tenants], seen.meeting
        )
        for one in seen.tenants:
            self._rows[one.name] = self.rows(one) + 1
        if seen.trial_s is not None:
            account = self._accounts.get(second.name, Account(workload_class=second.name))
            self._accounts[second.name] = booked(
                account, seconds=seen.trial_s, rows=(before, self.rows(second))
            )
        if seen.violated:
            self._avoided |= {(first.name, second.name), (second.name, first.name)}

    def _as_rows(self, seen: Seen) -> list[Row]:
        rows = []
        for me, other in ((0, 1), (1, 0)):
            self._serial += 1
            mine, partner = seen.tenants[me], seen.tenants[other]
            rows.append(
                Row(
                    id=f"row-{self._serial:07d}",
                    workload_class=mine.name,
                    family=mine.family,
                    accelerator=self.world.accelerator,
                    percent=WHOLE,
                    partners=(Partner(workload_class=partner.name, percent=WHOLE),),
                    step_s=mine.step_s * seen.slowdown[me],
                    slowdown=seen.slowdown[me],
                    at_s=seen.now_s,
                    max_slowdown=mine.allowed,
                    probation=seen.trial,
                )
            )
        return rows


def ours(world: World) -> Ours:
    """The product, knowing no one."""
    return Ours(
        world,
        basis=Basis(forecaster=Models(), thresholds={}),
        lessons=Lessons(world.accelerator),
    )


def certified(rule: Ours) -> Mapping[str, str]:
    """The thresholds in force, for people."""
    return {
        f"{group} {band}": one.said()
        for (group, band), one in sorted(rule.basis.thresholds.items())
        if one.rows
    }
