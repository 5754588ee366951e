# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A job's spending and the decision behind what it holds: ``status.spend``.

A new leader continues from the decision: a job that was committed to on-demand stays there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ullage.api.contract import Reason
from ullage.api.wire_fields import (
    INT32,
    KEPT,
    NEEDED,
    NO_LENGTH,
    OPTIONAL,
    Decimal,
    Flag,
    Listed,
    Moment,
    Name,
    NeededCount,
    Schema,
    Signed,
    Time,
    Word,
    cut,
    keyed,
    one_of,
    word,
)
from ullage.api.words import SpendMode
from ullage.cluster.records.account import Account


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolShare:
    """Members of the job in one pool."""

    pool: Name
    """CapacityPool."""
    replicas: Annotated[NeededCount, INT32]
    """Members."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Pools with the members in each, and what that costs."""

    pools: Annotated[
        tuple[PoolShare, ...], Listed(order=lambda one: one.pool), keyed("pool", most=64)
    ] = ()
    """Members by pool; none = the job waits."""
    cost_per_work: Decimal = ""
    """Expected cost of an hour of work of one member at speed 1, losses included."""
    per_hour: Decimal = ""
    """Cost per hour while every member runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendDecision:
    """Which pools the job may be placed in, and why."""

    time: Moment
    """When it was decided."""
    epoch: NeededCount
    """Term of the leader that decided."""
    inputs_hash: Annotated[Word, KEPT]
    """Hash of what the decision was made from; equal inputs give equal decisions."""
    mode: Annotated[Name, NO_LENGTH, one_of(*SpendMode)]
    """Spot, on-demand, or nothing for now."""
    committed: Annotated[Flag, Schema(default=False)] = False
    """The deadline needs the rest of the time: on-demand until the end."""
    since: Time = 0.0
    """When these pools were chosen."""
    chosen: Annotated[Offer, KEPT, Schema(required=False, default={})]
    """The pools that the job may be placed in."""
    runner_up: Annotated[Offer | None, KEPT] = None
    """The best of the others."""
    reason: Annotated[Reason, word(Reason, Reason.WAITING_FOR_DECISION), NEEDED]
    """Why, in one stable word."""
    message: Annotated[str, cut(32_768), KEPT, OPTIONAL]
    """The decision in a sentence, with numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendRecord:
    """What the job spent, and, with `spec.cost.objective` and pools, why it holds what it holds."""

    account: Account | None = None
    """Its cost; ``None`` = nothing has a price, or it never held devices."""
    decision: SpendDecision | None = None
    """Which pools the job may be placed in, and why."""
    next_decision: Time = 0.0
    """When prices are compared again, even if nothing else changes."""
    expected_savings: Signed = ""
    """How much less the rest of the work is expected to cost in the chosen pools than on on-demand
    capacity of the same type, including time lost to interruptions; below 0 = more. As of the last
    change of this status. Absent = the amount of work or a price is not known, or losses have no
    bound because spot may take the job and it saves no checkpoint."""
