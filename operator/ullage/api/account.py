# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a workload has cost so far."""

from __future__ import annotations

from ullage.api.base import Count, DecimalText, Line, LongCount, Model, Time


class LostWork(Model):
    """Work that losses took: done after the checkpoint that the next start went on from.

    Of a job that does not say so, at most: since the last checkpoint told of.
    """

    steps: LongCount | None = None
    """Steps that are done again; absent = none, or the speed is not known."""
    seconds: LongCount | None = None
    """The same as time of the whole gang."""
    assumed_steps: LongCount | None = None
    """Of the steps, those of the last loss: assumed until the next start says where it resumed."""
    assumed_seconds: LongCount | None = None
    """The same as time."""


class Account(Model):
    """Cost as of `asOf`, in the currency of the prices; `perHour` goes on from there."""

    total: DecimalText | None = None
    """Spent; absent = no price was known yet."""
    on_demand_total: DecimalText | None = None
    """What on-demand capacity of the same type would have taken for the same time; absent = its
    price was never known."""
    per_hour: DecimalText | None = None
    """Cost per hour of the devices that are held now: their part of the price of their instances;
    absent = none are held, or a price is missing."""
    on_demand_per_hour: DecimalText | None = None
    """The same on on-demand."""
    vs_on_demand: DecimalText | None = None
    """Spent / on-demand; 0.34 = 66 % saved."""
    unpriced_seconds: LongCount | None = None
    """Time in which devices were held and a price was missing; it is in no sum."""
    message: Line | None = None
    """What keeps a figure from being known."""
    since: Time | None = None
    """When devices were first held."""
    as_of: Time | None = None
    """Until when the sums count; written at most once a minute, and not for less than 1 %."""


class JobAccount(Account):
    """Cost of a job, which has steps to lose and an end."""

    per_work_unit: DecimalText | None = None
    """Cost of a thousand steps; work that a loss took counts once."""
    lost_work: LostWork | None = None
    """What losses took."""
    on_demand_seconds: LongCount | None = None
    """Time in which devices were held on on-demand or reserved capacity, of a job whose pools are
    chosen (spec.cost.objective)."""
    evictions: Count | None = None
    """Starts that ended because devices were taken away."""
    first_step: LongCount | None = None
    """Step that the first start resumed at: those before it are not of this job."""
    earlier_steps: LongCount | None = None
    """Steps of the starts that ended, those that were done again included."""
    reached_step: LongCount | None = None
    """Step at which the last start ended; absent once the next one has told of its steps."""
