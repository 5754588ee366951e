# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The agent and an API server that restarts, forgets, refuses and rotates tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from fakes.kubelet_node import NODE, NodeRig
from ullage.ports import GPU_NODE, POD
from ullage.process import supervised
from ullage_node.api_client import ApiClient
from ullage_node.model.devices import ContainerKey, StepProgress


@pytest_asyncio.fixture
async def rig() -> AsyncIterator[NodeRig]:
    async with NodeRig() as made:
        await made.start_agent()
        yield made


async def test_decisions_arrive_after_a_restart_that_forgot_history(rig: NodeRig) -> None:
    await rig.api.restart()
    await rig.phase_of_new()


@pytest.mark.slow
async def test_decisions_arrive_after_watches_expired(rig: NodeRig) -> None:
    for _ in range(3):
        rig.api.expire_watches()
        await rig.phase_of_new()


async def test_what_vanished_while_no_one_watched_is_noticed(rig: NodeRig) -> None:
    pod = await rig.placed_pod()
    assert rig.agent is not None
    await rig.until(lambda: pod.uid in rig.agent.pods.by_uid)
    rig.api.faults.freeze_watches()
    rig.remove_pod(pod)
    rig.api.compact()
    rig.api.faults.thaw_watches()
    rig.api.cut_watches()
    await rig.until(lambda: pod.uid not in rig.agent.pods.by_uid)


@pytest.mark.slow
async def test_a_rotated_token_is_read_again(rig: NodeRig) -> None:
    rig.api.access.tokens["secret"] = "node-a"
    await rig.phase_of_new()
    rig.settings.api.token_file.write_text("fresh")
    rig.api.access.rotate("secret", "fresh")
    rig.api.cut_watches()
    await rig.phase_of_new()


@pytest.mark.slow
async def test_a_status_that_was_refused_is_written_when_it_is_taken(rig: NodeRig) -> None:
    rig.api.fail(503, verb="apply", plural="gpunodes", times=2)
    await rig.phase_of_new()


async def test_a_node_object_that_was_deleted_and_made_again_is_reported_in_full(
    rig: NodeRig,
) -> None:
    await rig.until(lambda: rig.condition("Ready").get("status") == "True")
    rig.api.remove(GPU_NODE, NODE)
    assert rig.agent is not None
    await rig.until(lambda: rig.agent.node.spec is None)
    rig.write_spec()
    await rig.until(lambda: rig.status().get("devices"))
    await rig.phase_of_new()


async def test_until_the_object_exists_nothing_is_reserved_and_nothing_fails(
    rig: NodeRig,
) -> None:
    await rig.stop_agent()
    rig.api.remove(GPU_NODE, NODE)
    await rig.start_agent()
    assert rig.agent is not None
    assert rig.agent.unready() == ""
    rig.write_spec()
    await rig.phase_of_new()


@pytest.mark.slow
async def test_nothing_is_written_in_steady_state(rig: NodeRig) -> None:
    pod = await rig.placed_pod()
    await rig.start(pod)
    await rig.phase(pod, "Attached")
    await asyncio.sleep(0.3)
    before = rig.api.write_count()
    reads = len(rig.api.requests)
    await asyncio.sleep(0.9)  # 18 observations, 18 probes, 4 reconciliations
    assert rig.api.write_count() == before
    assert len(rig.api.requests) == reads


async def test_a_heartbeat_carries_the_counters(rig: NodeRig) -> None:
    await rig.stop_agent()
    periods = replace(rig.settings.periods, heartbeat_seconds=0.3)
    rig.settings = replace(rig.settings, periods=periods)
    await rig.start_agent()
    pod = await rig.placed_pod()
    await rig.start(pod)
    rig.devices.progress[ContainerKey(pod_uid=pod.uid, container="main")] = StepProgress(steps=42)
    await rig.until(lambda: (seen := rig.slice_of(pod)) and seen.steps == 42)


async def test_the_last_figures_are_said_before_a_container_is_forgotten(
    rig: NodeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[int] = []
    apply = ApiClient.apply_status

    async def record(self: ApiClient, name: str, body: Mapping[str, Any]) -> None:
        said.extend(part.get("steps", 0) for part in body["status"]["slices"])
        await apply(self, name, body)

    monkeypatch.setattr(ApiClient, "apply_status", record)
    pod = await rig.placed_pod()
    await rig.start(pod)
    await rig.phase(pod, "Attached")
    rig.devices.progress[ContainerKey(pod_uid=pod.uid, container="main")] = StepProgress(steps=1000)
    rig.finish(pod)
    await rig.until(lambda: rig.slice_of(pod) is None)
    assert said[-1] == 1000


async def test_only_its_own_pods_and_node_are_asked_for(rig: NodeRig) -> None:
    rig.api.put(
        POD,
        {
            "metadata": {"name": "foreign", "namespace": "team", "uid": "uid-foreign"},
            "spec": {"nodeName": "node-b", "containers": [{"name": "main"}]},
            "status": {"phase": "Running"},
        },
    )
    await rig.phase_of_new()
    assert rig.agent is not None
    assert "uid-foreign" not in rig.agent.pods.by_uid


@pytest.mark.slow
async def test_a_fault_in_any_part_ends_no_other_and_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervised, "TASK_RETRY_FIRST_S", 0.01)
    async with NodeRig() as node:
        agent = await node.start_agent()
        pod = await node.placed_pod()
        await node.start(pod)
        await node.phase(pod, "Attached")
        with monkeypatch.context() as broken:
            for part, method in (
                (agent.containers, "observe"),
                (type(agent.guard), "look"),
                (agent.reporter, "status"),
                (agent.watch, "run_once"),
                (agent.reconciler, "run_once"),
            ):
                broken.setattr(part, method, failing)
            broken.setattr(agent.publisher, "_compose", failing)
            agent.publisher.poke()
            expected = {"observe", "guard", "devices", "reconcile", "publish"}
            await node.until(lambda: expected <= agent.tasks.failures.keys())
        late = await node.placed_pod()
        await node.start(late)
        await node.phase(late, "Attached")


def failing(*_: object, **__: object) -> None:
    raise RecursionError("a fault of ours")


@pytest.mark.slow
@pytest.mark.parametrize("size", ["²", "9" * 5000, "8:" + "9" * 5000, "auto", "-1"])
async def test_a_pod_with_a_wild_world_size_stops_nothing(size: str) -> None:
    async with NodeRig() as node:
        await node.start_agent()
        tenant = await node.placed_pod()
        raw = node.api.get(POD, tenant.name, tenant.namespace)
        assert raw is not None
        raw["spec"]["containers"][0]["env"] = [{"name": "WORLD_SIZE", "value": size}]
        node.api.put(POD, raw)
        other = await node.placed_pod()
        await node.start(other)
        await node.phase(other, "Attached")
        await node.start(tenant)
        await node.phase(tenant, "Attached")
