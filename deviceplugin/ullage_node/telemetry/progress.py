# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the progress of every container once a second: its claim, checked against the node's data.

Steps and items are the tenant's claim; the time alone comes from the node's own counters. Neither
is a reason to grant more. An implausible record is counted and skipped, and never disturbs the
reading of another container.

A container's speed is estimated from the recent times at which its step count changed. Both times
of a step, actual and alone, come from the same stretch of steps, so that their ratio is meaningful.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import structlog

from ullage.api.environment import STEPS_FILE
from ullage.api.readers import WireError
from ullage.api.steps import StepRecord
from ullage.process.faults import fault_text
from ullage_node.model.devices import Attachment, ContainerBinding, ContainerKey, StepProgress
from ullage_node.step_record import read_step_record
from ullage_node.telemetry.ranks import RankTelemetry
from ullage_node.times import (
    OWN_AVERAGE_LEAST_NS,
    PACE_SPAN_LEAST_NS,
    PACE_WINDOW_NS,
    RANKS_APART_S,
)

WINDOW_STEPS: Final = 20
STEPS_MIN: Final = 3
MARKS_MAX: Final = 128
STEP_MOST_MICROS: Final = 86_400 * 10**6
"""A longer mean is not a step, whatever the container reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceMark:
    """The step count after a change.

    ``last_step_ns`` is CLOCK_MONOTONIC; ``busy_ns`` the sum of all step times, 0 = unknown;
    ``solo_ns`` the time of the work so far alone on the whole device, 0 = unknown.
    """

    steps: int
    last_step_ns: int
    busy_ns: int = 0
    solo_ns: int = 0


class StepPace:
    """The recent marks of one container."""

    def __init__(self) -> None:
        self._marks: deque[PaceMark] = deque(maxlen=MARKS_MAX)

    def take(self, mark: PaceMark) -> None:
        """Add a mark; a decrease of any counter is a restart and resets the pace."""
        last = self._marks[-1] if self._marks else None
        if last is not None:
            if _went_back(last, mark):
                self._marks.clear()
            elif mark.steps == last.steps or (last.solo_ns and not mark.solo_ns):
                return  # unchanged, or the node could not read its own counter
        self._marks.append(mark)
        while len(self._marks) > 2 and _enough(self._marks[1], mark):
            self._marks.popleft()

    def step_micros(self, ewma_ns: int) -> int:
        """Mean time of the recent steps; before the second mark, the container's own average.

        From the sum of step times, so a server's idle time between requests does not count; from
        the clock for a writer without a sum. A running average of short steps is wrong: for 1 ms
        steps under a quota of 40 % it gives 1.05 ms instead of 2.51 ms, as bursts hide the pauses.
        Their second mark is near, so until then their time is 0, unknown.
        """
        steps, span_ns = self._stretch()
        if not steps:
            return ewma_ns // 1000 if ewma_ns >= OWN_AVERAGE_LEAST_NS else 0
        first, last = self._marks[0], self._marks[-1]
        micros = ((last.busy_ns - first.busy_ns) or span_ns) // steps // 1000
        return micros if micros <= STEP_MOST_MICROS else 0

    def solo_step_micros(self) -> int:
        """Time of one step alone on the whole device; 0 until there is enough data.

        time alone = (solo_ns at the end - at the beginning) / steps between, ``derived``.
        """
        steps, span_ns = self._stretch()
        if steps < STEPS_MIN or span_ns < PACE_SPAN_LEAST_NS or not self._marks[0].solo_ns:
            return 0
        return (self._marks[-1].solo_ns - self._marks[0].solo_ns) // steps // 1000

    def _stretch(self) -> tuple[int, int]:
        """Steps and nanoseconds between the first and the last mark."""
        if len(self._marks) < 2:
            return 0, 0
        first, last = self._marks[0], self._marks[-1]
        return last.steps - first.steps, last.last_step_ns - first.last_step_ns


def _went_back(last: PaceMark, mark: PaceMark) -> bool:
    return (
        mark.steps < last.steps
        or mark.last_step_ns < last.last_step_ns
        or mark.busy_ns < last.busy_ns
        or 0 < mark.solo_ns < last.solo_ns
    )


def _enough(second: PaceMark, newest: PaceMark) -> bool:
    """True if the stretch from the second mark on is long enough without the first."""
    return (
        newest.last_step_ns - second.last_step_ns >= PACE_WINDOW_NS
        and newest.steps - second.steps >= WINDOW_STEPS
    )


_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Container:
    """State of one container."""

    pace: StepPace = field(default_factory=StepPace)
    problem: str = ""
    """Reason why its newest record was refused; "" = accepted."""
    invalid: int = 0
    """Number of its refused records."""
    steps: int = 0
    resumed_at: int = 0


class StepTelemetry:
    """Reads the step records in one directory; a ``ProgressSource``."""

    def __init__(self, steps_dir: Path) -> None:
        self._steps_dir = steps_dir
        self._containers: dict[ContainerKey, _Container] = {}
        self._ranks = RankTelemetry(steps_dir)
        self._ranks_at = -RANKS_APART_S
        self._invalid = 0

    @property
    def invalid_total(self) -> int:
        """Number of invalid records read since the agent started."""
        return self._invalid + self._ranks.invalid_total

    def sample(
        self,
        bindings: Sequence[ContainerBinding],
        attachments: Mapping[ContainerKey, Attachment],
        now: float,
    ) -> Mapping[ContainerKey, StepProgress]:
        """Progress of every container that reports any.

        Args:
            bindings: all prepared containers; state of others is dropped.
            attachments: readings of this second.
            now: CLOCK_MONOTONIC, seconds.
        """
        now_ns = int(now * 1e9)
        keys = {binding.key for binding in bindings}
        self._containers = {key: self._containers.get(key, _Container()) for key in keys}
        if now >= self._ranks_at + RANKS_APART_S:
            self._ranks_at = now
            self._ranks.sample(keys, now_ns)
        ranks = self._ranks.observed
        progress: dict[ContainerKey, StepProgress] = {}
        for key in sorted(keys):
            solo_ns = attachments[key].solo_time_ns if key in attachments else 0
            try:
                made = self._look(key, solo_ns, now_ns)
            except Exception as error:  # one bad record must not stop the others
                self._refuse(key, fault_text(error))
            else:
                self._containers[key].problem = ""
                if made is not None:
                    progress[key] = replace(made, ranks=ranks.get(key, ()))
        return progress

    @property
    def refused(self) -> Mapping[ContainerKey, str]:
        """Reasons why containers' records are ignored."""
        return {
            key: container.problem
            for key, container in self._containers.items()
            if container.problem
        }

    def _look(self, key: ContainerKey, solo_ns: int, now_ns: int) -> StepProgress | None:
        container = self._containers[key]
        record = read_step_record(f"{self._steps_dir}/{key.directory}/{STEPS_FILE}", now_ns)
        _check_resumed(container, record)
        return _progress(container.pace, record, solo_ns, now_ns) if record else None

    def _refuse(self, key: ContainerKey, why: str) -> None:
        container = self._containers[key]
        self._invalid += 1
        container.invalid += 1
        if not container.problem:
            _log.warning("step record invalid", container=key.directory, why=why)
        container.problem = why


