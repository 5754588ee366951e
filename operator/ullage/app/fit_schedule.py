# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Chooses the learner's next work: an accelerator with new rows, and the amount of work.

New rows are conditioned on within seconds, cells are widened when nothing is more urgent, and a fit
(hyper-parameters, rungs, thresholds) is rare. Times are bounded by the cost of the work, so that a
flood of rows takes a fraction of one core. No processes and no I/O here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ullage.api.schedulingpolicy import Knowledge, RiskSettings
from ullage.app.fit_worker import FitAnswer, FitTask, Key, merged
from ullage.app.model_summary import Fitted, digest, essence, restored, slim
from ullage.app.times import BACKGROUND_BACKOFF_FIRST_S, BACKGROUND_BACKOFF_MOST_S
from ullage.cluster.records.profile import ProfileRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.engines.admission.colocations import in_turn
from ullage.engines.admission.judging import Risk
from ullage.engines.admission.learning import MAX_CLASSES, known_hyper
from ullage.engines.admission.model import LearnedModel
from ullage.engines.admission.pair_gp import Hyper
from ullage.process.doubling import doubled_s
from ullage.scheduling.model.phases import OVER
from ullage.scheduling.prediction.knowledge import class_of, measured_only, named

MOST_PROFILES: Final = 1_000
"""Profiles that are learned from: of every namespace in turn, the most recently written first."""
QUICK_CLASSES: Final = 6
"""Classes whose cells are filled at once: 3,600 cells; the others follow."""
REST: Final = 4
"""Pause of an accelerator after a fit, as a multiple of its time: a fifth of a core at most."""
FIT_REST: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Minimum time between lessons and between fits, seconds, and new rows that make a fit due."""

    every_s: float = 5.0
    fit_every_s: float = 1800.0
    fit_rows: int = 200


@dataclass(frozen=True, slots=True)
class _Part:
    """Part of a profile for one accelerator: a mark of its content, and the times of its rows."""

    mark: int
    times: tuple[float, ...]


@dataclass(slots=True)
class _Delay:
    """Earliest next start of a kind of work, monotonic seconds, and its last failure."""

    until: float = 0.0
    failures: int = 0
    error: str = ""

    def failed(self, error: str, now: float) -> None:
        wait = doubled_s(BACKGROUND_BACKOFF_FIRST_S, self.failures, BACKGROUND_BACKOFF_MOST_S)
        self.failures, self.error, self.until = self.failures + 1, error, now + wait

    def done(self, until: float) -> None:
        self.failures, self.error, self.until = 0, "", until


@dataclass(slots=True)
class FitState:
    """One accelerator: its current rows, and the model learned from them."""

    accelerator: str
    parts: dict[Key, _Part] = field(default_factory=dict)
    learned: int | None = None
    """Mark of the rows in the model."""
    fitted: Fitted | None = None
    """The last fit, slim."""
    distrusts: bool = False
    """The model in the DeviceProfile was unusable."""
    fitted_rows: int = 0
    """Number of rows when it was made."""
    model: LearnedModel | None = None
    """The model as seen by decisions."""
    wide: bool = False
    """The cells of every class that gets some are filled."""
    asked: frozenset[str] = frozenset()
    """Classes wanted at that time."""
    lessons: _Delay = field(default_factory=_Delay)
    fits: _Delay = field(default_factory=_Delay)

    @property
    def mark(self) -> int:
        """Mark of the current rows."""
        return hash(frozenset((key, part.mark) for key, part in self.parts.items()))

    @property
    def error(self) -> str:
        """Failure that stops learning; "" = none."""
        return self.lessons.error or self.fits.error

    @property
    def rows(self) -> int:
        """Number of current rows."""
        return sum(len(part.times) for part in self.parts.values())

    def fresh_rows(self) -> int:
        """Rows newer than the last fit; old ones that were imported since count too."""
        since = self.fitted.at_s if self.fitted else 0.0
        newer = sum(time > since for part in self.parts.values() for time in part.times)
        return max(newer, self.rows - self.fitted_rows)


class FitSchedule:
    """Chooses the next task by the snapshot; one task runs at a time."""

    def __init__(self, pace: Pace) -> None:
        """Nothing is known before the first look."""
        self._pace = pace
        self._met: frozenset[str] = frozenset()
        """Accelerators that were in the cluster: profiles may name any, and nothing is learned
        about others."""
        self._seen: Mapping[Key, ProfileRecord] = {}
        self._held: dict[Key, ProfileRecord] = {}
        self._unsent: dict[Key, ProfileRecord | None] = {}
        self._wanted: tuple[str, ...] = ()
        self._risk = Risk()
        self._knowledge = Knowledge()
        self._marks: dict[str, tuple[int, int]] = {}
        self.courses: dict[str, FitState] = {}

    def see(self, snapshot: Snapshot, now: float) -> None:
        """Update from the snapshot; the cost is that of the changes since the last one."""
        on_nodes = {device.model for node in snapshot.gpu_nodes.values() for device in node.devices}
        met = (on_nodes | snapshot.device_profiles.keys()) - self._met
        if met:
            self._met |= met
            for key, record in self._held.items():
                self._share_out(key, _parts(record, self._knowledge))
        if snapshot.profiles is not self._seen:
            self._seen = snapshot.profiles
            self._follow(_chosen(snapshot.profiles))
        self._risk = risk_of(snapshot.policy.risk)
        if snapshot.policy.knowledge != self._knowledge:
            self._knowledge = snapshot.policy.knowledge
            for key, record in self._held.items():
                self._share_out(key, _parts(record, self._knowledge))
        wanted = {
            named(workload.workload_class, workload.ref.namespace, self._knowledge)
            for workload in snapshot.workloads.values()
            if workload.workload_class and workload.status.phase not in OVER
        }
        self._wanted = tuple(sorted(wanted))
        for name, course in self.courses.items():
            device = snapshot.device_profiles.get(name)
            untaught = course.fitted is None and course.model is None and not course.distrusts
            if untaught and device and device.model:
                fitted = restored(name, device.model)
                if fitted is not None:
                    course.fitted = replace(fitted, at_s=min(fitted.at_s, now))
                    course.fitted_rows = course.rows
            if course.lessons.error and course.mark == course.learned:
                course.lessons.done(0.0)  # the rows that failed are gone

    def next(self, now: float, monotonic: float) -> FitTask | None:
        """The most urgent task that may start, if any."""
        courses = [self.courses[name] for name in sorted(self.courses)]
        for rule in (self._condition, self._fit, self._widen):
            for course in courses:
                task = rule(course, now, monotonic)
                if task is not None:
                    self._marks[course.accelerator] = (course.mark, course.rows)
                    return task
        return None

    def unsent(self, most: int) -> tuple[dict[Key, ProfileRecord], tuple[Key, ...]]:
        """Changes not yet sent to the learner's process: new records, and deleted keys."""
        keys = list(self._unsent)[:most]
        profiles = {key: self._unsent.pop(key) for key in keys}
        changed = {key: profile for key, profile in profiles.items() if profile is not None}
        return changed, tuple(key for key, profile in profiles.items() if profile is None)

    def send_all(self) -> None:
        """Send everything again: the process is a new one."""
        self._unsent = dict(self._held)

    def learned(self, task: FitTask, answer: FitAnswer, now: float, monotonic: float) -> bool:
        """Record an answer; returns True when decisions get a new model."""
        course = self.courses[task.accelerator]
        before, model = course.model, answer.model
        if task.fit:
            course.fitted = Fitted(model=slim(model), risk=answer.risk, at_s=task.at_s)
            course.fitted_rows = self._marks[task.accelerator][1]
            course.fits.done(monotonic + FIT_REST * answer.seconds)
        course.learned = self._marks[task.accelerator][0]
        course.asked = frozenset(self._wanted)
        course.wide = not model.hyper or len(model.cells.index) >= min(
            MAX_CLASSES, len(model.classes)
        )
        if before is not None and not course.wide:
            cells = merged(before.cells, model.cells, self._wanted)
            model = replace(model, cells=cells)
        course.lessons.done(monotonic + max(self._pace.every_s, REST * answer.seconds))
        model = replace(model, version=_version(course, before, model))
        if before is not None and digest(before) == digest(model):
            return False
        course.model = model
        return True

    def failed(self, task: FitTask, error: str, monotonic: float) -> None:
        """Record that a task failed or was late: the previous model stays."""
        course = self.courses[task.accelerator]
        if course.model is None and not task.fit:
            # the stored model does not fit the rows: fit again
            course.fitted, course.distrusts = None, True
        delay = course.fits if task.fit and course.fitted is not None else course.lessons
        delay.failed(error, monotonic)

    def models(self) -> dict[str, LearnedModel]:
        """Models for decisions, by accelerator."""
        return {
            name: course.model
            for name, course in sorted(self.courses.items())
            if course.model is not None
        }

    @property
    def rebuilding(self) -> bool:
        """True while a model learned before a restart is not available yet."""
        return any(
            course.fitted is not None and course.model is None and not course.error
            for course in self.courses.values()
        )

    # -- what is due -----------------------------------------------------------------------------

    def _condition(self, course: FitState, now: float, monotonic: float) -> FitTask | None:
        if course.mark == course.learned or monotonic < course.lessons.until:
            return None
        fit = course.fitted is None or not course.fitted.model.rungs
        return self._task(course, now, fit=fit, classes=QUICK_CLASSES)

    def _fit(self, course: FitState, now: float, monotonic: float) -> FitTask | None:
        fitted = course.fitted
        if fitted is None or monotonic < max(course.fits.until, course.lessons.until):
            return None
        fresh = course.fresh_rows()
        due = fresh and now - fitted.at_s >= self._pace.fit_every_s
        if not due and fresh < self._pace.fit_rows and fitted.risk == self._risk:
            return None
        hyper = known_hyper(fitted.model) if not fresh else None  # only the budget changed
        return self._task(course, now, fit=True, classes=QUICK_CLASSES, hyper=hyper)

    def _widen(self, course: FitState, now: float, monotonic: float) -> FitTask | None:
        model = course.model
        if model is None or monotonic < course.lessons.until:
            return None
        lacks = any(
            name in model.classes and name not in model.cells.index
            for name in set(self._wanted) - course.asked
        )
        if course.wide and not (lacks and model.hyper):
            return None
        return self._task(course, now, fit=False, classes=MAX_CLASSES)

    def _task(
        self,
        course: FitState,
        now: float,
        *,
        fit: bool,
        classes: int,
        hyper: Hyper | None = None,
    ) -> FitTask:
        return FitTask(
            accelerator=course.accelerator,
            previous=course.fitted.model if course.fitted else None,
            fit=fit,
            wanted=self._wanted,
            classes=classes,
            risk=self._risk,
            hyper=hyper,
            knowledge=self._knowledge,
            at_s=float(int(now)),
        )

    # -- the rows --------------------------------------------------------------------------------

    def _follow(self, profiles: Mapping[Key, ProfileRecord]) -> None:
        for key in [key for key in self._held if key not in profiles]:
            del self._held[key]
            self._unsent[key] = None
            self._share_out(key, {})
        for key, record in profiles.items():
            if self._held.get(key) is not record:
                self._held[key] = record
                self._unsent[key] = record
                self._share_out(key, _parts(record, self._knowledge))

    def _share_out(self, key: Key, parts: Mapping[str, _Part]) -> None:
        for name, course in self.courses.items():
            if name not in parts:
                course.parts.pop(key, None)
        for name in parts.keys() & self._met:
            self.courses.setdefault(name, FitState(accelerator=name)).parts[key] = parts[name]


