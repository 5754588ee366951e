# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The condition that every status lists, in the shape that kubectl and other tools expect."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from ullage.api.base import LongCount, Model, ReasonWord, Text, Time, list_map


class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(Model):
    """One aspect of the object's state; docs/reference/reasons.md lists types and reasons."""

    type: Annotated[
        str, Field(max_length=316, pattern=r"^([-a-z0-9.]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*)$")
    ]
    """Which aspect, for example Admitted or Ready."""
    status: ConditionStatus
    """True, False or Unknown."""
    reason: ReasonWord
    """Why, in one stable word; `kubectl ullage explain` explains it."""
    message: Text | None = None
    """Why, for people: what binds, and by how much."""
    observed_generation: LongCount | None = None
    """Generation of the object that the condition speaks of."""
    last_transition_time: Time
    """When status last changed; a changed message alone does not move it."""


Conditions = Annotated[
    tuple[Condition, ...], Field(max_length=32, json_schema_extra=list_map("type"))
]
