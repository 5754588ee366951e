# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The learner's own process: profiles in, piece by piece, models out.

It keeps only the profiles that it was sent, so a new process that is sent them again gives the same
answers. Bytes in, bytes out; it must never see the cluster or a decision.
"""

from __future__ import annotations

import importlib
import os
import pickle
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from ullage.api.schedulingpolicy import Knowledge
from ullage.app.model_summary import Fitted, restored, slim, stored
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.profile import ProfileRecord, SoloEntry, StepRow
from ullage.cluster.records.snapshot import Snapshot
from ullage.engines.admission.colocations import bounded, in_turn
from ullage.engines.admission.judging import Risk
from ullage.engines.admission.learning import MAX_CLASSES, learn
from ullage.engines.admission.model import Cells, LearnedModel
from ullage.engines.admission.pair_gp import Hyper
from ullage.engines.admission.records import ClassProfile, Row, origin_of
from ullage.scheduling.learning.sift import entry_believable, row_believable
from ullage.scheduling.prediction.rows import class_profiles, rows_of

MOST_CROWDS: Final = 500
"""Newest rows of three and more tenants that are kept, of every namespace in turn; those of two are
bounded by class pair."""
NICE: Final = 10

Key = tuple[str, str]
"""Namespace and name of a profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitTask:
    """Learn the model of one accelerator.

    ``previous`` is the model before (``None`` = none); ``fit`` fits everything again. ``wanted``
    are classes whose cells come first, ``classes`` the number to fill.
    """

    accelerator: str
    previous: LearnedModel | None
    fit: bool
    wanted: tuple[str, ...]
    classes: int = MAX_CLASSES
    risk: Risk = field(default_factory=Risk)
    hyper: Hyper | None = None
    """Hyper-parameters that a fit reuses, where the rows are those they were found on."""
    knowledge: Knowledge = field(default_factory=Knowledge)
    at_s: float = 0.0
    """Time for the record of a fit; seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRequest:
    """Changes of profiles, then optionally a task; ``whole`` = discard what was sent before."""

    whole: bool
    changed: Mapping[Key, ProfileRecord] = field(default_factory=dict)
    removed: tuple[Key, ...] = ()
    task: FitTask | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FitAnswer:
    """A model, the seconds of work it took, the budget it was fitted for, and the rejected rows."""

    model: LearnedModel
    seconds: float
    risk: Risk
    refused: Mapping[Key, int] = field(default_factory=dict)
    """Invalid rows, by profile."""


_SHELF: dict[Key, ProfileRecord] = {}
"""The profiles that this process was sent; the schedule bounds their number."""


def settle_in(niceness: int = NICE) -> None:
    """Prepare a new process: lowest CPU priority, and imports before the first task."""
    os.nice(niceness)
    importlib.import_module("scipy.optimize")


def fit_in_worker(payload: bytes) -> bytes:
    """Take one lesson; the answer is empty where it had no task.

    Raises:
        ValueError: a row or a profile has an invalid number; the text names it.
    """
    lesson: FitRequest = pickle.loads(payload)
    if lesson.whole:
        _SHELF.clear()
    for key in lesson.removed:
        _SHELF.pop(key, None)
    _SHELF.update(lesson.changed)
    if lesson.task is None:
        return b""
    return pickle.dumps(run_fit(lesson.task, _SHELF), protocol=pickle.HIGHEST_PROTOCOL)


def run_fit(task: FitTask, profiles: Mapping[Key, ProfileRecord]) -> FitAnswer:
    """Run one task.

    A fit is rounded to what the DeviceProfile stores and conditioned once more, so that a restart
    gives the same model.

    Raises:
        ValueError: a row or a profile has an invalid number; the text names it.
    """
    started = time.perf_counter()
    profiles, refused = believed(profiles, task)
    policy = PolicyRecord(knowledge=task.knowledge)
    snapshot = Snapshot(version=0, taken_at=0.0, profiles=profiles, policy=policy)
    rows = kept_rows(rows_of(snapshot, task.accelerator))
    profiles_of_classes = _related(class_profiles(snapshot, task.accelerator), rows)
    previous = task.previous
    if task.fit or previous is None:
        crowds = any(len(row.partners) > 1 for row in rows)  # evaluated by the cells of their pairs
        classes = MAX_CLASSES if crowds else 0
        fresh = _learn(task, rows, profiles_of_classes, previous, fit=True, classes=classes)
        summary = stored(Fitted(model=fresh, risk=task.risk, at_s=task.at_s))
        back = restored(task.accelerator, summary)
        previous = back.model if back is not None else slim(fresh)
    model = _learn(task, rows, profiles_of_classes, previous, fit=False, classes=task.classes)
    return FitAnswer(
        model=replace(model, scored=()),
        seconds=time.perf_counter() - started,
        risk=task.risk,
        refused=refused,
    )


def believed(
    profiles: Mapping[Key, ProfileRecord], task: FitTask
) -> tuple[dict[Key, ProfileRecord], dict[Key, int]]:
    """The profiles without invalid rows, and the number rejected of each.

    Tenants write rows: implausible ones are rejected, and all others are learned from.
    """
    kept: dict[Key, ProfileRecord] = {}
    refused: dict[Key, int] = {}
    for key, profile in profiles.items():
        sound = _sound(profile, task)
        kept[key] = sound
        left_out = _lines(profile) - _lines(sound)
        if left_out:
            refused[key] = left_out
    return kept, refused


def _sound(profile_record: ProfileRecord, task: FitTask) -> ProfileRecord:
    def rows(stated: Sequence[StepRow]) -> tuple[StepRow, ...]:
        mine = task.accelerator
        return tuple(
            row for row in stated if row.accelerator != mine or row_believable(row, task.at_s)
        )

    def alone(stated: Sequence[SoloEntry]) -> tuple[SoloEntry, ...]:
        mine = task.accelerator
        return tuple(row for row in stated if row.device != mine or entry_believable(row))

    status = replace(
        profile_record.status,
        step_time=rows(profile_record.status.step_time),
        solo=alone(profile_record.status.solo),
    )
    return replace(
        profile_record,
        step_time=rows(profile_record.step_time),
        solo=alone(profile_record.solo),
        status=status,
    )


def _lines(record: ProfileRecord) -> int:
    return sum(
        len(rows)
        for rows in (record.step_time, record.solo, record.status.step_time, record.status.solo)
    )


def kept_rows(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The bounded rows of one accelerator: pairs by class pair and share, and few crowds."""
    pairs = bounded([row for row in rows if len(row.partners) == 1])
    many = [row for row in reversed(rows) if len(row.partners) > 1]
    crowds = in_turn(
        many, lambda row: origin_of(row.workload_class), MOST_CROWDS, most=MOST_CROWDS // 2
    )
    return tuple(sorted((*pairs, *crowds), key=lambda row: (row.at_s, row.id)))


