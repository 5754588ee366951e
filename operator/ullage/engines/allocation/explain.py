# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Why a job has the share it has, and where it stands in the queue of each type.

It reads an allocation and a state; it never decides and never solves again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ullage.engines.allocation.model import Allocation, TypeView
from ullage.engines.allocation.round_records import RoundJob, RoundSettings, RoundState
from ullage.engines.allocation.rounds import rank

_TIGHT: Final = 1e-6


class Limit(StrEnum):
    """Limit on a job's share."""

    OWN_TIME = "OwnTime"
    """It runs all the time already."""
    DEVICES = "Devices"
    """Devices of a pool are worth most to its share."""
    OTHERS = "Others"
    """Nothing is scarce for it at the optimum: the objective gives the rest to others."""
    NO_ACCELERATOR = "NoFeasibleAccelerator"
    """No type can run it."""
    UNKNOWN = "Unknown"
    """It is not in the allocation yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """The constraint with the largest price for a job.

    Attributes:
        limit: Which kind.
        pool: The pool, for devices.
        price: Gain of the objective for one unit more of it.
    """

    limit: Limit
    pool: str = ""
    price: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a job stands on one type.

    Attributes:
        type: The type.
        promised: Fraction of time.
        owed_s: Promised minus received time.
        urgency_s: What the order of the next round goes by.
        rank: Claims ahead of it, over all types.
        ahead: The jobs of those claims on the same type, most urgent first.
    """

    type: str
    promised: float
    owed_s: float
    urgency_s: float
    rank: int
    ahead: tuple[str, ...]


def binding(allocation: Allocation, job: str, gang: int, types: Sequence[TypeView]) -> Binding:
    """The binding constraint of a job's share, by the duals of the last solve.

    Args:
        allocation: The allocation in force.
        job: Name of the job.
        gang: Its devices.
        types: All types of the problem.
    """
    if job in allocation.unplaceable:
        return Binding(limit=Limit.NO_ACCELERATOR)
    share = allocation.of(job)
    if not share:
        return Binding(limit=Limit.UNKNOWN)
    own = allocation.time_prices.get(job, 0.0)
    if own > _TIGHT * max(1e-12, _largest(allocation)) and sum(share.values()) > 1 - _TIGHT:
        return Binding(limit=Limit.OWN_TIME, price=own)
    scarce = [
        (allocation.capacity_prices.get(kind.capacity_row, 0.0) * gang, kind.capacity_row)
        for kind in types
        if kind.devices >= gang
    ]
    price, pool = max(scarce, default=(0.0, ""))
    if price > _TIGHT * _largest(allocation):
        return Binding(limit=Limit.DEVICES, pool=pool, price=price)
    return Binding(limit=Limit.OTHERS)


def places(
    state: RoundState,
    job: str,
    known: Mapping[str, RoundJob],
    settings: RoundSettings,
) -> tuple[Place, ...]:
    """A job's claims of the next round, the most urgent first.

    Args:
        state: Of the rounds.
        job: Name of the job.
        known: All jobs by name.
        settings: Of the rounds.
    """
    claims = rank(state, known, settings)
    found = []
    for position, claim in enumerate(claims):
        if job not in claim.members:
            continue
        ahead = [
            name
            for other in claims[:position]
            if other.type == claim.type
            for name in other.members
            if name != job
        ]
        found.append(
            Place(
                type=claim.type,
                promised=claim.promised,
                owed_s=state.owed_s[claim.members, claim.type],
                urgency_s=claim.urgency_s,
                rank=position,
                ahead=tuple(dict.fromkeys(ahead)),
            )
        )
    return tuple(found)


def _largest(allocation: Allocation) -> float:
    prices = [*allocation.time_prices.values(), *allocation.capacity_prices.values()]
    return max(prices, default=0.0)
