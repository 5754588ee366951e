# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The watch over a tree of counters: reports, Events, limits, and what is left alone."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fakes.io_tree import IoTree
from ullage.api.dataio import IoFairness, ObservedStarvation
from ullage_node.dataio.watch import SYSTEM_PRIORITY, IoSources, IoWatch
from ullage_node.dataio.windows import IoReader
from ullage_node.devices.cgroup_io import IoCgroup, WaitSampler
from ullage_node.events import AgentEvent
from ullage_node.guard.protocol import IoLimit
from ullage_node.model.slices import Pod

TRAIN = IoCgroup(str(uuid.UUID(int=1)), "aaa")
ETL = IoCgroup(str(uuid.UUID(int=2)), "bbb")
STRANGER = IoCgroup(str(uuid.UUID(int=3)), "ccc")
MB = 1_000_000


@dataclass
class Rig:
    """A node with two pods on one volume."""

    tree: IoTree
    pods: dict[str, Pod]
    problem: str = ""
    events: list[AgentEvent] = field(default_factory=list)
    limits: list[Sequence[IoLimit]] = field(default_factory=list)
    moved: dict[IoCgroup, tuple[int, int]] = field(default_factory=dict)
    now: float = 0.0

    def __post_init__(self) -> None:
        async def limit(limits: Sequence[IoLimit]) -> str:
            self.limits.append(limits)
            return self.problem

        proc = self.tree.root / "proc"
        (proc / "1").mkdir(parents=True)
        mounted = "/var/lib/kubelet/pods/x/volumes/kubernetes.io~csi/data-0/mount"
        (proc / "1" / "mountinfo").write_text(f"36 35 7:0 / {mounted} rw - ext4 /dev/loop0 rw\n")
        self.watch = IoWatch(
            IoSources(
                node="node-a",
                reader=IoReader(cgroup_root=self.tree.root, sampler=WaitSampler(proc_root=proc)),
                sys_root=self.tree.root / "sys",
                proc_root=proc,
                pods=lambda: self.pods,
                data_waits=dict,
                limit=limit,
                say=self.events.append,
            )
        )

    async def window(self, **mb_per_s: tuple[int, float]) -> None:
        """Five seconds in which containers move MB/s and wait for a part of the time."""
        for name, (rate, stalled) in mb_per_s.items():
            key = {"train": TRAIN, "etl": ETL, "stranger": STRANGER}[name]
            count, waits = self.moved.get(key, (0, 0))
            self.moved[key] = (count + 5 * rate * MB, waits + round(5e6 * stalled))
            count, waits = self.moved[key]
            self.tree.write(key, {"7:0": (count, count // 4096)}, stalled_us=waits)
        self.now += 5
        await self.watch.look(self.now)

    async def hogged(self, windows: int = 4) -> None:
        """The copy takes most of the volume."""
        for _ in range(windows):
            await self.window(train=(10, 0.9), etl=(90, 0.99))


def a_pod(container: IoCgroup, name: str, namespace: str = "default", priority: int = 0) -> Pod:
    return Pod(
        uid=container.pod_uid, namespace=namespace, name=name, phase="Running", priority=priority
    )


@pytest.fixture(params=[1, 2])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    tree = IoTree(tmp_path / "cgroup", version=request.param)
    pods = [a_pod(TRAIN, "digits-0"), a_pod(ETL, "etl")]
    return Rig(tree, {pod.uid: pod for pod in pods})


async def test_victim_hog_and_volume_are_named_once(rig: Rig) -> None:
    await rig.hogged(8)
    (report,) = rig.watch.reports
    assert (report.pod, report.hog, report.volume) == ("digits-0", "etl", "7:0 (data-0)")
    assert report.text("node-a") == (
        "node-a:7:0 (data-0) 10 MB/s of 100 wanted; default/etl takes 90 %"
    )
    (event,) = rig.events
    assert (event.subject.name, event.reason) == ("digits-0", "IoStarved")
    assert ObservedStarvation.from_wire(report.to_wire()) == report
    assert not any(rig.limits)
    assert rig.watch.figures.starving == {"7:0 (data-0)": 1}


async def test_enforcement_limits_the_hog_and_ends_with_the_starvation(rig: Rig) -> None:
    rig.watch.fairness = IoFairness.ENFORCE
    await rig.hogged()
    ((limit,),) = [limits for limits in rig.limits if limits]
    assert (limit.container, limit.device) == (ETL, "7:0")
    assert limit.bytes_per_s == pytest.approx(50 * MB, rel=1e-3)
    assert {event.reason for event in rig.events} == {"IoStarved", "IoLimited"}
    for _ in range(4):
        await rig.window(train=(0, 0.0), etl=(10, 0.0))
    assert rig.limits[-1] == []


async def test_another_policy_takes_limits_back_at_once(rig: Rig) -> None:
    rig.watch.fairness = IoFairness.ENFORCE
    await rig.hogged()
    rig.watch.fairness = IoFairness.OBSERVE
    await rig.hogged(1)
    assert rig.limits[-1] == []


@pytest.mark.parametrize(
    "pod", [a_pod(ETL, "etl", "kube-system"), a_pod(ETL, "etl", priority=SYSTEM_PRIORITY)]
)
async def test_what_serves_the_node_is_named_and_never_limited(rig: Rig, pod: Pod) -> None:
    rig.pods[ETL.pod_uid] = pod
    rig.watch.fairness = IoFairness.ENFORCE
    await rig.hogged()
    assert rig.watch.reports
    assert not any(rig.limits)


async def test_containers_of_other_nodes_are_not_looked_at(rig: Rig) -> None:
    del rig.pods[ETL.pod_uid]
    await rig.hogged()
    assert rig.watch.reports == ()


async def test_fair_use_is_no_news(rig: Rig) -> None:
    for _ in range(8):
        await rig.window(train=(50, 0.9), etl=(50, 0.9), stranger=(1, 0.5))
    assert (rig.watch.reports, rig.events) == ((), [])
    assert rig.watch.figures.jain == {"7:0": pytest.approx(1.0)}


async def test_a_guard_that_is_away_is_counted_and_asked_again(rig: Rig) -> None:
    rig.problem = "the guard cannot be reached"
    rig.watch.fairness = IoFairness.ENFORCE
    await rig.hogged(6)
    assert rig.watch.figures.limit_failures >= 3
    assert rig.watch.reports
