# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""An agent reads containers that do nothing less often, until one of them may do something."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from fakes.kubelet_node import CONTAINER, NodeRig
from fakes.kubelet_state import KubeletPod
from ullage_node.containers import Containers
from ullage_node.model.devices import ContainerKey, StepProgress


@pytest_asyncio.fixture
async def rig() -> AsyncIterator[NodeRig]:
    async with NodeRig() as made:
        await made.start_agent()
        yield made


def containers(rig: NodeRig) -> Containers:
    assert rig.agent is not None
    return rig.agent.containers


async def still(rig: NodeRig) -> KubeletPod:
    """A container that runs and has done nothing for a while."""
    pod = await rig.placed_pod()
    await rig.start(pod)
    await rig.phase(pod, "Attached")
    await rig.until(lambda: containers(rig).rest_periods)
    return pod


async def test_steps_end_the_rest(rig: NodeRig) -> None:
    pod = await still(rig)
    key = ContainerKey(pod_uid=pod.uid, container=CONTAINER)
    rig.devices.progress[key] = StepProgress(steps=1, busy_ns=10**6)
    await rig.until(lambda: not containers(rig).rest_periods)
    await rig.until(lambda: containers(rig).rest_periods)


async def test_a_container_that_starts_ends_the_rest_at_once(rig: NodeRig) -> None:
    await still(rig)
    second = await rig.placed_pod()
    containers(rig).stirred.clear()
    await rig.kubelet.start_container(second, CONTAINER)
    assert not containers(rig).rest_periods
    rig.run_process(second)
    await rig.phase(second, "Attached")


async def test_a_container_that_ends_is_noticed(rig: NodeRig) -> None:
    pod = await still(rig)
    rig.remove_pod(pod)
    rig.unplace(pod)
    await rig.until(lambda: rig.slice_of(pod) is None)
