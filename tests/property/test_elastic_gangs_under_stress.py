# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Random stress on elastic gangs: their size stays within bounds, and all members agree on it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest

from fakes.examples import seeds
from fakes.toy_stress import StressRun
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.spec_fields import Elasticity
from ullage.cluster.records.workload import WorkloadKind
from ullage.scheduling.times import GANG_HOLD_S

SEEDS = [9000 + seed for seed in seeds(4, many=12)]
EVENTS = 220
_UNGATED = (PodStage.UNSCHEDULED, PodStage.BOUND, PodStage.RUNNING)


class _Elastic(StressRun):
    """A stress run in which most gangs are elastic."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.grown: dict[str, list[float]] = defaultdict(list)
        self.sizes: dict[str, int] = {}

    def _create(self) -> None:
        before = set(self.toy.workloads)
        super()._create()
        for uid in set(self.toy.workloads) - before:
            job = self.toy.workloads[uid]
            if job.kind is WorkloadKind.TRAINING_JOB and self.random.random() < 0.8:
                least = self.random.randint(1, job.replicas)
                bounds = Elasticity(
                    min_replicas=least, max_replicas=job.replicas + self.random.randint(0, 3)
                )
                self.toy.workloads[uid] = replace(
                    job, elasticity=bounds, replicas=least, checkpoint=True
                )

    def check(self) -> None:
        """Bounds hold, no one starts with another idea of the size, and no one flaps upwards."""
        super().check()
        for uid, job in self.toy.workloads.items():
            if job.elasticity is None:
                continue
            bounds = job.elasticity
            if job.status.size is not None:
                assert bounds.min_replicas <= job.status.replicas <= bounds.max_replicas
            started = [one for one in self.toy.members(uid) if one.stage in _UNGATED]
            sizes = {one.world_size for one in started}
            assert len(sizes) <= 1, f"{job.ref.name}: members of {sizes} run beside each other"
            if sizes:
                (size,) = sizes
                assert bounds.min_replicas <= size <= bounds.max_replicas
                assert {one.rank for one in started} <= set(range(size))
                self._note(uid, size)

    def _note(self, uid: str, size: int) -> None:
        status = self.toy.workloads[uid].status
        admitted = status.condition("Admitted")
        if (
            status.phase == "Restarting"
            and admitted is not None
            and admitted.reason == "Resizing"
            and status.size is not None
            and status.size.reason == "Grown"
        ):
            moments = self.grown[uid]
            if not moments or moments[-1] != status.size.since:
                moments.append(status.size.since)
        self.sizes[uid] = size


@pytest.mark.parametrize("seed", SEEDS)
def test_sizes_stay_within_bounds_and_are_agreed_on(seed: int) -> None:
    stress = _Elastic(seed)
    stress.run_twice(seed, EVENTS)
    # of some seeds no elastic job finds room
    elastic = (job for job in stress.toy.workloads.values() if job.elasticity)
    assert stress.sizes or not any(job.status.phase == "Ready" for job in elastic)
    for moments in stress.grown.values():
        assert all(later - earlier >= GANG_HOLD_S for earlier, later in pairwise(moments))
