# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Conditions of a search that has not ended: Planned, Stalled and PoolTooSmall.

Pure. Messages name reasons and no texts that change by themselves, so they are quiet while nothing
happens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ullage.api.reasons import ConditionType, Reason, Standing
from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.cluster.records.tuning import GroupRecord
from ullage.scheduling.model.conditions import Said
from ullage.scheduling.model.phases import OVER, Phase
from ullage.scheduling.times import SEARCH_STALLED_S

_MOST_NAMED: Final = 4
_MOST_OF_A_TEXT: Final = 512


def said_of(
    due: Sequence[WorkloadRecord],
    runs: Iterable[WorkloadRecord],
    groups: Sequence[GroupRecord],
    now: float,
) -> tuple[Said, ...]:
    """Conditions of a search that goes on, in their order.

    Args:
        due: TrainingJobs of trials that are due, as far as they exist.
        runs: All TrainingJobs of its trials.
        groups: Of the status that is made.
        now: Seconds since the epoch.
    """
    said = [_planned(groups)]
    since = waits_since(due, runs)
    if since and now >= since + SEARCH_STALLED_S:
        said.append(
            Said(
                ConditionType.STALLED,
                True,
                Reason.NO_TRIAL_RUNS,
                f"no trial has run for {SEARCH_STALLED_S / 60:.0f} minutes; waiting for: "
                f"{_waits_for(due)}",
                follows=True,
            )
        )
    unfit = next((run for run in _by_name(due) if _never_fits(run)), None)
    if unfit is not None and unfit.status.decision is not None:
        why = unfit.status.decision
        text = f"{unfit.ref.name}: {why.reason.value}: {why.message}"
        said.append(
            Said(ConditionType.POOL_TOO_SMALL, True, Reason.NO_DEVICE_FITS, text[:_MOST_OF_A_TEXT])
        )
    return tuple(said)


def waits_since(due: Sequence[WorkloadRecord], runs: Iterable[WorkloadRecord]) -> float:
    """Since when every trial waits, seconds since the epoch; 0 = one runs, or none is due.

    Args:
        due: TrainingJobs of trials that are due.
        runs: All TrainingJobs of its trials: the last that began or ended counts.
    """
    waiting = [run for run in due if run.status.phase not in OVER]
    if not waiting or any(run.status.phase == Phase.RUNNING for run in waiting):
        return 0.0
    return max(
        max(run.created, run.status.start_time, run.status.completion_time) for run in (*due, *runs)
    )


def _planned(groups: Sequence[GroupRecord]) -> Said:
    known = sum(1 for one in groups if one.makespan_eta)
    if known:
        text = "status.groups shows when each group with a measured trial will have ended"
        return Said(ConditionType.PLANNED, True, Reason.MAKESPAN_ESTIMATED, text)
    text = "no trial has ended yet, so nothing is known of how long trials take"
    return Said(ConditionType.PLANNED, False, Reason.NOTHING_MEASURED, text)


def _waits_for(due: Sequence[WorkloadRecord]) -> str:
    """Reasons of TrainingJobs that wait, each with the first that gives it."""
    named: dict[str, str] = {}
    for run in _by_name(due):
        if run.status.phase in OVER:
            continue
        decision = run.status.decision
        waits = decision is not None and run.status.phase in ("", Phase.PENDING)
        word = decision.reason.value if decision and waits else run.status.phase or "a decision"
        named.setdefault(word, run.ref.name)
    shown = [f"{word} ({name})" for word, name in sorted(named.items())]
    return ", ".join(shown[:_MOST_NAMED]) + (", ..." if len(shown) > _MOST_NAMED else "")


def _never_fits(run: WorkloadRecord) -> bool:
    decision = run.status.decision
    return (
        run.status.phase in ("", Phase.PENDING)
        and decision is not None
        and not decision.refusals
        and Standing.NEVER_FITS in decision.reason.standing
    )


def _by_name(due: Sequence[WorkloadRecord]) -> list[WorkloadRecord]:
    return sorted(due, key=lambda run: run.ref.name)
