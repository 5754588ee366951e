# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The leader alone asks coordinators, news alone wakes decisions, silence changes nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from fakes.virtual_time import run_virtual
from ullage.app.coordinator_service import AT_ONCE_OF_A_NAMESPACE, CoordinatorService
from ullage.app.effects import effect_of
from ullage.app.times import COORDINATOR_ANSWER_S
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.tier import CoordinatorReport
from ullage.cluster.values import streams
from ullage.kube.coordinator_reader import CoordinatorSilent
from ullage.ports import JsonObject

REPORT = CoordinatorReport(stage=2, epoch=4, step=102, committed=101, reliable=1, transient=2)


class Replica:
    """One operator's look at leads; ``answers`` are by address."""

    def __init__(self) -> None:
        self.is_leader = True
        self.answers: dict[str, CoordinatorReport | None] = {"10.0.0.9": REPORT}
        self.asked: list[str] = []
        self.pokes: list[str] = []
        self.state = ClusterState(effect_of)
        self.service = CoordinatorService(
            self,
            self.state,
            is_leader=lambda: self.is_leader,
            poke=self.pokes.append,
        )

    def coordinator(self, **status: object) -> None:
        """Its pod, in this state."""
        self.state.upsert(streams.PODS, a_pod(status), 0.0)

    async def read(self, address: str) -> CoordinatorReport | None:
        self.asked.append(address)
        if address not in self.answers:
            raise CoordinatorSilent("no one")
        return self.answers[address]

    def told(self) -> CoordinatorReport | None:
        return self.state.freeze(0.0).leads.get("uid-train")


def a_pod(status: dict[str, object]) -> JsonObject:
    labels = {
        "ullage.dev/managed": "true",
        "ullage.dev/kind": "TrainingJob",
        "ullage.dev/owner": "train",
        "ullage.dev/lead": "true",
    }
    owner = {"kind": "TrainingJob", "name": "train", "uid": "uid-train", "controller": True}
    return {
        "metadata": {
            "name": "train-lead",
            "namespace": "team",
            "uid": "uid-lead",
            "labels": labels,
            "ownerReferences": [{"apiVersion": "ullage.dev/v1alpha1", **owner}],
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "resourceVersion": "1",
        },
        "spec": {"nodeName": "node-1", "containers": [{"name": "lead", "image": "x"}]},
        "status": {"phase": "Running", "podIP": "10.0.0.9"} | status,
    }


async def test_what_a_lead_says_reaches_decisions() -> None:
    replica = Replica()
    replica.coordinator()
    await replica.service.look()
    assert replica.told() == REPORT
    assert replica.pokes == ["lead"]


async def test_steps_wake_no_one() -> None:
    replica = Replica()
    replica.coordinator()
    await replica.service.look()
    replica.answers["10.0.0.9"] = replace(REPORT, step=200, committed=199)
    await replica.service.look()
    assert replica.told() == replica.answers["10.0.0.9"]
    assert replica.pokes == ["lead"]
    replica.answers["10.0.0.9"] = replace(REPORT, lost_steps=2)
    await replica.service.look()
    assert replica.pokes == ["lead", "lead"]


async def test_silence_leaves_what_was_said() -> None:
    replica = Replica()
    replica.coordinator()
    await replica.service.look()
    del replica.answers["10.0.0.9"]
    await replica.service.look()
    assert replica.told() == REPORT


async def test_a_lead_that_ended_is_forgotten() -> None:
    replica = Replica()
    replica.coordinator()
    await replica.service.look()
    replica.coordinator(phase="Failed")
    await replica.service.look()
    assert replica.told() is None


async def test_only_the_leader_asks_and_only_leads_that_run() -> None:
    replica = Replica()
    replica.coordinator(phase="Pending", podIP="")
    await replica.service.look()
    assert replica.asked == []
    replica.coordinator()
    replica.is_leader = False
    await replica.service.look()
    assert replica.asked == []


async def test_no_picture_is_made_to_look_for_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_picture(now: float) -> Snapshot:
        raise AssertionError("a snapshot was made")

    replica = Replica()
    monkeypatch.setattr(replica.state, "freeze", no_picture)
    version = replica.state.version
    await replica.service.look()
    assert (replica.asked, replica.pokes, replica.state.version) == ([], [], version)
    replica.coordinator()
    await replica.service.look()
    assert replica.asked == ["10.0.0.9"]


