# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Conditions that change only with their content.

``since`` moves only with the status. A change of the text alone is not worth a write: it keeps its
value from the change of the reason, so a condition is quiet in a steady state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ullage.api.reasons import ConditionType, Reason
from ullage.cluster.records.status import Condition


@dataclass(frozen=True, slots=True)
class DesiredCondition:
    """A condition in its desired state."""

    type: ConditionType
    holds: bool
    reason: Reason
    message: str = ""
    follows: bool = False
    """The message is updated when it changes, although the reason stays."""


def merged(
    before: tuple[Condition, ...], desired: Sequence[DesiredCondition], now: float, generation: int
) -> tuple[Condition, ...]:
    """The conditions to show: the same tuple as before without a change.

    Args:
        before: Current conditions.
        desired: Conditions as they are to be, in order; other types are dropped.
        now: Time of a change, whole seconds.
        generation: Generation of the evaluated object.
    """
    shown = {condition.type: condition for condition in before}
    after = tuple(_updated(shown.get(part.type), part, now, generation) for part in desired)
    same = len(after) == len(before) and all(
        new is old for new, old in zip(after, before, strict=True)
    )
    return before if same else after


def newly_true(
    before: tuple[Condition, ...], after: tuple[Condition, ...]
) -> tuple[Condition, ...]:
    """Conditions that are true now and were not before.

    Args:
        before: Current conditions.
        after: Desired conditions.
    """
    held = {condition.type for condition in before if condition.status == "True"}
    return tuple(
        condition
        for condition in after
        if condition.status == "True" and condition.type not in held
    )


def _updated(
    old: Condition | None, desired: DesiredCondition, now: float, generation: int
) -> Condition:
    status = "True" if desired.holds else "False"
    if (
        old is not None
        and old.status == status
        and old.reason == desired.reason
        and old.observed_generation == generation
        and not (desired.follows and old.message != desired.message)
    ):
        return old
    return Condition(
        type=desired.type,
        status=status,
        reason=desired.reason,
        message=desired.message,
        since=old.since if old is not None and old.status == status else now,
        observed_generation=generation,
    )
