# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Values passed between the phases of a cycle: its context and its decisions."""

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
    """The cluster as seen by a cycle, and the components that decide.

    Attributes:
        view: The indexed snapshot, with pending evictions.
        inventory: Devices and their nodes.
        ledger: Slices by node; the cycle records its grants and revocations.
        lifecycles: The next step of every workload, by uid, in order of uid; the cycle replaces
            those that it changes.
        placer: Places members; its occupancy fills up during the cycle.
        requests: Resource requests of all workloads.
        feasibility: Finds requests that can never be placed.
        capacity_choices: Pools chosen for jobs with a cost objective.
        limits: Members that budgets of elastic jobs allow, by uid.
        probations: Classes on probation.
        spent_s: Seconds of trial used by classes.
        committed: Events of successful trials.
        notices: Announced terminations of machines, by node.
        kept_stragglers: Texts why a slow member is not replaced, by uid of the job.
        findings: Running work that no longer fits, by uid, with the reason.
        undisturbed: Steps of jobs that run or wait without changes nearby, by uid.
        devices: Digest of the devices at the beginning of the cycle.
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
    kept_stragglers: Mapping[str, str]
    findings: Mapping[str, Finding]
    undisturbed: Mapping[str, LifecycleStep]
    devices: bytes
    rounds: Rounds | None = None


@dataclass(slots=True)
class Assignments:
    """Decisions of a cycle, filled in by its phases.

    Attributes:
        entries: By workload: granted devices, or the event that it waits for.
        ahead: Jobs without pods, by uid, whose slices may be reserved first.
        steps: Acts on pods and children, in order.
        warnings: Reason and text about work that no longer fits and stays, by uid.
        scales_at: Time of the next scaling decision; 0 = no service follows an objective.
        moves_at: Time at which a job may move to a better type; 0 = none may.
        node_requests: Nodes requested for workloads that fit no existing node.
    """

    entries: Entries
    ahead: list[str] = field(default_factory=list)
    steps: list[Action] = field(default_factory=list)
    warnings: Mapping[str, tuple[Reason, str]] = field(default_factory=dict)
    scales_at: float = 0.0
    moves_at: float = 0.0
    node_requests: NodeRequests = field(default_factory=NodeRequests)
