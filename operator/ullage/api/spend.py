# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a job spends, and which pools were chosen for it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ullage.api.account import JobAccount
from ullage.api.base import (
    AnyName,
    Count,
    DecimalText,
    Epoch,
    Model,
    ReasonWord,
    SignedDecimal,
    Text,
    Time,
    Word,
    list_map,
)
from ullage.api.words import SpendMode


class PoolShare(Model):
    """Members of the job in one pool."""

    pool: AnyName
    """CapacityPool."""
    replicas: Count
    """Members."""


class Offer(Model):
    """Pools with the members in each, and what that costs."""

    pools: Annotated[
        tuple[PoolShare, ...], Field(max_length=64, json_schema_extra=list_map("pool"))
    ] = ()
    """Members by pool; none = the job waits."""
    cost_per_work: DecimalText | None = None
    """Expected cost of an hour of work of one member at speed 1, losses included."""
    per_hour: DecimalText | None = None
    """Cost per hour while every member runs."""


class SpendDecision(Model):
    """Which pools the job may be placed in, and why."""

    time: Time
    """When it was decided."""
    epoch: Epoch
    """Term of the leader that decided."""
    inputs_hash: Word
    """Hash of what the decision was made from; equal inputs give equal decisions."""
    mode: SpendMode
    """Spot, on-demand, or nothing for now."""
    committed: bool = False
    """The deadline needs the rest of the time: on-demand until the end."""
    since: Time | None = None
    """When these pools were chosen."""
    chosen: Offer = Offer()
    """The pools that the job may be placed in."""
    runner_up: Offer | None = None
    """The best of the others."""
    reason: ReasonWord
    """Why, in one stable word."""
    message: Text | None = None
    """The decision in a sentence, with numbers."""


class Spend(JobAccount):
    """What the job spent, and, with `spec.cost.objective` and pools, why it holds what it holds."""

    decision: SpendDecision | None = None
    """Which pools the job may be placed in, and why."""
    next_decision: Time | None = None
    """When prices are compared again, even if nothing else changes."""
    expected_savings: SignedDecimal | None = None
    """How much less the rest of the work is expected to cost in the chosen pools than on on-demand
    capacity of the same type, including time lost to interruptions; below 0 = more. As of the last
    change of this status. Absent = the amount of work or a price is not known, or losses have no
    bound because spot may take the job and it saves no checkpoint."""
