# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Windows of one second from step records: the plain source of the guard's verdicts.

The record is the tenant's own claim. It is used for the tenant's own objective only, and
implausible figures count as no data: they pause no container.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ullage.api.environment import STEPS_FILE
from ullage.api.readers import WireError
from ullage.api.steps import StepRecord
from ullage_node.model.devices import ContainerKey
from ullage_node.model.guard import GuardSubject, ObjectiveWindow
from ullage_node.step_record import read_step_record
from ullage_node.times import GUARD_WARM_UP_S, STEP_WINDOW_S

WARM_UP_STEPS: Final = 5
"""These and :data:`GUARD_WARM_UP_S` must have passed: loading and tuning are not a slowdown."""
OVERDUE: Final = 3.0
"""A window this many times longer than planned is discarded: the agent itself stalled."""

STEP_MOST_MICROS: Final = 86_400 * 1e6

Read = Callable[[ContainerKey], StepRecord | None]


@dataclass(slots=True)
class _StepTrack:
    """State of one container."""

    base: StepRecord | None = None
    """The record at the start of the window; ``None`` = not seen yet."""
    begun: float = 0.0
    newest: StepRecord | None = None
    warm_from: tuple[float, int] | None = None
    """Time of the first step seen, and the step count then."""
    clean: bool = True
    """False while a step is under way that began before the window's conditions."""
    cut_steps: int = 0


class StepWindows:
    """A ``Windows`` over the records that ``read`` gives; damaged ones count as none."""

    def __init__(self, read: Read, window_seconds: float = STEP_WINDOW_S) -> None:
        self._read = read
        self._length = window_seconds
        self._tracks: dict[ContainerKey, _StepTrack] = {}

    @classmethod
    def below(cls, steps_dir: Path) -> StepWindows:
        """Windows over the step records below one directory."""
        return cls(lambda key: read_step_record(f"{steps_dir}/{key.directory}/{STEPS_FILE}"))

    def next(self, subjects: tuple[GuardSubject, ...], now: float) -> tuple[ObjectiveWindow, ...]:
        """Windows that ended since the last call; state of other containers is dropped."""
        keys = {subject.key for subject in subjects}
        self._tracks = {key: self._tracks.get(key, _StepTrack()) for key in keys}
        windows = (self._advance(subject, now) for subject in subjects)
        return tuple(window for window in windows if window is not None)

    def cut(self, key: ContainerKey, now: float) -> None:
        """End the running window now; the step under way began before and will not count."""
        track = self._tracks.get(key)
        if track is None:
            return
        record = self._reading(key) or track.newest
        track.base, track.begun, track.clean = record, now, False
        track.cut_steps = record.steps if record else 0

    def _reading(self, key: ContainerKey) -> StepRecord | None:
        try:
            return self._read(key)
        except WireError:
            return None  # the reader of records for the status counts and reports it

    def _advance(self, subject: GuardSubject, now: float) -> ObjectiveWindow | None:
        track = self._tracks[subject.key]
        record = self._reading(subject.key)
        if record is None or not record.steps:
            return None
        if track.base is None or track.newest is None or _went_back(track.newest, record):
            track.base = track.newest = record
            track.begun, track.clean, track.warm_from = now, True, (now, record.steps)
            return None
        if not track.clean and record.steps > track.cut_steps:
            track.base, track.clean = record, True  # the step across the cut is over
        track.newest = record
        if now - track.begun < self._length:
            return None
        base, begun = track.base, track.begun
        track.begun = now
        if not track.clean:
            return ObjectiveWindow(key=subject.key, begin_s=begun, at_s=now)
        track.base = record
        if now - begun > OVERDUE * self._length or not _warm(track, record, now):
            return ObjectiveWindow(key=subject.key, begin_s=begun, at_s=now)
        return _window(subject, base, record, (begun, now))


def _went_back(before: StepRecord, after: StepRecord) -> bool:
    """True if the container restarted, or its record is not plausible."""
    return (
        after.steps < before.steps
        or after.busy_ns < before.busy_ns
        or after.last_step_ns < before.last_step_ns
    )


def _warm(track: _StepTrack, record: StepRecord, now: float) -> bool:
    since, steps = track.warm_from or (now, record.steps)
    return now - since >= GUARD_WARM_UP_S and record.steps - steps >= WARM_UP_STEPS


def _window(
    subject: GuardSubject, base: StepRecord, record: StepRecord, ends: tuple[float, float]
) -> ObjectiveWindow:
    """The mean step between two records, against the largest allowed one."""
    begin_s, at_s = ends
    steps = record.steps - base.steps
    spent_ns = record.busy_ns - base.busy_ns or record.last_step_ns - base.last_step_ns
    allowed = subject.solo_micros * subject.max_slowdown_percent / 100
    if steps <= 0 or spent_ns <= 0 or allowed <= 0:
        return ObjectiveWindow(key=subject.key, begin_s=begin_s, at_s=at_s)
    micros = spent_ns / steps / 1000
    if micros > STEP_MOST_MICROS:
        return ObjectiveWindow(
            key=subject.key, begin_s=begin_s, at_s=at_s
        )  # no step counted, whatever it claims
    return ObjectiveWindow(
        key=subject.key,
        begin_s=begin_s,
        at_s=at_s,
        ratio=micros / allowed,
        step_micros=int(micros),
        solo_micros=subject.solo_micros,
    )
