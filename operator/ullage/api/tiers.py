# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A job in tiers: how its state is kept beside the members that own it, and where that stands."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from ullage.api.base import Model, Quantity
from ullage.api.rule import validations
from ullage.api.rules_tiers import DIRTY_POSITIVE, LAG_COVERS_PUSHES, STATE_POSITIVE

Steps = Annotated[int, Field(ge=1, le=100_000, json_schema_extra={"format": "int32"})]


class Backup(Model):
    """The copy of the state that the lead keeps in memory."""

    model_config = ConfigDict(json_schema_extra=validations(LAG_COVERS_PUSHES))

    every_steps: Steps = 1
    """The owners push what they own every so many steps."""
    max_lag_steps: Steps = 2
    """Most steps that the job may be ahead of the copy, which is the most that a loss costs."""
    state_bytes: Annotated[Quantity, Field(json_schema_extra=validations(STATE_POSITIVE))]
    """Largest size of the state, such as 6Gi. The lead asks for twice that memory: it holds a whole
    copy, and the one that arrives."""
    dirty_bytes_per_step: Annotated[
        Quantity | None, Field(json_schema_extra=validations(DIRTY_POSITIVE))
    ] = None
    """How much of the state a step changes; absent = all of it."""
    shards: Annotated[int, Field(ge=1, le=4096, json_schema_extra={"format": "int32"})] = 64
    """Pieces that the state is cut into, at least as many as there are members; the program finds
    the number in ULLAGE_SHARDS."""
    silence_seconds: Annotated[int, Field(ge=2, le=600, json_schema_extra={"format": "int32"})] = 10
    """A member that the coordinator has not heard for so long counts as lost, and others take over
    what it owned. A killed process is noticed at once, so this is for machines that vanish and
    programs that hang. Members report every half second; a guard may pause one for ten seconds."""
