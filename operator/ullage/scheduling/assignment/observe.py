# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Phase 1 of a cycle: the indexed snapshot. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from ullage.api.interruptions import Interruption
from ullage.cluster.records.pod import PodRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.scheduling.assignment.cycle_cache import CycleCache
from ullage.scheduling.elastic import sizes
from ullage.scheduling.inventory.device_faults import isolations
from ullage.scheduling.inventory.interruptions import terminations
from ullage.scheduling.inventory.inventory import Inventory, take_inventory
from ullage.scheduling.lifecycle.members import MemberCache
from ullage.scheduling.model.plan import DecideSettings
from ullage.scheduling.model.slice_ledger import Ledger
from ullage.scheduling.model.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCluster:
    """The cluster at the beginning of a cycle.

    Attributes:
        view: The indexed snapshot, without pending evictions.
        ledger: Slices by node.
        inventory: Devices and their nodes.
        notices: Announced terminations of machines, by node.
    """

    view: View
    ledger: Ledger
    inventory: Inventory
    notices: Mapping[str, Interruption]


def observe(
    snapshot: Snapshot, now: float, settings: DecideSettings, cache: CycleCache
) -> ObservedCluster:
    """Index a snapshot for a cycle; arguments as of ``decide``."""
    snapshot = sizes.with_sizes(snapshot)
    ledger = Ledger(snapshot)
    view = look(snapshot, now, settings, ledger, cache.members)
    return ObservedCluster(
        view=view,
        ledger=ledger,
        inventory=take_inventory(view, cache.inventory),
        notices=terminations(snapshot),
    )


def look(
    snapshot: Snapshot,
    now: float,
    settings: DecideSettings,
    ledger: Ledger,
    members: MemberCache | None = None,
) -> View:
    """Index the snapshot; slices of deleted pods are dropped from the ledger."""
    members = members or MemberCache()
    members.update(snapshot, settings, ledger)
    pods, workloads, index = snapshot.pods, snapshot.workloads, members.pod_index

    def of_workloads(uids: AbstractSet[str]) -> tuple[PodRecord, ...]:
        # A pod whose workload is unknown may be forged: it delays no decision.
        return tuple(pods[uid] for uid in sorted(uids) if pods[uid].owner.uid in workloads)

    return View(
        snapshot=snapshot,
        now=now,
        settings=settings,
        members=members.current,
        observed=dict(members.slices.observed),
        names=index.names,
        index=members.index,
        changes=members.changes,
        renewed=members.renewed,
        tried=members.node_index.tried,
        starting=len(of_workloads(index.starting)),
        orders=of_workloads(index.orders),
        coordinators={pods[uid].owner.uid: pods[uid] for uid in sorted(index.leads)},
        isolated=isolations(snapshot, now),
    )
