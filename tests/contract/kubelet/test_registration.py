# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Staying registered with kubelet whatever kubelet, a predecessor or another plugin does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc.aio
import pytest
import pytest_asyncio

from fakes.kubelet_node import CONTAINER, NodeRig
from ullage.api.devices import Health
from ullage_node.kubelet.plugin_server import DEVICE_PLUGIN
from ullage_node.kubelet.proto.deviceplugin.v1beta1 import api_pb2
from ullage_node.kubelet.registrar import REGISTRATION
from ullage_node.kubelet.services import serve_on, stub_of
from ullage_node.model.devices import DeviceReading


@pytest_asyncio.fixture
async def rig() -> AsyncIterator[NodeRig]:
    async with NodeRig() as made:
        yield made


async def test_all_slots_are_offered_and_the_node_says_ready(rig: NodeRig) -> None:
    await rig.start_agent()
    await rig.until(lambda: rig.condition("Ready").get("status") == "True")
    assert rig.status()["totals"] == {"devices": 1, "slots": 8, "usedSlots": 0}
    assert rig.condition("Degraded")["status"] == "False"
    assert rig.condition("LateBinding")["status"] == "True"


async def test_only_names_are_allocated(rig: NodeRig) -> None:
    await rig.start_agent()
    pod = rig.a_pod()
    await rig.kubelet.admit(pod)
    (slot,) = rig.kubelet.manager.allocated[pod.uid, CONTAINER]
    assert rig.kubelet.cdi_names[pod.uid, CONTAINER] == (f"ullage.dev/slot={slot}",)


async def test_kubelet_asks_before_each_start_and_never_which_slot(rig: NodeRig) -> None:
    await rig.start_agent()
    endpoint = rig.kubelet.endpoint
    assert endpoint is not None
    assert (endpoint.pre_start, endpoint.prefers) == (True, False)


async def test_registers_again_after_a_kubelet_restart(rig: NodeRig) -> None:
    await rig.start_agent()
    pod = await rig.placed_pod()
    await rig.start(pod)
    for _ in range(3):
        await rig.kubelet.restart()
        await rig.kubelet.allocatable(8)
    await rig.phase(pod, "Attached")
    rig.end_process(pod)
    await rig.start(pod)


async def test_waits_for_a_kubelet_that_is_not_there_yet(rig: NodeRig) -> None:
    await rig.kubelet.stop()
    await rig.launch()
    await rig.until(lambda: rig.condition("Ready").get("reason") == "KubeletAway")
    assert rig.agent is not None
    assert rig.agent.unready() != ""
    await rig.kubelet.start()
    await rig.kubelet.allocatable(8)
    await rig.until(lambda: rig.condition("Ready").get("status") == "True")
    assert rig.agent.unready() == ""


async def test_a_dying_predecessor_does_not_take_us_down(rig: NodeRig) -> None:
    old = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    forever = asyncio.Event()

    class Predecessor:
        async def GetDevicePluginOptions(self, request: object, context: object) -> object:
            return api_pb2.DevicePluginOptions(pre_start_required=True)

        async def ListAndWatch(self, request: object, context: object) -> AsyncIterator[object]:
            yield api_pb2.ListAndWatchResponse(devices=[api_pb2.Device(ID="x", health="Healthy")])
            await forever.wait()

    serve_on(old, DEVICE_PLUGIN, Predecessor())
    old.add_insecure_port(f"unix://{rig.kubelet.plugins / 'old.sock'}")
    await old.start()
    async with grpc.aio.insecure_channel(f"unix://{rig.kubelet.plugins / 'kubelet.sock'}") as to:
        await stub_of(REGISTRATION, to).Register(
            api_pb2.RegisterRequest(
                version="v1beta1", endpoint="old.sock", resource_name="ullage.dev/slot"
            )
        )
    await rig.start_agent()
    await rig.kubelet.allocatable(8)
    assert rig.agent is not None
    registrar = rig.agent.registrar
    assert registrar.registrations == 1
    await old.stop(None)  # its stream ends after we registered
    await rig.until(lambda: registrar.registrations == 2)
    await rig.kubelet.allocatable(8)


async def test_our_deleted_socket_comes_back(rig: NodeRig) -> None:
    agent = await rig.start_agent()
    agent.plugin.socket.unlink()
    await rig.until(lambda: agent.registrar.registrations == 2)
    await rig.kubelet.allocatable(8)


