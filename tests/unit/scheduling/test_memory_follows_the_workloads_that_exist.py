# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a decision keeps for the next one is bounded by what exists, not by what ever existed."""

from __future__ import annotations

from builders import NOW, a_gpu_node, a_job, a_node, a_snapshot
from fakes.deciding import SETTINGS
from ullage.scheduling.assignment.observe import look
from ullage.scheduling.inventory.inventory import take_inventory
from ullage.scheduling.model.slice_ledger import Ledger
from ullage.scheduling.prediction.workload_classes import SPARE, ClassCache, Classes


def test_what_is_kept_over_cycles_follows_the_workloads_that_exist() -> None:
    place, cache = (a_node("node-1"), a_gpu_node(devices=1)), ClassCache()
    for generation in range(40):
        jobs = [
            a_job(f"j-{generation}-{n}").with_(workload_class=f"c-{generation}-{n}")
            for n in range(100)
        ]
        snapshot = a_snapshot(*place, *jobs)
        view = look(snapshot, NOW, SETTINGS, Ledger(snapshot))
        classes = Classes(snapshot, take_inventory(view), cache=cache)
        for one in snapshot.workloads.values():
            classes.of(one)
        assert len(cache.kept.workloads) <= 3 * len(jobs) + SPARE
