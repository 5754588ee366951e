# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The shape of an explanation of a reason or condition. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A reason's meaning, and what its reader can do."""

    meaning: str
    what_to_do: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionExplanation:
    """When a condition is True, and whether that is the good state."""

    true_when: str
    good_when_true: bool


def say(meaning: str, what_to_do: str) -> Explanation:
    """Returns the explanation with this meaning and this remedy."""
    return Explanation(meaning=meaning, what_to_do=what_to_do)
