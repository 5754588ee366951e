# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What stands at the beginning of a cycle, and what everyone needs.

Pure. No one is given anything here; what does not stand any more is dropped from the ledger.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ullage.api.contract import Interruption
from ullage.cluster.records.snapshot import PodStage, Snapshot, WorkloadKind, WorkloadRecord
from ullage.scheduling.assignment.cycle_cache import CycleCache
from ullage.scheduling.assignment.pods import release
from ullage.scheduling.assignment.trials import Trials, commit, look_at_trials
from ullage.scheduling.capacity.capacity_choice import CapacityChoices, decide_pools
from ullage.scheduling.elastic import sizes
from ullage.scheduling.inventory.interruptions import terminations
from ullage.scheduling.inventory.inventory import Inventory, take_inventory
from ullage.scheduling.lifecycle.adopt import drop_refused
from ullage.scheduling.lifecycle.coordinator import leads_of, led
from ullage.scheduling.lifecycle.drain import notice_marks
from ullage.scheduling.lifecycle.inference import inference_life
from ullage.scheduling.lifecycle.members import MemberCache
from ullage.scheduling.lifecycle.training import training_life
from ullage.scheduling.model.faults import Blames
from ullage.scheduling.model.lifecycle_step import LifecycleStep
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.plan import DecideSettings, Emit
from ullage.scheduling.model.slice_ledger import Ledger
from ullage.scheduling.model.view import View

_STARTING: Final = (PodStage.UNSCHEDULED, PodStage.BOUND)


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleState:
    """The cluster as a cycle finds it.

    Attributes:
        view: The snapshot, arranged, with the marks of those that have to leave.
        inventory: Devices and the nodes they are in.
        ledger: Who holds what; what follows writes into it.
        lifecycles: What every workload needs, by its uid, in order of it.
        undisturbed: What jobs need that run or wait and near which nothing changed, by uid.
        disturbed: Nodes that something happened to, or to those on it; ``None`` = perhaps to all.
        trials: Classes that are tried out.
        spending: Pools that jobs with an aim of cost are to use.
        notices: Machines that will be taken away, by node.
        committed: Events of trials that ended well.
    """

    view: View
    inventory: Inventory
    ledger: Ledger
    lifecycles: dict[str, LifecycleStep]
    undisturbed: Mapping[str, LifecycleStep]
    disturbed: Collection[str] | None
    trials: Trials
    spending: CapacityChoices
    notices: Mapping[str, Interruption]
    committed: Sequence[Emit]


def begin_cycle(
    snapshot: Snapshot,
    now: float,
    settings: DecideSettings,
    cache: CycleCache,
) -> CycleState:
    """What stands, and what everyone needs; arguments as of ``decide``."""
    snapshot = sizes.with_sizes(snapshot)
    ledger = Ledger(snapshot)
    view = look(snapshot, now, settings, ledger, cache.members)
    trials = look_at_trials(view)
    spending = decide_pools(view)
    notices = terminations(snapshot)
    evictions = notice_marks(view, notices)
    view = replace(view, evictions={**trials.evictions, **spending.evictions, **evictions})
    inventory = take_inventory(view, cache.inventory)
    undisturbed, disturbed = cache.steady.undisturbed(view, cache.members)
    lifecycles = _live(view, inventory, undisturbed)
    drop_refused(view, cache.members.refused, ledger)
    committed = commit(view, trials, ledger)
    for life in lifecycles.values():
        for member in life.release:
            release(ledger, member)
    return CycleState(
        view=view,
        inventory=inventory,
        ledger=ledger,
        lifecycles=lifecycles,
        undisturbed=undisturbed,
        disturbed=disturbed,
        trials=trials,
        spending=spending,
        notices=notices,
        committed=committed,
    )


def look(
    snapshot: Snapshot,
    now: float,
    settings: DecideSettings,
    ledger: Ledger,
    members: MemberCache | None = None,
) -> View:
    """Arrange the snapshot; slices that do not stand are dropped from the ledger on the way."""
    members = members or MemberCache()
    members.update(snapshot, settings, ledger)
    # a pod whose workload is unknown may be forged: it delays nothing, and is never taken back
    pods, workloads = snapshot.pods.values(), snapshot.workloads
    return View(
        snapshot=snapshot,
        now=now,
        settings=settings,
        members=dict(members.members),
        observed=dict(members.slices.observed),
        names={(pod.namespace, pod.name): pod for pod in pods},
        starting=sum(pod.stage in _STARTING and pod.owner.uid in workloads for pod in pods),
        orders=tuple(pod for pod in pods if pod.order and pod.owner.uid in workloads),
        leads=leads_of(snapshot),
    )


def _live(
    view: View, inventory: Inventory, undisturbed: Mapping[str, LifecycleStep]
) -> dict[str, LifecycleStep]:
    """What every workload needs, by its uid, in order of it."""
    lifecycles: dict[str, LifecycleStep] = {}
    blames = Blames(view.snapshot)
    for uid in sorted(view.snapshot.workloads):
        workload, known = view.snapshot.workloads[uid], undisturbed.get(uid)
        if known is not None:
            lifecycles[uid] = known
            continue
        with blames.of(workload.ref):
            lifecycles[uid] = _life(view, inventory, workload)
    blames.settle()
    return lifecycles


def _life(view: View, inventory: Inventory, workload: WorkloadRecord) -> LifecycleStep:
    if workload.aside:
        return LifecycleStep(phase=Phase.PENDING, silent=True)
    if workload.kind is WorkloadKind.TRAINING_JOB:
        return led(view, workload, training_life(view, inventory, workload))
    return inference_life(view, inventory, workload)
