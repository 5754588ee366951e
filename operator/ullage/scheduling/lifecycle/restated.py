# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Objectives in slices of running work: updated after an edit, or when a slowdown is known.

A slice has the objective of its tenant, so that node and guard need no other object. Users may edit
the objective of running work; a latency becomes a slowdown only once it was measured. Size and
place never change here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from ullage.api.slices import DesiredSlice
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.feasibility.slices import has_objective, slice_facts, slowdown_percent
from ullage.scheduling.model.slice_ledger import Ledger
from ullage.scheduling.model.view import View
from ullage.scheduling.prediction.workload_classes import Classes

_DRIFT: Final = 0.05
"""Relative change of a slowdown by measurements alone, above which the slice is rewritten."""


def restate(
    view: View, classes: Classes, ledger: Ledger, disturbed: Collection[str] | None = None
) -> frozenset[str]:
    """Rewrite slices of running pods whose objective differs from their workload's.

    They have this leader's epoch, because a node ignores changes of an older one. Trials are left
    alone: they end within a minute.

    Args:
        view: The cycle's snapshot.
        classes: Measurements of workload classes.
        ledger: The slices that specs are to have.
        disturbed: Nodes on which something changed; ``None`` = any of them.

    Returns:
        uids of the workloads whose objective changed, to be evaluated again.
    """
    snapshot, inventory = view.snapshot, classes.inventory
    changed: set[str] = set()
    records = snapshot.gpu_nodes
    for node in records if disturbed is None else records.keys() & disturbed:
        for wanted in records[node].desired:
            pod = snapshot.pods.get(wanted.key.pod_uid)
            owner = snapshot.workloads.get(pod.owner.uid) if pod is not None else None
            if pod is None or owner is None or wanted.probation or _is_current(wanted, owner):
                continue
            if pod.deleting or pod.stage is not PodStage.RUNNING:
                continue
            site = inventory.site_index.get((node, wanted.gpu))
            if site is None or owner.deleting or ledger.dropped(node, wanted.key):
                continue
            restated = slice_facts(owner, classes.of(owner), inventory.model.item(site))
            if not _differs(wanted, restated, owner):
                continue
            updated = replace(
                wanted,
                protected=restated.protected,
                slo=restated.slo,
                alert_only=restated.alert_only,
                reports_load=restated.reports_load,
                max_slowdown_percent=restated.max_slowdown_percent,
                solo_step_micros=restated.solo_step_micros or wanted.solo_step_micros,
                epoch=view.settings.epoch,
            )
            ledger.add(node, updated)
            if _edited(wanted, restated, owner):
                changed.add(owner.ref.uid)
    return frozenset(changed)


def _is_current(wanted: DesiredSlice, owner: WorkloadRecord) -> bool:
    """Cheap test for a slice with its owner's objective; in doubt ``False``."""
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


def _differs(wanted: DesiredSlice, restated: DesiredSlice, owner: WorkloadRecord) -> bool:
    """True when the slice must be rewritten; drift by measurements counts from ``_DRIFT`` on."""
    if _edited(wanted, restated, owner) or wanted.alert_only is not restated.alert_only:
        return True
    if wanted.reports_load is not restated.reports_load:
        return True
    before, after = wanted.max_slowdown_percent, restated.max_slowdown_percent
    if not before or not after or owner.slo is not None:
        return not before and bool(after)  # a guard uses the latency itself
    return abs(before - after) > _DRIFT * before


def _edited(wanted: DesiredSlice, restated: DesiredSlice, owner: WorkloadRecord) -> bool:
    """True when the objective itself changed, not only the measurements behind it."""
    if (wanted.protected, wanted.slo) != (restated.protected, restated.slo):
        return True
    before, after = wanted.max_slowdown_percent, restated.max_slowdown_percent
    if not before or before == after:
        return False
    as_written = owner.slo is None and owner.min_throughput is None
    return as_written or 0 < owner.status.observed_generation < owner.generation
