# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever dies in between: the next agent knows what is there, and nothing is given twice."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator

import grpc
import pytest
import pytest_asyncio

from fakes.kubelet import StartRefused, Unregistered
from fakes.kubelet_backend import FakeDevices, a_device
from fakes.kubelet_node import CONTAINER, NodeRig
from fakes.kubelet_state import AdmissionFailed, KubeletPod


@pytest_asyncio.fixture
async def rig() -> AsyncIterator[NodeRig]:
    async with NodeRig(FakeDevices(devices=[a_device(0), a_device(1)])) as made:
        await made.start_agent()
        yield made


async def test_agent_restarted_between_allocate_and_start(rig: NodeRig) -> None:
    pod = await rig.placed_pod(percent=45)
    await rig.kill_agent()
    await rig.start_agent()
    assert (await rig.start(pod)).env["FAKE_SHARES"] == "45"


async def test_running_containers_are_known_again(rig: NodeRig) -> None:
    pods = [await rig.placed_pod(gpu) for gpu in ("gpu-0", "gpu-1", "gpu-0")]
    for pod in pods:
        await rig.start(pod)
    slots = {pod.uid: rig.kubelet.manager.allocated[pod.uid, CONTAINER] for pod in pods}
    await rig.kill_agent()
    agent = await rig.start_agent()
    for pod in pods:
        await rig.phase(pod, "Attached")
    assert {key.pod_uid: (slot,) for slot, key in agent.table.slots.items()} == slots


async def test_older_slices_stay_valid_after_a_leader_change_and_a_restart(rig: NodeRig) -> None:
    pod = await rig.placed_pod()
    rig.epoch += 1
    newer = rig.a_pod()
    rig.place(newer)
    await rig.phase(newer, "Reserved")
    await rig.kill_agent()
    await rig.start_agent()
    assert (await rig.phase(pod, "Reserved")).epoch == 1
    await rig.start(pod)


@pytest.mark.parametrize("damage", [b"", b"{", b'{"version": 1}', b"\x00" * 64])
async def test_a_damaged_checkpoint_is_set_aside_and_rebuilt(rig: NodeRig, damage: bytes) -> None:
    running, waiting = await rig.placed_pod(percent=60), await rig.placed_pod(percent=20)
    await rig.start(running)
    await rig.kill_agent()
    checkpoint = rig.settings.paths.checkpoint
    checkpoint.write_bytes(damage)
    await rig.start_agent()
    seen = await rig.phase(running, "Attached")
    assert (seen.percent, seen.gpu) == (60, "gpu-0")
    assert (await rig.start(waiting)).env["FAKE_SHARES"] == "20"
    assert checkpoint.with_name("state.json.corrupt").read_bytes() == damage
    await rig.until(lambda: rig.events("CheckpointRebuilt"))
    assert json.loads(checkpoint.read_bytes())["epoch"] == rig.epoch


async def test_a_changed_byte_is_noticed(rig: NodeRig) -> None:
    pod = await rig.placed_pod(percent=60)
    await rig.start(pod)
    await rig.kill_agent()
    checkpoint = rig.settings.paths.checkpoint
    checkpoint.write_bytes(checkpoint.read_bytes().replace(b'"percent": 60', b'"percent": 90'))
    await rig.start_agent()
    assert (await rig.phase(pod, "Attached")).percent == 60


async def test_after_a_reboot_nothing_counts_as_running(rig: NodeRig) -> None:
    pod = await rig.placed_pod()
    await rig.start(pod)
    await rig.phase(pod, "Attached")
    await rig.kill_agent()
    rig.end_process(pod)
    rig.boot("boot-2")
    for file in rig.runtime.cdi_dir.iterdir():
        file.unlink()  # /run is gone
    agent = await rig.start_agent()
    await rig.phase(pod, "Reserved")
    assert not agent.table.slots
    await rig.start(pod)
    await rig.phase(pod, "Attached")


