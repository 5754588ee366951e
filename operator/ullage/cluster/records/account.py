# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Cost of a workload: figures of ``status.spend``. Money is decimal text, never a float."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Books of one workload as of ``as_of``; dollars as decimal text, "" = not known.

    Between two entries the rates hold, so what was spent by any moment follows from the clock.
    """

    since: float
    """When it first held devices."""
    as_of: float
    """Until when the sums count."""
    total: str = ""
    """Dollars spent; "" = no time of it had a price."""
    on_demand_total: str = ""
    """Dollars that on-demand would have taken; where its price is not known, what was paid."""
    per_hour: str = ""
    """Dollars per hour of what is held since ``as_of``."""
    on_demand_per_hour: str = ""
    """The same on on-demand."""
    per_thousand_steps: str = ""
    """Dollars per thousand steps that count, redone ones only once."""
    vs_on_demand: str = ""
    """Spent / what on-demand would have taken."""
    first_step: int = 0
    """Step that the job's own work begins at: what its first start resumed at."""
    earlier_steps: int = 0
    """Steps of starts that ended."""
    reached_steps: int = 0
    """Step at which the last start ended; 0 once the next one has told of its steps."""
    lost_steps: int = 0
    """Steps that losses took, as far as they are known."""
    lost_seconds: int = 0
    """Work that losses took, seconds of the whole gang."""
    assumed_steps: int = 0
    """Of the lost steps, those that the next start corrects if it says where it resumes."""
    assumed_seconds: int = 0
    """The same as time."""
    evictions: int = 0
    """Starts that ended because devices were taken away."""
    on_demand_seconds: int = 0
    """Time on on-demand or reserved capacity, where pools are chosen for the job."""
    unpriced_seconds: int = 0
    """Time in which devices were held and a price was missing; in no sum."""
    message: str = ""
    """Reason why a figure is unknown."""
