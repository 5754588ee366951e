# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""From an event of the driver to ``GPUNode.status.faults``, through the whole agent."""

from __future__ import annotations

import asyncio

from fakes.kubelet_node import NodeRig
from ullage.api.faults import DeviceFault
from ullage.api.readers import objects
from ullage_node.model.devices import FaultEvent


def told(node: NodeRig) -> tuple[DeviceFault, ...]:
    return tuple(DeviceFault.from_wire(entry) for entry in objects(node.status(), "faults"))


def raise_xid(node: NodeRig, xid: int, gpu: str = "gpu-0") -> None:
    node.devices.told.append(FaultEvent(gpu=gpu, gpus=(gpu,), xid=xid))


async def test_a_fault_is_reported_at_once_with_the_pod_that_was_there() -> None:
    async with NodeRig() as node:
        await node.start_agent()
        pod = await node.placed_pod()
        await node.start(pod)
        raise_xid(node, 31)
        await node.until(lambda: told(node))
        (fault,) = told(node)
        assert (fault.gpu, fault.xid) == ("gpu-0", 31)
        assert [(one.pod_uid, one.namespace) for one in fault.suspects] == [(pod.uid, "team")]
        await node.until(lambda: node.events("DeviceFault"))
        (event,) = node.events("DeviceFault")
        assert event["involvedObject"]["uid"] == pod.uid
        assert event["message"] == "gpu-0: Xid 31 (memory page fault); this pod alone held it"


async def test_a_fault_outlives_the_agent_and_is_reported_once() -> None:
    async with NodeRig() as node:
        await node.start_agent()
        raise_xid(node, 31)
        await node.until(lambda: told(node))
        before = told(node)
        await node.kill_agent()
        await node.start_agent()
        raise_xid(node, 79)
        await node.until(lambda: len(told(node)) == 2)
        assert told(node)[0] == before[0]


async def test_a_flood_is_written_a_few_times_only() -> None:
    async with NodeRig() as node:
        agent = await node.start_agent()
        raise_xid(node, 31)
        await node.until(lambda: told(node))
        writes = -1
        while writes != agent.publisher.writes:  # a write counts once it is answered
            writes = agent.publisher.writes
            await asyncio.sleep(0.3)
        for _ in range(200):
            raise_xid(node, 13)
            raise_xid(node, 43)
        await node.until(lambda: agent.faults.counts["gpu-0", "43"] == 200)
        assert len(told(node)) == 1
        assert agent.publisher.writes == writes
