# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A pod that is being deleted leaves its device through the server, before kubelet's SIGKILL."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.device_rigs import a_binding
from fakes.kubelet_backend import FakeDevices
from fakes.mps import ClientState, read_script
from fakes.mps_inline import on_rig
from fakes.mps_rig import MpsRig
from fakes.virtual_time import LoopClock, run_virtual
from ullage.api.devices import Backend
from ullage.api.slices import DesiredSlice, SliceKey
from ullage_node.model.devices import (
    Attachment,
    AttachState,
    ContainerBinding,
    DeviceBackend,
    ShareDriver,
)
from ullage_node.model.slices import NodeDevice, Pod
from ullage_node.slices.desired import read_pod
from ullage_node.slices.detach import Detacher
from ullage_node.slices.pods import PodCache
from ullage_node.slices.table import SliceTable

GRACE = 30
GPU = MpsRig.gpus[0]


def a_pod(uid: str, **more: object) -> Pod:
    pod = Pod(uid=uid, namespace="default", name="trainer", phase="Running")
    return replace(pod, **more)  # type: ignore[arg-type]


class Book:
    """A book with one bound container, the pods, and a detacher over them."""

    def __init__(self, driver: ShareDriver) -> None:
        self.table, self.pods = SliceTable(), PodCache()
        self.table.set_devices([NodeDevice(uuid=GPU, memory_mib=80_000, contexts=8)])
        self.seen: dict[object, Attachment] = {}
        self.detacher = Detacher(
            self.table,
            self.pods,
            driver,
            lambda: self.seen,  # type: ignore[arg-type,return-value]
        )

    def bind(self, binding: ContainerBinding) -> None:
        part = binding.slices[0]
        self.table.intake(
            1,
            [
                DesiredSlice(
                    key=SliceKey(pod_uid=binding.key.pod_uid, container="main"),
                    pod_namespace="default",
                    pod_name="trainer",
                    gpu=part.gpu,
                    percent=part.percent,
                    memory_mib=part.memory_mib,
                    epoch=1,
                )
            ],
        )
        self.table.bind(binding)

    def attached(self, binding: ContainerBinding, *pids: int) -> None:
        self.seen[binding.key] = Attachment(state=AttachState.ENFORCED, pids=pids)


async def seconds_until_detached(
    book: Book, devices: FakeDevices, most: float = 60
) -> float | None:
    begun = asyncio.get_running_loop().time()
    task = asyncio.create_task(book.detacher.run())
    try:
        while asyncio.get_running_loop().time() - begun < most:
            if devices.detached:
                return asyncio.get_running_loop().time() - begun
            await asyncio.sleep(0.1)
        return None
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def detaching(pod: Callable[[str], Pod], *pids: int, seen_alive: bool = False) -> float | None:
    async def live() -> float | None:
        devices, binding = FakeDevices(), a_binding(GPU, percent=40)
        book = Book(devices)
        book.bind(binding)
        book.attached(binding, *pids)
        if seen_alive:
            book.pods.replace([a_pod(binding.key.pod_uid)])
            book.detacher.run_once(now=asyncio.get_running_loop().time(), wall=time.time())
        book.pods.replace([pod(binding.key.pod_uid)])
        return await seconds_until_detached(book, devices)

    return run_virtual(live())


def later(seconds: float) -> float:
    return 4e9 + seconds


def test_a_program_has_most_of_its_grace_to_save_its_work() -> None:
    pod = lambda uid: a_pod(uid, deleting=True, grace_seconds=GRACE, deletes_at=later(0))  # noqa: E731
    found = detaching(pod, 7)
    assert found is not None
    assert 15 <= found <= GRACE - 11


def test_a_short_grace_is_shared_in_halves_and_none_means_now() -> None:
    short = detaching(
        lambda uid: a_pod(uid, deleting=True, grace_seconds=4, deletes_at=later(0)), 7
    )
    assert short is not None
    assert 2 <= short <= 3
    now = detaching(lambda uid: a_pod(uid, deleting=True, grace_seconds=0, deletes_at=later(0)), 7)
    assert now is not None
    assert now <= 1


def test_what_was_deleted_while_the_agent_was_away_is_detached_at_once() -> None:
    found = detaching(lambda uid: a_pod(uid, deleting=True, deletes_at=1.0), 7)
    assert found is not None
    assert found <= 1


def test_a_clock_that_jumped_ahead_takes_no_grace_away() -> None:
    an_hour_ago = time.time() - 3600
    pod = lambda uid: a_pod(uid, deleting=True, grace_seconds=GRACE, deletes_at=an_hour_ago)  # noqa: E731
    found = detaching(pod, 7, seen_alive=True)
    assert found is not None
    assert 15 <= found <= GRACE - 11