async def test_a_pod_deleted_while_the_agent_was_away_frees_its_slot(rig: NodeRig) -> None:
    pod = await rig.placed_pod()
    await rig.start(pod)
    await rig.phase(pod, "Attached")
    await rig.kill_agent()
    rig.remove_pod(pod)
    rig.unplace(pod)
    agent = await rig.start_agent()
    await rig.until(lambda: rig.slice_of(pod) is None)
    assert not agent.table.held
    assert list(rig.runtime.cdi_dir.iterdir()) == []


async def test_a_file_without_owner_goes_at_start(rig: NodeRig) -> None:
    await rig.kill_agent()
    rig.runtime.cdi_dir.mkdir(exist_ok=True)
    stale = rig.runtime.cdi_dir / "ullage.dev-slot-05.json"
    stale.write_text("{}")
    foreign = rig.runtime.cdi_dir / "nvidia.com-gpu.json"
    foreign.write_text("{}")
    await rig.start_agent()
    await rig.until(lambda: not stale.exists())
    assert foreign.exists()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_random_restarts_leak_and_double_nothing(seed: int) -> None:
    rng = random.Random(seed)
    async with NodeRig(FakeDevices(devices=[a_device(0), a_device(1)]), seed) as rig:
        await rig.start_agent()
        pods: list[KubeletPod] = []
        for _ in range(75):
            await _one_event(rig, rng, pods)
        assert rig.kubelet.calls.count("Allocate") >= 5, "next to no pod came"
        await rig.kubelet.allocatable(16)
        for pod in pods:
            await rig.phase(pod, "Attached")
        agent = rig.agent
        assert agent is not None
        assert agent.table.violations() == []
        held = {slot: key.pod_uid for slot, key in agent.table.slots.items()}
        truth = {rig.kubelet.manager.allocated[pod.uid, CONTAINER][0]: pod.uid for pod in pods}
        await rig.until(lambda: len(agent.table.slots) == len(truth))
        held = {slot: key.pod_uid for slot, key in agent.table.slots.items()}
        assert held == truth
        await rig.until(lambda: len(list(rig.runtime.cdi_dir.iterdir())) == len(truth))


async def _one_event(rig: NodeRig, rng: random.Random, pods: list[KubeletPod]) -> None:
    event = rng.choice(["pod", "pod", "end", "agent", "kubelet", "container"])
    if event == "agent":
        await rig.kill_agent()
        await rig.launch()
    elif event == "kubelet":
        await rig.kubelet.restart()
    elif event == "pod" and len(pods) < 10:
        await rig.kubelet.allocatable(16)
        await rig.until(lambda: _roomy(rig))
        await _one_pod(rig, rng.choice(_roomy(rig)), pods)
    elif event == "end" and pods:
        pod = pods.pop(rng.randrange(len(pods)))
        if rng.random() < 0.5:
            rig.finish(pod)
        rig.remove_pod(pod)
        rig.unplace(pod)
    elif event == "container" and pods:
        pod = rng.choice(pods)
        rig.end_process(pod)
        await _start(rig, pod)


async def _one_pod(rig: NodeRig, gpu: str, pods: list[KubeletPod]) -> None:
    """A pod that runs; one that comes while the plugin registers again, kubelet fails for good."""
    pod = rig.a_pod()
    rig.place(pod, gpu, memory_mib=512)
    await rig.phase(pod, "Reserved")
    rig.show_pod(pod)
    try:
        await rig.kubelet.admit(pod)
    except (AdmissionFailed, Unregistered, grpc.aio.AioRpcError):
        rig.remove_pod(pod)
        rig.unplace(pod)
        return
    await _start(rig, pod)
    pods.append(pod)


def _roomy(rig: NodeRig) -> list[str]:
    """Devices with room: a slice holds its place until it stands neither in spec nor in status."""
    taken = Counter(part["gpu"] for part in rig.status().get("slices") or [])
    return [gpu for gpu in ("gpu-0", "gpu-1") if taken[gpu] < 8]


async def _start(rig: NodeRig, pod: KubeletPod) -> None:
    """Kubelet's back-off, in small: ask again until the container starts."""
    async with asyncio.timeout(20):
        while True:
            try:
                made = await rig.start(pod)
            except (StartRefused, Unregistered):
                await asyncio.sleep(0.02)
                continue
            assert made.env["ULLAGE_SLICE"] == f"{pod.uid}_{CONTAINER}"
            return
