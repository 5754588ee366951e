# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Events about a search: what is new in the status that is written next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ullage.api.reasons import ConditionType, Reason
from ullage.cluster.records.tuning import TrialResize, TrialResult, TuningRecord, TuningStatus
from ullage.cluster.values.names import trial_name
from ullage.scheduling.model.conditions import newly_true
from ullage.scheduling.model.plan import Emit

_MOST_NAMED: Final = 8
_ANNOUNCED: Final = (
    ConditionType.PLANNED,
    ConditionType.STALLED,
    ConditionType.POOL_TOO_SMALL,
)
"""Conditions that come with an Event when they begin to hold."""


def events_of(
    job: TuningRecord,
    status: TuningStatus,
    fresh: Sequence[TrialResult],
    *,
    over: Reason | None,
    epoch: int,
) -> tuple[Emit, ...]:
    """Failed trials, decided groups, resizes, conditions that begin to hold, the end of the search.

    Args:
        job: As it was read.
        status: That is written next.
        fresh: Results that are counted now.
        over: Why the search has ended; ``None`` = it goes on.
        epoch: Of this leader.
    """
    said: list[tuple[bool, Reason, str]] = [
        (True, one.reason, f"{trial_name(job.ref.name, one.trial)} has no value: {one.reason}")
        for one in fresh
        if one.reason is not None
    ]
    open_before = {one.name for one in job.status.groups if one.ended < one.trials}
    said += [
        (False, Reason.GROUP_FINISHED, f"{one.name}: {one.trials} trials reached epoch {one.epoch}")
        for one in status.groups
        if one.name in open_before and one.ended == one.trials
    ]
    resizes = _new_resizes(job, status)
    if resizes:
        said.append((False, Reason.TRIAL_RESIZED, _resize_texts(job, resizes)))
    said += [
        (one.type != ConditionType.PLANNED, Reason(one.reason), one.message)
        for one in newly_true(job.status.conditions, status.conditions)
        if one.type in _ANNOUNCED
    ]
    if over is not None:
        said.append((status.phase == "Failed", over, status.message))
    return tuple(
        Emit(target=job.ref, warning=warning, epoch=epoch, reason=why, text=text)
        for warning, why, text in said
    )


def _new_resizes(job: TuningRecord, status: TuningStatus) -> tuple[TrialResize, ...]:
    before = {(one.trial, one.epoch, one.time) for one in job.status.resizes}
    return tuple(one for one in status.resizes if (one.trial, one.epoch, one.time) not in before)


def _resize_texts(job: TuningRecord, resizes: Sequence[TrialResize]) -> str:
    """All of a step in one text: Events of one reason replace each other."""
    said = [_resize_text(job, one) for one in resizes[:_MOST_NAMED]]
    more = len(resizes) - len(said)
    return "; ".join(said) + (f"; and {more} more" if more else "")


def _resize_text(job: TuningRecord, one: TrialResize) -> str:
    why = f"expected to end {one.gain_seconds} s sooner" if one.gain_seconds else "makes room"
    if one.not_started:
        why = "no device had room for it"
    name = trial_name(job.ref.name, one.trial)
    return f"{name}: from {one.from_percent} to {one.to_percent} % of a device, {why}"