@pytest.mark.parametrize(
    "name", ["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb"]
)
async def test_nothing_is_offered_beside_another_gpu_plugin(rig: NodeRig, name: str) -> None:
    rig.kubelet.foreign_gpus, rig.kubelet.foreign_name = 2, name
    await rig.launch()
    await rig.until(lambda: rig.condition("Degraded").get("reason") == "ForeignPlugin")
    assert f"2 {name} on this node" in rig.condition("Degraded")["message"]
    assert rig.kubelet.offered == 0
    assert rig.agent is not None
    assert rig.agent.unready() == ""  # staying away is right
    rig.kubelet.foreign_gpus = 0
    await rig.kubelet.allocatable(8)
    await rig.until(lambda: rig.condition("Degraded").get("status") == "False")
    rig.kubelet.foreign_gpus = 1
    await rig.until(lambda: rig.kubelet.offered == 0)


async def test_other_cards_of_the_same_maker_are_no_gpus(rig: NodeRig) -> None:
    rig.kubelet.foreign_gpus, rig.kubelet.foreign_name = 2, "nvidia.com/hostdev"
    await rig.start_agent()
    assert rig.condition("Degraded").get("reason") != "ForeignPlugin"


async def test_sigterm_ends_the_stream_and_the_socket_before_anything_else(rig: NodeRig) -> None:
    agent = await rig.start_agent()
    socket = agent.plugin.socket
    await rig.stop_agent()
    assert not socket.exists()
    await rig.until(lambda: rig.kubelet.offered == 0)


async def test_a_missing_backend_is_said_and_waited_for(rig: NodeRig) -> None:
    rig.devices.unavailable = "emulated.json is missing"
    await rig.launch()
    await rig.until(lambda: rig.condition("Degraded").get("reason") == "DeviceConfigMissing")
    assert "emulated.json is missing" in rig.condition("Degraded")["message"]
    assert rig.kubelet.offered == 0
    rig.devices.unavailable = ""
    await rig.kubelet.allocatable(8)
    await rig.until(lambda: rig.condition("Ready").get("status") == "True")


async def test_a_bad_device_takes_free_slots_away_and_gives_them_back(rig: NodeRig) -> None:
    await rig.start_agent()
    pod = await rig.placed_pod()
    await rig.start(pod)
    await rig.phase(pod, "Attached")
    rig.devices.faults["gpu-0"] = DeviceReading(
        uuid="gpu-0", healthy=False, hard=True, message="Xid 79"
    )
    await rig.kubelet.allocatable(1)  # the one in use
    await rig.until(lambda: rig.status()["devices"][0]["health"] == Health.UNHEALTHY)
    await rig.until(lambda: rig.events("DeviceUnhealthy"))
    assert "Xid 79" in rig.events("DeviceUnhealthy")[0]["message"]
    await rig.phase(pod, "Attached")
    rig.devices.faults.clear()
    await rig.kubelet.allocatable(8)
    await rig.until(lambda: rig.events("DeviceRecovered"))


async def test_a_lost_device_fails_what_runs_on_it(rig: NodeRig) -> None:
    await rig.start_agent()
    pod = await rig.placed_pod()
    await rig.start(pod)
    waiting = await rig.placed_pod()
    from ullage.api.reasons import Reason

    rig.devices.faults["gpu-0"] = DeviceReading(
        uuid="gpu-0", healthy=False, hard=True, reason=Reason.DEVICE_LOST, message="gone"
    )
    assert (await rig.phase(pod, "Failed")).reason == "DeviceLost"
    assert (await rig.phase(waiting, "Refused")).reason == "DeviceLost"
    assert rig.condition("DeviceLost")["status"] == "True"


async def test_without_cdi_no_slot_is_offered(rig: NodeRig) -> None:
    from dataclasses import replace

    rig.settings = replace(rig.settings, late_binding=False)
    await rig.launch()
    await rig.until(lambda: rig.condition("LateBinding").get("status") == "False")
    assert rig.condition("LateBinding")["reason"] == "CDIUnavailable"
    assert rig.kubelet.offered == 0


@pytest.mark.parametrize("unreadable", [{"container": ""}, {"podUID": "../../etc"}])
async def test_a_slice_that_makes_no_sense_is_named_and_hides_no_other(
    rig: NodeRig, unreadable: dict[str, str]
) -> None:
    await rig.start_agent()
    good = rig.a_pod()
    part = rig.place(good, write=False)
    rig.write_spec(slices=[part.to_wire(), {**part.to_wire(), **unreadable}])
    await rig.phase(good, "Reserved")
    await rig.until(lambda: rig.condition("Degraded").get("reason") == "InvalidObject")
    assert "spec.slices[1]" in rig.condition("Degraded")["message"]