def _check_resumed(container: _Container, record: StepRecord | None) -> None:
    """Refuse a record whose start resumed from an earlier step than reported before.

    Only a new start, or a program that rolls back, does that, and both count steps from 0 again. A
    repeated claim is accepted: it may have rolled back and caught up between two readings.

    Raises:
        WireError: it did; the text gives both steps.
    """
    if record is None:
        container.steps = container.resumed_at = 0
        return
    before, again = container.resumed_at, record.steps < container.steps
    container.steps, container.resumed_at = record.steps, record.resumed_at
    if record.resumed_at < before and not again:
        raise WireError(
            f"step record says that it resumed at step {record.resumed_at}, said {before} before,"
            " and its steps were not counted again"
        )


def _progress(pace: StepPace, record: StepRecord, solo_ns: int, now_ns: int) -> StepProgress:
    """One container's progress, including its newest record."""
    pace.take(
        PaceMark(
            steps=record.steps,
            last_step_ns=record.last_step_ns,
            busy_ns=record.busy_ns,
            solo_ns=solo_ns,
        )
    )
    return StepProgress(
        steps=record.steps,
        items=record.items,
        step_micros=pace.step_micros(record.ewma_ns),
        solo_step_micros=pace.solo_step_micros(),
        sm_count=record.sm_count,
        busy_ns=record.busy_ns,
        last_step_ns=record.last_step_ns,
        checkpoint_age_s=_age_s(record.last_checkpoint_ns, now_ns),
        resumed_at=record.resumed_at,
    )


def _age_s(then_ns: int, now_ns: int) -> int:
    """Whole seconds since a time, at least one; 0 if the time is unset."""
    return max(1, (now_ns - then_ns) // 1_000_000_000) if then_ns else 0