def merged(old: Cells, new: Cells, wanted: Sequence[str]) -> Cells:
    """New cells, and those of the old ones missing there, up to the bound of classes.

    Between two classes of which one is old and the other new there may be no cell: NaN.
    """
    asked = set(wanted)
    rest = sorted(old.index.keys() - new.index.keys(), key=lambda name: (name not in asked, name))
    names = [*new.index, *in_turn(rest, origin_of, MAX_CLASSES)][:MAX_CLASSES]
    if names == list(new.index):
        return new
    steps = new.mean.shape[1]
    shape = (len(names), steps, len(names), steps)
    mean, sd = np.full(shape, np.nan, np.float32), np.full(shape, np.nan, np.float32)
    for source in (old, new):
        at = [place for place, name in enumerate(names) if name in source.index]
        of = [source.index[names[place]] for place in at]
        to = np.ix_(at, range(steps), at, range(steps))
        mean[to] = source.mean[np.ix_(of, range(steps), of, range(steps))]
        sd[to] = source.sd[np.ix_(of, range(steps), of, range(steps))]
    return Cells(index={name: place for place, name in enumerate(names)}, mean=mean, sd=sd)


def _learn(
    task: FitTask,
    rows: Sequence[Row],
    known: Mapping[str, ClassProfile],
    previous: LearnedModel | None,
    *,
    fit: bool,
    classes: int,
) -> LearnedModel:
    return learn(
        rows,
        known,
        accelerator=task.accelerator,
        previous=previous,
        refit=fit,
        wanted=task.wanted,
        risk=task.risk,
        hyper=task.hyper,
        classes=classes,
    )


def _related(profiles: Mapping[str, ClassProfile], rows: Sequence[Row]) -> dict[str, ClassProfile]:
    """Classes with data on this accelerator, or named by a row."""
    named = {row.workload_class for row in rows} | {
        partner.workload_class for row in rows for partner in row.partners
    }
    blank = ClassProfile(workload_class="").fingerprint
    return {
        workload_class: profile
        for workload_class, profile in profiles.items()
        if workload_class in named or profile.curve is not None or profile.fingerprint != blank
    }
