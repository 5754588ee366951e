# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Slices of running work follow its objective: as edited, or as a slowdown once it is known.

A slice says what its tenant must keep, so that node and guard need no other object. A user edits
the objective while it runs; a latency becomes a slowdown only when it was measured. Size and place
never change here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from ullage.api.slices import DesiredSlice
from ullage.cluster.records.snapshot import PodStage, WorkloadRecord
from ullage.scheduling.feasibility.slices import has_objective, slice_facts, slowdown_percent
from ullage.scheduling.model.slice_ledger import Ledger
from ullage.scheduling.model.view import View
from ullage.scheduling.prediction.workload_classes import Classes

_DRIFT: Final = 0.05
"""A slowdown that only followed a measured speed is told again when it moved by more than this."""


def restate(
    view: View, classes: Classes, ledger: Ledger, disturbed: Collection[str] | None = None
) -> frozenset[str]:
    """Enter slices of running pods again that say another objective than their workload.

    They carry this leader's epoch: a node takes no change of an older one. A trial is left alone,
    it ends within a minute.

    Args:
        view: the cycle's snapshot.
        classes: what is known of workload classes.
        ledger: the slices that specs are to have.
        disturbed: nodes on which something changed; ``None`` = perhaps on all.

    Returns:
        uids of the workloads whose objective reads otherwise than before, for them to be judged.
    """
    snapshot, inventory = view.snapshot, classes.inventory
    changed: set[str] = set()
    records = snapshot.gpu_nodes
    for node in records if disturbed is None else records.keys() & disturbed:
        for wanted in records[node].desired:
            pod = snapshot.pods.get(wanted.key.pod_uid)
            owner = snapshot.workloads.get(pod.owner.uid) if pod is not None else None
            if pod is None or owner is None or wanted.probation or _as_said(wanted, owner):
                continue
            if pod.deleting or pod.stage is not PodStage.RUNNING:
                continue
            site = inventory.site_index.get((node, wanted.gpu))
            if site is None or owner.deleting or ledger.dropped(node, wanted.key):
                continue
            said = slice_facts(owner, classes.of(owner), inventory.model.item(site))
            if not _differs(wanted, said, owner):
                continue
            ledger.add(node, _with_terms_of(wanted, said, view.settings.epoch))
            if _edited(wanted, said, owner):
                changed.add(owner.ref.uid)
    return frozenset(changed)


def _as_said(wanted: DesiredSlice, owner: WorkloadRecord) -> bool:
    """Whether a slice says all there is to say; in doubt no, then it is looked at closely."""
    if not has_objective(owner):
        return not (wanted.protected or wanted.max_slowdown_percent)
    return (
        owner.slo is None
        and owner.min_throughput is None
        and wanted.slo is None
        and wanted.protected
        and wanted.max_slowdown_percent == slowdown_percent(owner.max_slowdown)
        and wanted.alert_only is not owner.sharing.freeze_neighbours
    )


def _differs(wanted: DesiredSlice, said: DesiredSlice, owner: WorkloadRecord) -> bool:
    """Whether the node must be told; what only drifts with measurements is told in steps."""
    if _edited(wanted, said, owner) or wanted.alert_only is not said.alert_only:
        return True
    if wanted.reports_load is not said.reports_load:
        return True
    told, known = wanted.max_slowdown_percent, said.max_slowdown_percent
    if not told or not known or owner.slo is not None:
        return not told and bool(known)  # a guard goes by the latency itself
    return abs(told - known) > _DRIFT * told


def _edited(wanted: DesiredSlice, said: DesiredSlice, owner: WorkloadRecord) -> bool:
    """Whether the objective itself reads otherwise, and not only what is known of it."""
    if (wanted.protected, wanted.slo) != (said.protected, said.slo):
        return True
    told, known = wanted.max_slowdown_percent, said.max_slowdown_percent
    if not told or told == known:
        return False
    as_written = owner.slo is None and owner.min_throughput is None
    return as_written or 0 < owner.status.observed_generation < owner.generation


def _with_terms_of(wanted: DesiredSlice, said: DesiredSlice, epoch: int) -> DesiredSlice:
    return replace(
        wanted,
        protected=said.protected,
        slo=said.slo,
        alert_only=said.alert_only,
        reports_load=said.reports_load,
        max_slowdown_percent=said.max_slowdown_percent,
        solo_step_micros=said.solo_step_micros or wanted.solo_step_micros,
        epoch=epoch,
    )
