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
    KEPT,
    NEEDED,
    Decimal,
    Flag,
    Listed,
    Moment,
    Name,
    NeededCount,
    Text,
    Time,
    cut,
    word,
)
from ullage.cluster.records.account import Account


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolShare:
    """Members of the job in one pool."""

    pool: Name
    replicas: NeededCount


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An allocation with its price; sorted by pool, without pools nothing is held.

    ``cost_per_work`` is dollars per hour of work of one member at speed 1, ``per_hour`` dollars
    while everything runs; "" = not known.
    """

    pools: Annotated[tuple[PoolShare, ...], Listed(order=lambda one: one.pool)] = ()
    cost_per_work: Decimal = ""
    per_hour: Decimal = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendDecision:
    """Which pools a job may be placed in, and why.

    ``mode`` is ``Spot``, ``OnDemand`` or ``Idle``; ``committed`` = on-demand until the end;
    ``since`` is when ``chosen.pools`` was chosen, ``time`` when anything of this was said.
    """

    time: Moment
    epoch: NeededCount
    inputs_hash: Annotated[Text, KEPT]
    mode: Name
    reason: Annotated[Reason, word(Reason, Reason.WAITING_FOR_DECISION), NEEDED]
    message: Annotated[str, cut(32_768), KEPT]
    chosen: Annotated[Offer, KEPT]
    runner_up: Annotated[Offer | None, KEPT] = None
    committed: Flag = False
    since: Time = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendRecord:
    """``status.spend``; a service has the account alone."""

    account: Account | None = None
    """Its cost; ``None`` = nothing has a price, or it never held devices."""

    decision: SpendDecision | None = None
    next_decision: Time = 0.0
    """When the prices are compared again though nothing happens; 0 = not while it waits."""
    expected_savings: Decimal = ""
    """Dollars that the rest of the work is expected to save against on-demand, below 0 = to cost
    more; "" = not known."""
