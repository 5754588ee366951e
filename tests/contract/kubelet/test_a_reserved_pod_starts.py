# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A pod that was created for a reservation starts with its slices, over real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from fakes.kubelet import StartRefused
from fakes.kubelet_backend import FakeDevices, a_device
from fakes.kubelet_node import CONTAINER, NodeRig
from fakes.kubelet_state import KubeletPod

RESERVATION = "reservation-0123-4567"


@pytest_asyncio.fixture
async def rig() -> AsyncIterator[NodeRig]:
    async with NodeRig(FakeDevices(devices=[a_device(0), a_device(1)])) as made:
        await made.start_agent()
        yield made


async def a_reservation(rig: NodeRig) -> KubeletPod:
    """A pod that exists nowhere yet, with slices under the id of a reservation."""
    pod = rig.a_pod()
    planned = replace(pod, uid=RESERVATION)
    rig.place(planned, "gpu-1", 40)
    await rig.phase(planned, "Reserved")
    return pod


async def test_it_gets_the_slices_that_bear_its_reservation(rig: NodeRig) -> None:
    pod = await a_reservation(rig)
    rig.show_pod(pod, reservation=RESERVATION)
    await rig.kubelet.admit(pod)
    made = await rig.start(pod)
    assert (made.env["FAKE_GPUS"], made.env["FAKE_SHARES"]) == ("gpu-1", "40")
    assert made.env["ULLAGE_SLICE"] == f"{pod.uid}_{CONTAINER}"
    seen = await rig.phase(pod, "Attached")
    assert (seen.gpu, seen.percent, seen.epoch) == ("gpu-1", 40, rig.epoch)


async def test_kubelet_may_be_faster_than_our_watch(rig: NodeRig) -> None:
    pod = await a_reservation(rig)
    rig.api.faults.freeze_watches()
    rig.show_pod(pod, reservation=RESERVATION)
    await rig.kubelet.admit(pod)
    made = await rig.start(pod)
    assert made.env["FAKE_GPUS"] == "gpu-1"
    rig.api.faults.thaw_watches()
    await rig.phase(pod, "Attached")


async def test_a_pod_of_its_name_without_the_reservation_waits(rig: NodeRig) -> None:
    pod = await a_reservation(rig)
    rig.show_pod(pod)
    await rig.kubelet.admit(pod)
    with pytest.raises(StartRefused, match=r"^PlacementMissing: "):
        await rig.start(pod)
