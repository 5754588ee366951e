# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the progress of every container once a second: its claim, against what the node saw.

Steps and items are the tenant's word; the time alone is made from the node's own counters. None of
it is a ground to grant more. A record that makes no sense is counted and left out, and it never
disturbs the reading of another container.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from ullage.api.contract import STEPS_FILE, StepRecord, WireError
from ullage.process.faults import fault_text
from ullage_node.model.devices import Attachment, ContainerBinding, ContainerKey, StepProgress
from ullage_node.step_record import read_step_record
from ullage_node.telemetry.pace import PaceMark, StepPace

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Container:
    """State of one container."""

    pace: StepPace = field(default_factory=StepPace)
    problem: str = ""
    """Why its newest record was refused; "" = it was not."""
    invalid: int = 0
    """Records of it that were refused."""
    steps: int = 0
    resumed_at: int = 0


class StepTelemetry:
    """Reads the step records below one directory; a ``ProgressSource``."""

    def __init__(self, steps_dir: Path) -> None:
        self._steps_dir = steps_dir
        self._containers: dict[ContainerKey, _Container] = {}
        self.invalid_total = 0
        """Readings that were no step record, since the agent started."""

    def sample(
        self,
        bindings: Sequence[ContainerBinding],
        attachments: Mapping[ContainerKey, Attachment],
        now: float,
    ) -> Mapping[ContainerKey, StepProgress]:
        """Progress of every container that reports any.

        Args:
            bindings: all prepared containers; what is remembered of others is dropped.
            attachments: readings of this second.
            now: CLOCK_MONOTONIC, seconds.
        """
        now_ns = int(now * 1e9)
        keys = {binding.key for binding in bindings}
        self._containers = {key: self._containers.get(key, _Container()) for key in keys}
        progress: dict[ContainerKey, StepProgress] = {}
        for key in sorted(keys):
            solo_ns = attachments[key].solo_time_ns if key in attachments else 0
            try:
                made = self._look(key, solo_ns, now_ns)
            except Exception as error:  # the seam of one container
                self._refuse(key, fault_text(error))
            else:
                self._containers[key].problem = ""
                if made is not None:
                    progress[key] = made
        return progress

    @property
    def refused(self) -> Mapping[ContainerKey, str]:
        """Causes for which records of containers count for nothing."""
        return {
            key: container.problem
            for key, container in self._containers.items()
            if container.problem
        }

    def _look(self, key: ContainerKey, solo_ns: int, now_ns: int) -> StepProgress | None:
        container = self._containers[key]
        record = read_step_record(self._steps_dir / key.directory / STEPS_FILE, now_ns)
        _check_resumed(container, record)
        return _progress(container.pace, record, solo_ns, now_ns) if record else None

    def _refuse(self, key: ContainerKey, why: str) -> None:
        container = self._containers[key]
        self.invalid_total += 1
        container.invalid += 1
        if not container.problem:
            _log.warning("step record invalid", container=key.directory, why=why)
        container.problem = why


def _check_resumed(container: _Container, record: StepRecord | None) -> None:
    """Refuse a start that is said to have gone on from an earlier step than it said before.

    Only a new start, or a program that goes back, does that, and both count their steps from 0
    again. What is said twice is believed: it may have gone back and caught up between two looks.

    Raises:
        WireError: it is; the text says from where to where.
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
    """One container's progress, after its newest record was taken in."""
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
    """Whole seconds since a moment, one at least; 0 for a moment that never was."""
    return max(1, (now_ns - then_ns) // 1_000_000_000) if then_ns else 0
