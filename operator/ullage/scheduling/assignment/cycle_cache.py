# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Caches passed from cycle to cycle, owned by the process that runs the cycles.

They hold results of pure functions, keyed by their inputs: plans are equal with and without them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ullage.scheduling.assignment.steady import SteadyCache
from ullage.scheduling.feasibility.occupancy import OccupantCache
from ullage.scheduling.feasibility.resource_requests import RequestCache
from ullage.scheduling.inventory.inventory import InventoryCache
from ullage.scheduling.learning.operations import OpTimeFits, op_time_fits
from ullage.scheduling.lifecycle.members import MemberCache
from ullage.scheduling.placement.attempt import AttemptCache
from ullage.scheduling.prediction.risk import JudgementCache
from ullage.scheduling.prediction.usual_requests import UsualCache
from ullage.scheduling.prediction.workload_classes import ClassCache
from ullage.scheduling.timeslicing.division_cache import DivisionCache


@dataclass(frozen=True, slots=True)
class CycleCache:
    """Caches of all steps of a cycle; used by one cycle at a time."""

    classes: ClassCache = field(default_factory=ClassCache)
    occupants: OccupantCache = field(default_factory=OccupantCache)
    judgements: JudgementCache = field(default_factory=JudgementCache)
    division: DivisionCache = field(default_factory=DivisionCache)
    usual: UsualCache = field(default_factory=UsualCache)
    inventory: InventoryCache = field(default_factory=InventoryCache)
    steady: SteadyCache = field(default_factory=SteadyCache)
    members: MemberCache = field(default_factory=MemberCache)
    requests: RequestCache = field(default_factory=RequestCache)
    attempts: AttemptCache = field(default_factory=AttemptCache)
    op_times: OpTimeFits = field(default_factory=op_time_fits)
    leftovers: list[object] = field(default_factory=list)
    """Objects of the last cycle. Freeing them takes as long as a phase, so that is done between two
    cycles."""
