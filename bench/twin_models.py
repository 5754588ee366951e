# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Models that the replay twin compares the learned one with: one knows the truth, one nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.twin_data import Tables
from ullage.engines.admission.model import LearnedModel
from ullage.engines.admission.records import Forecast, Group, Rung, Tenant

SAFE: Final = 0.04
"""Log slowdown that the truth is kept below an objective: two spreads of a window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated(LearnedModel):
    """A model that was told every slowdown, and is sure of it; nothing stated = no slowdown."""

    slowdowns: dict[tuple[str, str], float] = field(default_factory=dict)
    """Log slowdown of the first class beside the second."""

    def forecast(self, tenants: Sequence[Tenant]) -> Forecast:
        """What was stated of each beside all others."""
        known = [one.profile.workload_class if one.profile else "" for one in tenants]
        names = [one.rpartition("/")[2] for one in known]  # its namespace stands before it
        stated = self.slowdowns.get
        mean = tuple(
            sum(stated((one, two), 0.0) for j, two in enumerate(names) if j != i)
            for i, one in enumerate(names)
        )
        return Forecast(mean=mean, sd=(0.0,) * len(mean), group=Group.SEEN_PAIR, rung=Rung.GP)


def truth(tables: Tables) -> Stated:
    """Perfect knowledge, never a product."""
    shares = [one for one in tables.classes if not one.whole]
    return Stated(
        accelerator=tables.accelerator,
        slowdowns={
            (one.name, two.name): math.log(tables.together(one, two)[0]) + SAFE
            for one in shares
            for two in shares
        },
    )


def blind(tables: Tables) -> Stated:
    """No workload slows another: all that fit may share."""
    return Stated(accelerator=tables.accelerator)