def risk_of(settings: RiskSettings) -> Risk:
    """The policy's risk budget as admission takes it."""
    return Risk(
        eps=settings.eps_percent / 100,
        confidence=settings.confidence_percent / 100,
    )


def _version(course: FitState, before: LearnedModel | None, model: LearnedModel) -> int:
    """Version of a model: it grows with learning; a rebuilt model keeps the stored one."""
    if before is not None:
        return before.version + (essence(before) != essence(model))
    stored = course.fitted.model if course.fitted else None
    if stored is None or not stored.version:
        return 1
    return stored.version + (stored.rows != model.rows)


def _chosen(profiles: Mapping[Key, ProfileRecord]) -> Mapping[Key, ProfileRecord]:
    """Profiles with anything measured, up to the bound."""
    measured: Iterable[tuple[Key, ProfileRecord]] = (
        (key, record)
        for key, record in profiles.items()
        if record.status.step_time or record.step_time or record.solo or record.status.solo
    )
    newest = sorted(measured, key=lambda item: (item[1].status.updated, item[0]), reverse=True)
    return dict(in_turn(newest, lambda item: item[0][0], MOST_PROFILES))


def _parts(record: ProfileRecord, knowledge: Knowledge) -> dict[str, _Part]:
    """Parts of a profile by accelerator, alone or beside others."""
    rows: dict[str, list[tuple[str, float]]] = {}
    for row in measured_only(record, knowledge).rows:
        if row.partners:
            rows.setdefault(row.accelerator, []).append((row.id, row.at_s))
    alone: dict[str, list[object]] = {}
    for entry in (*record.solo, *record.status.solo):
        alone.setdefault(entry.device, []).append(replace(entry, samples=0))
    same = (
        class_of(record, knowledge),
        knowledge.trusts(record.namespace),
        record.family,
        record.status.family,
        record.status.novel,
    )
    return {
        name: _Part(
            mark=hash((same, frozenset(rows.get(name, ())), tuple(alone.get(name, ())))),
            times=tuple(time for _, time in rows.get(name, ())),
        )
        for name in rows.keys() | alone.keys()
    }
