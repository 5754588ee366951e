# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a workload has cost: figures of ``status.spend``. Money is decimal text, never a float."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from ullage.api.wire_fields import INT32_MAX, Moment, Money, count, cut

Sum: TypeAlias = Annotated[int, count()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Books of one workload as of ``as_of``; dollars as decimal text, "" = not known.

    Between two entries the rates hold, so what was spent by any moment follows from the clock.
    """

    since: Moment
    """When it first held devices."""
    as_of: Moment
    """Until when the sums count."""
    total: Money = ""
    """Dollars spent; "" = no time of it had a price."""
    on_demand_total: Money = ""
    """Dollars that on-demand would have taken; where its price is not known, what was paid."""
    per_hour: Money = ""
    """Dollars per hour of what is held since ``as_of``."""
    on_demand_per_hour: Money = ""
    """The same on on-demand."""
    per_thousand_steps: Annotated[Money, "perWorkUnit"] = ""
    """Dollars per thousand steps that count, redone ones only once."""
    vs_on_demand: Money = ""
    """Spent / what on-demand would have taken."""
    first_step: Sum = 0
    """Step that the job's own work begins at: what its first start resumed at."""
    earlier_steps: Sum = 0
    """Steps of starts that ended."""
    reached_steps: Annotated[Sum, "reachedStep"] = 0
    """Step at which the last start ended; 0 once the next one has told of its steps."""
    lost_steps: Sum = 0
    """Steps that losses took, as far as they are known."""
    lost_seconds: Sum = 0
    """Work that losses took, seconds of the whole gang."""
    assumed_steps: Sum = 0
    """Of the lost steps, those that the next start corrects if it says where it resumes."""
    assumed_seconds: Sum = 0
    """The same as time."""
    evictions: Annotated[int, count(INT32_MAX)] = 0
    """Starts that ended because devices were taken away."""
    on_demand_seconds: Sum = 0
    """Time on on-demand or reserved capacity, where pools are chosen for the job."""
    unpriced_seconds: Sum = 0
    """Time in which devices were held and a price was missing; in no sum."""
    message: Annotated[str, cut(1024)] = ""
    """What keeps a figure from being known."""