async def test_a_lead_that_is_gone_is_asked_no_more() -> None:
    replica = Replica()
    replica.coordinator()
    await replica.service.look()
    replica.state.remove(streams.PODS, a_pod({}), 1.0)
    assert replica.state.coordinator_pods() == {}
    replica.asked.clear()
    await replica.service.look()
    assert replica.asked == []
    assert replica.told() is None


def test_only_pods_that_lead_are_found_and_a_full_list_forgets_the_rest() -> None:
    state = Replica().state
    member = a_pod({})
    member["metadata"] = {**member["metadata"], "name": "train-0", "uid": "uid-0"}  # type: ignore[dict-item]
    del member["metadata"]["labels"]["ullage.dev/lead"]  # type: ignore[index]
    state.replace(streams.PODS, [a_pod({}), member], 0.0)
    assert [pod.name for pod in state.coordinator_pods().values()] == ["train-lead"]
    state.replace(streams.PODS, [member], 1.0)
    assert state.coordinator_pods() == {}


class Crowd:
    """Leads of two namespaces; those of one never answer."""

    def __init__(self, hostile: int) -> None:
        self.state = ClusterState(effect_of)
        self.asked: Counter[str] = Counter()
        self.now_open: Counter[str] = Counter()
        self.most_open = 0
        self.fault: Exception | None = None
        self.service = CoordinatorService(
            self, self.state, is_leader=lambda: True, poke=lambda _: None
        )
        for at in range(hostile):
            self._add(f"bad-{at}", "tenant-b", f"10.1.{at // 250}.{at % 250}")
        self._add("well", "tenant-a", "10.0.0.9")

    def _add(self, name: str, namespace: str, address: str) -> None:
        pod = a_pod({"podIP": address})
        owner = {"kind": "TrainingJob", "name": name, "uid": f"uid-{name}", "controller": True}
        meta = pod["metadata"]
        assert isinstance(meta, dict)
        pod["metadata"] = {
            **meta,
            "name": f"{name}-lead",
            "namespace": namespace,
            "uid": f"uid-{name}-lead",
            "labels": {**meta["labels"], "ullage.dev/owner": name},
            "ownerReferences": [{"apiVersion": "ullage.dev/v1alpha1", **owner}],
        }
        self.state.upsert(streams.PODS, pod, 0.0)

    async def read(self, address: str) -> CoordinatorReport | None:
        self.asked[address] += 1
        if address == "10.0.0.9":
            return REPORT
        self.now_open["bad"] += 1
        self.most_open = max(self.most_open, self.now_open["bad"])
        await asyncio.sleep(2.0)
        self.now_open["bad"] -= 1
        raise self.fault or CoordinatorSilent("it does not answer")

    def told(self) -> CoordinatorReport | None:
        return self.state.freeze(0.0).leads.get("uid-well")


def looked_at(crowd: Crowd, seconds: float) -> float:
    """Run the service for a while; returns how long the first look took."""

    async def main() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await crowd.service.look()
        took_s = loop.time() - began
        running = asyncio.create_task(crowd.service.run())
        await asyncio.sleep(seconds)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return took_s

    return run_virtual(main())


def test_a_thousand_silent_leads_of_one_namespace_delay_no_other() -> None:
    crowd = Crowd(hostile=1000)
    assert looked_at(crowd, 60.0) <= COORDINATOR_ANSWER_S + 0.1
    assert crowd.told() == REPORT
    assert crowd.asked["10.0.0.9"] >= 10
    assert crowd.most_open == AT_ONCE_OF_A_NAMESPACE


def test_who_is_silent_is_asked_ever_less_often() -> None:
    crowd = Crowd(hostile=1)
    looked_at(crowd, 600.0)
    assert 8 <= crowd.asked["10.1.0.0"] <= 20
    assert crowd.asked["10.0.0.9"] >= 100


@pytest.mark.parametrize("fault", [RecursionError(), OverflowError("x"), KeyError("stage")])
def test_an_exception_over_one_answer_is_silence(fault: Exception) -> None:
    crowd = Crowd(hostile=3)
    crowd.fault = fault
    looked_at(crowd, 30.0)
    assert crowd.told() == REPORT
