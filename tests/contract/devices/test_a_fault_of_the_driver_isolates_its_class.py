# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""From an event of the driver to the decision: probe, agent's book, status, operator's cycle."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from builders import (
    NOW,
    Part,
    WorkloadBuilder,
    a_device,
    a_gpu_node,
    a_job,
    a_policy,
    a_profile,
    a_slice,
    reported,
)
from fakes.deciding import Decided, decided
from fakes.host_reader import HostReader
from fakes.nvml import FakeGpu, FakeMig, FakeNvml, PatientNvml, patient_devices
from ullage.api.faults import DeviceFault
from ullage.api.slices import DesiredSlice, SlicePhase
from ullage.cluster.projection.workload_class import profile_name
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.scheduling.model.plan import SetProfile
from ullage_node.devices.nvidia.known import MpsShares
from ullage_node.devices.nvidia.probe import NvidiaProbe
from ullage_node.devices.nvidia.read import EVENTS_PER_READING_MAX
from ullage_node.faults import FaultBook
from ullage_node.model.slices import HeldSlice

GPU = "GPU-node-1-0"


class Node:
    """A GPU whose driver the test speaks for, and what the agent makes of it."""

    def __init__(self, gpu: FakeGpu | None = None) -> None:
        self.gpu = gpu or FakeGpu(uuid=GPU, minor=0)
        self.nvml = FakeNvml(self.gpu)
        self.now = 100.0
        devices = patient_devices(self.nvml, MpsShares(None), HostReader(PatientNvml(self.nvml)))
        self.probe = NvidiaProbe(devices, clock=lambda: self.now)
        self.book = FaultBook()

    async def open(self) -> Node:
        await self.probe.start()
        await self.probe.discover()
        return self

    def see(self, held: Iterable[DesiredSlice]) -> None:
        """Who is there now."""
        self.now += 1.0
        parts = [HeldSlice(desired=one, phase=SlicePhase.ATTACHED) for one in held]
        self.book.see(parts, self.now)

    async def look(self) -> tuple[DeviceFault, ...]:
        """One round of the agent: the faults as the operator reads them."""
        self.now += 1.0
        self.healthy = [reading.healthy for reading in await self.probe.health()]
        self.book.take(self.probe.take_faults(), NOW)
        return tuple(DeviceFault.from_wire(one.to_wire()) for one in self.book.faults)


def job(name: str, workload_class: str, namespace: str = "default") -> WorkloadBuilder:
    made = a_job(name, namespace).fractional(30).with_(workload_class=workload_class)
    return made.status(phase="Running")


def running(workload: WorkloadBuilder) -> tuple[PodRecord, DesiredSlice]:
    (pod,) = workload.pods(stage=PodStage.RUNNING, node="node-1")
    kind = workload.build().workload_class
    held = a_slice(pod, percent=30)
    return pod, replace(held, workload_class=kind, pod_namespace=workload.build().ref.namespace)


def node_with(held: Iterable[DesiredSlice], faults: tuple[DeviceFault, ...]) -> GPUNodeRecord:
    parts = list(held)
    node = a_gpu_node(
        devices=[replace(a_device(), uuid=GPU)],
        desired=parts,
        observed=[reported(one, SlicePhase.ATTACHED) for one in parts],
    )
    return replace(node, faults=faults)


def after(faults: tuple[DeviceFault, ...], *parts: Part) -> Decided:
    """What is decided with a waiting job of class ``bad``, and the profile of that class."""
    newcomer = a_job("again").fractional(30).with_(workload_class="bad")
    profile = a_profile(profile_name("bad"), workload_class="bad")
    profile = replace(profile, uid="uid-profile")
    return decided(profile, newcomer, *newcomer.pods(), a_policy(), *parts)


@pytest.mark.parametrize("xid", [13, 31, 43])
async def test_a_program_alone_on_a_device_is_charged_and_the_device_goes_on(xid: int) -> None:
    node, bad, good = await Node().open(), job("bad", "bad"), job("good", "good")
    (_, bad_slice), (good_pod, good_slice) = running(bad), running(good)
    node.see([bad_slice])
    node.nvml.raise_xid(node.gpu, xid)
    faults = await node.look()
    assert node.healthy == [True]
    node.see([good_slice])
    found = after(faults, node_with([good_slice], faults), good, good_pod)
    assert {one.pod_name for _, one in found.slices()} == {"good-0"}
    assert found.one(SetProfile).status.faults == 1


@pytest.mark.parametrize("xid", [45, 63, 64, 74, 79, 94, 95, 109, 140])
async def test_other_faults_charge_no_one(xid: int) -> None:
    node, bad = await Node().open(), job("bad", "bad")
    bad_pod, bad_slice = running(bad)
    node.see([bad_slice])
    node.nvml.raise_xid(node.gpu, xid)
    faults = await node.look()
    assert node.healthy == [xid in (45, 94, 109)]
    assert [fault.xid for fault in faults] == [xid]
    found = after(faults, node_with([bad_slice], faults), bad, bad_pod)
    assert not found.all(SetProfile)


async def test_beside_another_namespace_a_flood_charges_no_one() -> None:
    """A tenant that faults a device on purpose drags no one with it."""
    node, bad = await Node().open(), job("bad", "bad", "attacker")
    victim = job("good", "good")
    (_, bad_slice), (good_pod, good_slice) = running(bad), running(victim)
    node.see([bad_slice, good_slice])
    for _ in range(3 * EVENTS_PER_READING_MAX):
        node.nvml.raise_xid(node.gpu, 31)
    first = await node.look()
    node.see([good_slice])  # the attacker leaves while its events are still read
    for _ in range(4):
        faults = await node.look()
    assert faults == first
    assert len(faults[0].suspects) == 2
    found = after(faults, node_with([good_slice], faults), victim, good_pod)
    assert {one.pod_name for _, one in found.slices()} == {"good-0", "again-0"}
    assert not found.all(SetProfile)


async def test_who_comes_after_the_culprit_is_not_charged_for_it() -> None:
    node, bad, victim = await Node().open(), job("bad", "bad"), job("good", "good")
    (_, bad_slice), (_, good_slice) = running(bad), running(victim)
    node.see([bad_slice])
    await node.look()
    node.nvml.raise_xid(node.gpu, 31)
    node.see([])  # its container ended before the event was read
    node.see([good_slice])
    (fault,) = await node.look()
    assert {one.workload_class for one in fault.suspects} == {"bad", "good"}
    await node.look()
    node.nvml.raise_xid(node.gpu, 31)
    *_, own = await node.look()
    assert {one.workload_class for one in own.suspects} == {"good"}


async def test_a_fault_of_a_part_of_a_gpu_is_about_that_part_alone() -> None:
    gpu = FakeGpu(uuid="GPU-a", minor=0)
    first, second = (FakeMig.of(gpu, number, "3g.40gb", 40_960) for number in (1, 2))
    node = await Node(gpu).open()
    bad, good = job("bad", "bad"), job("good", "good")
    (_, bad_slice), (_, good_slice) = running(bad), running(good)
    node.see([replace(bad_slice, gpu=first.uuid), replace(good_slice, gpu=second.uuid)])
    node.nvml.raise_xid(first, 31)
    (fault,) = await node.look()
    assert (fault.gpu, [one.workload_class for one in fault.suspects]) == (first.uuid, ["bad"])
    node.nvml.raise_xid(gpu, 31)
    _, whole = await node.look()
    assert whole.gpu == "GPU-a"
    assert {one.workload_class for one in whole.suspects} == {"bad", "good"}
