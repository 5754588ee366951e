# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps the places of jobs that restart with a smaller share while they have no pods.

Between the last pod of the old start and the first of the new one nothing holds the job's remaining
share, so the next newcomer would take all of it. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ullage.api.reasons import Reason
from ullage.cluster.records.status import MadeRoom
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.feasibility.occupancy import Occupancy, Occupant
from ullage.scheduling.feasibility.resource_requests import ResourceRequests
from ullage.scheduling.inventory.held_shares import active_share_limit
from ullage.scheduling.inventory.resource_usage import charged
from ullage.scheduling.model.lifecycle_step import LifecycleStep
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.view import View
from ullage.scheduling.placement.placement import memory_mib


def keep_shares(
    view: View,
    requests: ResourceRequests,
    occupancy: Occupancy,
    lifecycles: Mapping[str, LifecycleStep],
) -> None:
    """Keep the place of every job that is changing to a smaller share.

    Its current share counts as leaving, and the smaller share as taken until the job requests it.
    """
    for uid, workload in view.index.those(view.index.made_room):
        made = active_share_limit(workload, view.now, view.snapshot.workloads)
        life = lifecycles.get(uid)
        if made is None or life is None or not _is_on_its_way(view, workload, life):
            continue
        for site, occupants in enumerate(occupancy.occupants):
            for occupant in [at for at in occupants if at.owner_uid == uid and not at.leaving]:
                occupancy.lift(site, occupant)
                occupancy.put(site, replace(occupant, leaving=True))
        for node, wanted in charged(occupancy.inventory, view.members_of(workload), staying=True):
            occupancy.departing(node, wanted)
        _put_back_smaller(requests, occupancy, workload, made)


def _is_on_its_way(view: View, job: WorkloadRecord, life: LifecycleStep) -> bool:
    """True when a job stops, or has stopped and does not request a place yet."""
    if life.silent or life.waiting or life.reason is Reason.WAITING_FOR_GATE:
        return False
    if life.phase is Phase.RESTARTING:
        return True
    return life.phase is Phase.PENDING and not any(member.held for member in view.members_of(job))


def _put_back_smaller(
    requests: ResourceRequests, occupancy: Occupancy, job: WorkloadRecord, made: MadeRoom
) -> None:
    site = occupancy.inventory.site_index.get((made.node, made.gpu))
    if site is None:
        return
    request = requests.of(job, job.shape)
    percent = min(request.max_percent, made.percent)
    model = occupancy.inventory.model.item(site)
    occupancy.put(
        site,
        Occupant(
            pod_uid="",
            owner_uid=job.ref.uid,
            tenant=request.tenant(f"{job.ref.namespace}/{job.ref.name}", model, percent),
            memory_mib=memory_mib(occupancy, request, site, percent),
            domain=request.domain,
            whole=False,
        ),
    )
    occupancy.charge(occupancy.inventory.sites[site].node, job.shape.requests)
