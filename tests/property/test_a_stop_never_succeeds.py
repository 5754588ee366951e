# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever is stopped, ends, vanishes and is seen late: only work that is done has succeeded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import NOW, a_gpu_node, a_job, a_kube_service, a_slice, gpu, reported
from builders_raw import raw_pod
from fakes.deciding import decided
from ullage.api.slices import SlicePhase
from ullage.api.times import rfc3339
from ullage.app.effects import effect_of
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.codecs.status import as_stored
from ullage.cluster.records.workload import WorkloadKind
from ullage.cluster.values import streams
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.plan import CreatePod, DeletePod, EvictPod

CI = settings(max_examples=150, deadline=None, derandomize=True)
GRACE_S = 30
TICK_S = 4.0

events = st.tuples(
    st.sampled_from(["end", "end", "delete", "evict", "shutdown", "vanish", "suspend", "restart"]),
    st.integers(0, 2),
    st.sampled_from([0, 0, 0, 1, 143]),
    st.booleans(),
)


@dataclass
class Pod:
    """A pod and what happened to it, in true order."""

    raw: dict[str, Any]
    asked_at: float = 0.0
    ended_at: float = 0.0
    code: int = -1

    @property
    def name(self) -> str:
        return str(self.raw["metadata"]["name"])

    @property
    def was_stopped(self) -> bool:
        return bool(self.asked_at) and (not self.ended_at or self.asked_at <= self.ended_at)


@dataclass
class World:
    """A job, its pods, and an operator that sees them when it looks."""

    size: int
    job: Any = None
    pods: dict[str, Pod] = field(default_factory=dict)
    at: float = NOW
    made: int = 0
    stops: int = 0
    state: ClusterState = field(default_factory=lambda: ClusterState(effect_of))

    def __post_init__(self) -> None:
        self.job = a_job().gang(self.size).failure(99).with_(work_steps=1_000)
        for rank in range(self.size):
            self.create(f"train-{rank}", rank)
        self.job = self.job.status(phase="Running", start_time=NOW)

    def create(self, name: str, rank: int) -> None:
        self.made += 1
        raw = raw_pod(name, rank=rank, gated=False, node="node-1", phase="Running")
        raw["metadata"] |= {"uid": f"uid-{self.made}"}
        raw["metadata"]["ownerReferences"][0]["uid"] = "uid-default-train"
        self.pods[name] = Pod(raw)

    def ask(self, pod: Pod, *, disruption: str = "", deletes: bool = True) -> None:
        """The API's part of a deletion: who has ended goes at once."""
        if pod.ended_at and deletes:
            del self.pods[pod.name]
            return
        if pod.ended_at:
            return
        self.stops += 1
        pod.asked_at = pod.asked_at or self.at
        if deletes:
            pod.raw["metadata"] |= {
                "deletionTimestamp": rfc3339(pod.asked_at + GRACE_S),
                "deletionGracePeriodSeconds": GRACE_S,
            }
        if disruption:
            pod.raw["status"]["conditions"] = [
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": disruption,
                    "lastTransitionTime": rfc3339(pod.asked_at),
                }
            ]

    def end(self, pod: Pod, code: int) -> None:
        """The kubelet's part: the phase follows the exit code, whatever asked for it."""
        pod.ended_at, pod.code = self.at, code
        ended = {"exitCode": code, "finishedAt": rfc3339(self.at)}
        pod.raw["status"] |= {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [{"name": "main", "state": {"terminated": ended}}],
        }

    def happens(self, what: str, rank: int, code: int) -> None:
        pod = self.pods.get(f"train-{rank}")
        if what == "suspend":
            self.job = self.job.with_(suspend=not self.job.build().suspend)
            self.stops += 1
        elif what == "restart":
            self.state = ClusterState(effect_of)
        elif pod is None:
            return
        elif what == "end" and not pod.ended_at:
            self.end(pod, code)
        elif what == "vanish" and pod.asked_at:
            del self.pods[pod.name]
        elif what in ("delete", "evict"):
            self.ask(pod, disruption="EvictionByEvictionAPI" if what == "evict" else "")
        elif what == "shutdown":
            self.ask(pod, disruption="TerminationByKubelet", deletes=False)

    def look(self) -> str:
        """The operator decides and acts; its phase for the job."""
        self.state.replace(streams.PODS, [pod.raw for pod in self.pods.values()], self.at)
        pods = list(self.state.freeze(self.at).pods.values())
        held = [
            a_slice(pod, device=gpu("node-1", at), percent=100)
            for at, pod in enumerate(pods)
            if not pod.stage.finished
        ]
        seen = [reported(one, SlicePhase.ATTACHED, steps=500, step_micros=1_000) for one in held]
        node = a_gpu_node(desired=held, observed=seen)
        service = a_kube_service(self.job.build(), "train-workers")
        found = decided(self.job, *pods, node, service, at=self.at)
        status = as_stored(WorkloadKind.TRAINING_JOB, found.status(self.job))
        self.job = self.job.with_(status=status)
        for step in found.actions:
            if isinstance(step, CreatePod):
                self.create(step.name, step.rank)
            elif isinstance(step, (DeletePod, EvictPod)) and step.pod.name in self.pods:
                self.ask(self.pods[step.pod.name])
        return str(status.phase)

    def may_have_succeeded(self) -> bool:
        """Whether the pods that exist can mean that the work is done."""
        pods = list(self.pods.values())
        if len(pods) != self.size or any(not pod.ended_at or pod.code for pod in pods):
            return False
        stopped = [pod for pod in pods if pod.was_stopped]
        others = [pod for pod in pods if not pod.was_stopped]
        if not stopped:
            return True
        return (
            len(stopped) == 1
            and bool(others)
            and all(pod.ended_at < stopped[0].asked_at for pod in others)
        )


@pytest.mark.slow
@CI
@given(st.integers(1, 3), st.lists(events, min_size=1, max_size=20))
def test_a_job_succeeds_only_when_its_members_ended_by_themselves(
    size: int, happened: list[tuple[str, int, int, bool]]
) -> None:
    world = World(size)
    for what, rank, code, looks in happened:
        world.at += TICK_S
        world.happens(what, rank, code)
        allowed = world.may_have_succeeded()
        if not looks:
            continue
        phase = world.look()
        progress = world.job.build().status.progress
        if phase == Phase.SUCCEEDED:
            assert allowed, f"after {what} {rank} with {code}"
            return
        assert progress is None or progress.percent <= 50, "no more than was counted"


@pytest.mark.slow
@CI
@given(st.integers(1, 3), st.lists(st.integers(0, 2), max_size=6))
def test_members_that_no_one_stopped_succeed_in_any_order(size: int, order: list[int]) -> None:
    world = World(size)
    for rank in [*order, *range(size)]:
        world.at += TICK_S
        world.happens("end", rank, 0)
        world.happens("restart", 0, 0)
        phase = world.look()
    assert (phase, world.stops) == (Phase.SUCCEEDED, 0)
