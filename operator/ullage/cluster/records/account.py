# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a workload has cost: figures of ``status.spend``. Money is decimal text, never a float."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from ullage.api.wire_fields import INT32_MAX, OPTIONAL, Moment, Money, count, cut

Sum: TypeAlias = Annotated[int, count()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Cost as of ``as_of``, in the currency of the prices; the rates go on from there.

    Money is decimal text, "" = not known. A service has no steps to lose and no end.
    """

    total: Money = ""
    """Spent; absent = no price was known yet."""
    on_demand_total: Money = ""
    """What on-demand capacity of the same type would have taken for the same time; absent = its
    price was never known."""
    per_hour: Money = ""
    """Cost per hour of the devices that are held now: their part of the price of their instances;
    absent = none are held, or a price is missing."""
    on_demand_per_hour: Money = ""
    """The same on on-demand."""
    vs_on_demand: Money = ""
    """Spent / on-demand; 0.34 = 66 % saved."""
    unpriced_seconds: Sum = 0
    """Time in which devices were held and a price was missing; it is in no sum."""
    message: Annotated[str, cut(1024)] = ""
    """What keeps a figure from being known."""
    since: Annotated[Moment, OPTIONAL]
    """When devices were first held."""
    as_of: Annotated[Moment, OPTIONAL]
    """Until when the sums count; written at most once a minute, and not for less than 1 %."""
    per_thousand_steps: Annotated[Money, "perWorkUnit"] = ""
    """Cost of a thousand steps; work that a loss took counts once."""
    on_demand_seconds: Sum = 0
    """Time in which devices were held on on-demand or reserved capacity, of a job whose pools are
    chosen (spec.cost.objective)."""
    evictions: Annotated[int, count(INT32_MAX)] = 0
    """Starts that ended because devices were taken away."""
    first_step: Sum = 0
    """Step that the first start resumed at: those before it are not of this job."""
    earlier_steps: Sum = 0
    """Steps of the starts that ended, those that were done again included."""
    reached_steps: Annotated[Sum, "reachedStep"] = 0
    """Step at which the last start ended; absent once the next one has told of its steps."""
    lost_steps: Sum = 0
    """Steps that are done again; absent = none, or the speed is not known."""
    lost_seconds: Sum = 0
    """The same as time of the whole gang."""
    assumed_steps: Sum = 0
    """Of the steps, those of the last loss: assumed until the next start says where it resumed."""
    assumed_seconds: Sum = 0
    """The same as time."""
