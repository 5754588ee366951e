# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What places are given out by, and what was given: values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ullage.cluster.records.room import MadeRoom
from ullage.scheduling.capacity.capacity_choice import NOTHING, CapacityChoices
from ullage.scheduling.elastic.sizes import Size
from ullage.scheduling.feasibility.resource_requests import ResourceRequests
from ullage.scheduling.inventory.inventory import Inventory
from ullage.scheduling.lifecycle.inference import Rollout
from ullage.scheduling.lifecycle.surge import Leaving
from ullage.scheduling.model.lifecycle_step import LifecycleStep
from ullage.scheduling.model.plan import Action
from ullage.scheduling.model.slice_ledger import Ledger
from ullage.scheduling.model.view import View
from ullage.scheduling.placement.attempt import Outcome
from ullage.scheduling.placement.feasible import Feasibility
from ullage.scheduling.placement.placement import Placer
from ullage.scheduling.timeslicing.rounds import Rounds


@dataclass(slots=True)
class Assignments:
    """What a cycle gives out; filled by :func:`allot`."""

    lifecycles: dict[str, LifecycleStep]
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    steps: list[Action] = field(default_factory=list)
    rollouts: dict[str, Rollout] = field(default_factory=dict)
    leaving: dict[str, Leaving] = field(default_factory=dict)
    """What services do about replicas that have to leave their device."""
    made_room: dict[str, MadeRoom] = field(default_factory=dict)
    """Who starts again with a smaller share in this cycle, by uid."""
    sizes: dict[str, Size] = field(default_factory=dict)
    """Elastic gangs whose size changes, by uid."""
    postponed: set[str] = field(default_factory=set)
    """Workloads that this cycle had no time for; nothing is said to them."""


@dataclass(frozen=True, slots=True)
class CycleContext:
    """The tools of one cycle."""

    view: View
    inventory: Inventory
    ledger: Ledger
    placer: Placer
    requests: ResourceRequests
    feasibility: Feasibility
    rounds: Rounds | None = None
    """The turns of this cycle; ``None`` under FIFO."""
    spending: CapacityChoices = NOTHING
    """Pools that were chosen for jobs."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Most members that the budgets of elastic jobs pay for, by uid."""