def test_a_clock_that_jumped_back_lets_no_one_stay_longer_than_the_grace() -> None:
    pod = lambda uid: a_pod(uid, deleting=True, grace_seconds=GRACE, deletes_at=later(0))  # noqa: E731
    found = detaching(pod, 7, seen_alive=True)
    assert found is not None
    assert found <= GRACE - 11


def test_a_deletion_that_was_heard_late_ends_in_time() -> None:
    found = detaching(
        lambda uid: a_pod(uid, deleting=True, grace_seconds=300, deletes_at=time.time() + 5),
        7,
        seen_alive=True,
    )
    assert found is not None
    assert found <= 1


@pytest.mark.parametrize(
    "change", [{"deleting": False}, {"deleting": True, "phase": "Succeeded"}], ids=str
)
def test_no_one_else_is_ever_touched(change: dict[str, object]) -> None:
    assert detaching(lambda uid: a_pod(uid, **change), 7) is None


def test_a_container_without_processes_needs_nothing() -> None:
    assert detaching(lambda uid: a_pod(uid, deleting=True)) is None


def test_the_end_of_the_grace_period_is_read_from_the_pod() -> None:
    pod = read_pod(
        {
            "metadata": {
                "uid": "u",
                "name": "n",
                "namespace": "s",
                "deletionTimestamp": "2026-01-02T03:04:35Z",
                "deletionGracePeriodSeconds": 45,
            }
        }
    )
    assert (pod.deleting, pod.deletes_at, pod.grace_seconds) == (True, 1767323075.0, 45)


# -- on the fake of MPS --------------------------------------------------------------------------


async def evict(rig: MpsRig, backend: DeviceBackend, *, processes: int) -> None:
    """One pod from its start to kubelet's SIGKILL, with work outstanding all the time."""
    book, binding = Book(backend.driver), a_binding(GPU, percent=40)
    env = dict((await backend.driver.prepare(binding)).env)
    pids = [rig.start_process(binding, env) for _ in range(processes)]
    clients = [rig.clients[pid] for pid in pids]
    for client in clients:
        client.busy = True
    book.bind(binding)
    book.seen = dict(await backend.driver.observe([binding]))
    assert book.seen[binding.key].state is AttachState.ENFORCED
    deadline = LoopClock().now() + GRACE
    book.pods.replace(
        [a_pod(binding.key.pod_uid, deleting=True, grace_seconds=GRACE, deletes_at=later(deadline))]
    )
    task = asyncio.create_task(book.detacher.run())
    await asyncio.sleep(GRACE)
    assert all(client.state is ClientState.TERMINATED for client in clients), "SIGKILL came first"
    rig.end_container(binding, clean=False)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert book.detacher.results == {"done": 1}
    await backend.driver.release(binding)


def a_rig(tmp_path: Path, kind: Backend, script: dict[str, object]) -> MpsRig:
    return MpsRig(tmp_path, kind, read_script({"protocols": [2, 3], **script}))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Backend.MPS2, Backend.MPS3])
def test_a_hundred_evictions_fault_no_server_and_kill_no_one_who_is_attached(
    scratch: Path, kind: Backend
) -> None:
    async def live(rig: MpsRig, backend: DeviceBackend) -> None:
        neighbour = a_binding(GPU, percent=20)
        env = dict((await backend.driver.prepare(neighbour)).env)
        kept = rig.clients[rig.start_process(neighbour, env)]
        for number in range(50):
            await evict(rig, backend, processes=1 + number % 3)
        server = (await rig.supervisor.look(None)).servers[GPU]
        assert (server.faults, server.restarts, kept.state) == (0, 0, ClientState.ATTACHED)

    on_rig(lambda: a_rig(scratch, kind, {"terminations": [{"seconds": 0.3}]}), live)


def test_a_client_that_cannot_be_terminated_closes_its_device_until_the_server_was_renewed(
    tmp_path: Path,
) -> None:
    async def live(rig: MpsRig, backend: DeviceBackend) -> None:
        binding = a_binding(GPU, percent=40)
        env = dict((await backend.driver.prepare(binding)).env)
        rig.start_process(binding, env)
        await backend.driver.observe([binding])
        failed = await backend.driver.detach(binding)
        assert "no answer in 10 s" in failed
        report = await rig.supervisor.look(None)
        assert report.servers[GPU].draining
        assert not report.servers[GPU].ready
        assert report.servers[MpsRig.gpus[1]].ready, "the other devices go on"
        rig.end_container(binding)
        for _ in range(20):
            await asyncio.sleep(1)
            await backend.probe.health()
        server = (await rig.supervisor.look(None)).servers[GPU]
        assert (server.ready, server.restarts) == (True, 1)

    on_rig(lambda: a_rig(tmp_path, Backend.MPS2, {"terminations": [{"hang": True}]}), live)
