# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a cycle knows, and what it decides: values that its phases hand on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ullage.api.interruptions import Interruption
from ullage.api.reasons import Reason
from ullage.scheduling.assignment.entry import Entries
from ullage.scheduling.assignment.probations import Probations
from ullage.scheduling.assignment.reevaluation import Finding
from ullage.scheduling.capacity.budgets import Limit
from ullage.scheduling.capacity.capacity_choice import CapacityChoices
from ullage.scheduling.capacity.node_requests import NodeRequests
from ullage.scheduling.feasibility.resource_requests import ResourceRequests
from ullage.scheduling.inventory.inventory import Inventory
from ullage.scheduling.model.lifecycle_step import LifecycleStep
from ullage.scheduling.model.plan import Action, Emit
from ullage.scheduling.model.slice_ledger import Ledger
from ullage.scheduling.model.view import Class, View
from ullage.scheduling.placement.feasible import Feasibility
from ullage.scheduling.placement.placement import Placer
from ullage.scheduling.timeslicing.rounds import Rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleContext:
    """The cluster as a cycle finds it, and what it decides with.

    Attributes:
        view: The snapshot, arranged, with pending evictions.
        inventory: Devices and the nodes they are in.
        ledger: Slices by node; the cycle writes what it gives and takes.
        lifecycles: What every workload needs, by uid, in order of it; the cycle writes what it
            decides otherwise.
        placer: Finds places; its occupancy fills up in the course of the cycle.
        requests: What everyone asks for.
        feasibility: Tells what could never run here.
        capacity_choices: Pools chosen for jobs with a cost objective.
        limits: Most members of elastic jobs for the sake of money, by uid.
        probations: Classes that are tried out.
        spent_s: Seconds of trial that classes have used up.
        committed: Events of trials that ended well.
        notices: Machines that will be taken away, by node.
        findings: Why running work does not fit any more, by uid.
        undisturbed: What jobs need that run or wait and near which nothing changed, by uid.
        devices: Digest of the devices as they were found.
        rounds: The turns of this cycle; ``None`` under FIFO.
    """

    view: View
    inventory: Inventory
    ledger: Ledger
    lifecycles: dict[str, LifecycleStep]
    placer: Placer
    requests: ResourceRequests
    feasibility: Feasibility
    capacity_choices: CapacityChoices
    limits: Mapping[str, Limit]
    probations: Probations
    spent_s: Mapping[Class, float]
    committed: Sequence[Emit]
    notices: Mapping[str, Interruption]
    findings: Mapping[str, Finding]
    undisturbed: Mapping[str, LifecycleStep]
    devices: bytes
    rounds: Rounds | None = None


@dataclass(slots=True)
class Assignments:
    """What a cycle decides; its phases fill it.

    Attributes:
        entries: By workload: what it was given, or what it waits for.
        steps: Acts on pods and children, in order.
        told: What speaks against running work and lets it run, by uid.
        scales_at: When replicas of a service are looked at again; 0 = none follow an objective.
        moves_at: When a job may move to a better type; 0 = none may.
        node_requests: Nodes requested for workloads that found none free.
    """

    entries: Entries
    steps: list[Action] = field(default_factory=list)
    told: Mapping[str, tuple[Reason, str]] = field(default_factory=dict)
    scales_at: float = 0.0
    moves_at: float = 0.0
    node_requests: NodeRequests = field(default_factory=NodeRequests)
