# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A job's spending and the decision behind what it holds: ``status.spend``.

A new leader continues from the decision: a job that was committed to on-demand stays there.
"""

from __future__ import annotations

from dataclasses import dataclass

from ullage.api.contract import Reason
from ullage.cluster.records.account import Account


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolShare:
    """Members of the job in one pool."""

    pool: str
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An allocation with its price; sorted by pool, without pools nothing is held.

    ``cost_per_work`` is dollars per hour of work of one member at speed 1, ``per_hour`` dollars
    while everything runs; "" = not known.
    """

    pools: tuple[PoolShare, ...] = ()
    cost_per_work: str = ""
    per_hour: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendDecision:
    """Which pools a job may be placed in, and why.

    ``mode`` is ``Spot``, ``OnDemand`` or ``Idle``; ``committed`` = on-demand until the end;
    ``since`` is when ``chosen.pools`` was chosen, ``time`` when anything of this was said.
    """

    time: float
    epoch: int
    inputs_hash: str
    mode: str
    reason: Reason
    message: str
    chosen: Offer
    runner_up: Offer | None = None
    committed: bool = False
    since: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendRecord:
    """``status.spend``; a service has the account alone."""

    account: Account | None = None
    """Its cost; ``None`` = nothing has a price, or it never held devices."""

    decision: SpendDecision | None = None
    next_decision: float = 0.0
    """When the prices are compared again though nothing happens; 0 = not while it waits."""
    expected_savings: str = ""
    """Dollars that the rest of the work is expected to save against on-demand, below 0 = to cost
    more; "" = not known."""
