# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Random stress on gangs in place: whoever runs well is left alone, and sizes are true."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from fakes.toy_stress import StressRun
from ullage.api.interruptions import Interruption, InterruptionKind
from ullage.api.labels import GATE
from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.spec_fields import Elasticity
from ullage.cluster.records.workload import WorkloadKind
from ullage.scheduling.model.plan import Action, DeletePod, EvictPod, Plan

SEEDS = range(7700, 7708)
EVENTS = 220
_FOR_ANOTHER = (Reason.RESIZING, Reason.PREEMPTED)


class _InPlace(StressRun):
    """A stress run in which most gangs are in place."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.seen: Counter[str] = Counter()
        self._events |= {"warn": (2, self._warn), "withdraw": (2, self._withdraw)}
        self._names = list(self._events)
        self._weights = [self._events[name][0] for name in self._names]

    def _warn(self) -> None:
        """A provider says that it takes a machine back."""
        node = self._node()
        if node in self.toy.gpu_nodes:
            notice = Interruption(kind=InterruptionKind.TERMINATE, source="EC2")
            self._say(node, notice)

    def _withdraw(self) -> None:
        for node in list(self.toy.gpu_nodes):
            self._say(node, None)

    def _say(self, node: str, notice: Interruption | None) -> None:
        self.toy.gpu_nodes[node] = replace(self.toy.gpu_nodes[node], interruption=notice)

    def settle(self) -> None:
        self._withdraw()
        super().settle()

    def _create(self) -> None:
        before = set(self.toy.workloads)
        super()._create()
        for uid in set(self.toy.workloads) - before:
            job = self.toy.workloads[uid]
            if job.kind is WorkloadKind.TRAINING_JOB and self.random.random() < 0.8:
                least = self.random.randint(1, job.replicas)
                bounds = Elasticity(
                    min_replicas=least,
                    max_replicas=least + self.random.randint(1, 3),
                    in_place=True,
                )
                self.toy.workloads[uid] = replace(
                    job, elasticity=bounds, replicas=least, checkpoint=True
                )

    def cycle(self, landing: float = 1.0) -> tuple[Plan, tuple[Action, ...]]:
        pods = dict(self.toy.pods)
        jobs = dict(self.toy.workloads)
        plan, actions = super().cycle(landing)
        statuses = {uid: one.status for uid, one in jobs.items()} | plan.statuses
        for uid, status in statuses.items():
            job = self.toy.workloads.get(uid)
            if job is None or job.elasticity is None or status.phase != "Running":
                continue
            let_go = [one for one in pods.values() if one.owner.uid == uid and _is_let_go(one)]
            assert job.elasticity.min_replicas <= status.replicas <= len(let_go)
            assert status.replicas <= job.elasticity.max_replicas
            self.seen[status.size.reason if status.size else "none"] += 1
        for step in actions:
            if not isinstance(step, (DeletePod, EvictPod)) or step.reason in _FOR_ANOTHER:
                continue
            job = self.toy.workloads.get(step.owner.uid)
            if job is None or job.elasticity is None or job.suspend:
                continue
            before, after = jobs.get(step.owner.uid), statuses[step.owner.uid].phase
            was_running = before is not None and before.status.phase == "Running"
            if was_running and after == "Running" and step.pod.uid in pods:
                assert not self._is_well(pods[step.pod.uid]), f"{step.pod.name}: {step.text}"
                self.seen["left alone"] += 1
        return plan, actions

    def check(self) -> None:
        """No rank is there twice, and who runs has no more members than may be."""
        super().check()
        for uid, job in self.toy.workloads.items():
            if job.elasticity is not None:
                ranks = Counter(one.rank for one in self.toy.members(uid))
                assert all(count == 1 for count in ranks.values()), f"{job.ref.name}: {ranks}"
                running = [one for one in self.toy.members(uid) if _is_let_go(one)]
                assert len(running) <= job.elasticity.max_replicas

    def _is_well(self, pod: PodRecord) -> bool:
        record = self.toy.gpu_nodes.get(pod.node)
        failed = record is not None and any(
            one.key.pod_uid == pod.uid and one.phase is SlicePhase.FAILED for one in record.observed
        )
        warned = record is not None and record.interruption is not None
        return pod.stage is PodStage.RUNNING and not (pod.deleting or failed or warned)


def _is_let_go(pod: PodRecord) -> bool:
    return GATE not in pod.gates and pod.stage is not PodStage.FAILED and not pod.deleting


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_no_one_who_runs_well_is_touched_and_sizes_are_true(seed: int) -> None:
    stress = _InPlace(seed)
    stress.run_twice(seed, EVENTS)
    assert stress.seen[Reason.SIZED] or stress.seen[Reason.SHRUNK] or stress.seen[Reason.GROWN]
