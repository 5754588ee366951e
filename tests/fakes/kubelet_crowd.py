# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Many pods living at once on one node, without sockets: every message may overtake every other.

Users, operator, kubelet and API server run as coroutines on one event loop; a seeded generator
decides how long each message is under way. The agent's own service, binder, book and reconciler do
the work; an oracle that knows the truth looks at what each container would really get.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import grpc

from fakes.kubelet_backend import FakeDevices, a_device
from fakes.kubelet_runtime import FakeRuntime, UnresolvableDevice
from fakes.kubelet_state import AdmissionFailed, DeviceManager, KubeletPod
from ullage.api.slices import DesiredSlice, SliceKey
from ullage_node.kubelet.plugin_server import DevicePluginService, StartDenied
from ullage_node.kubelet.pod_resources import Listing, SlotOwner
from ullage_node.kubelet.proto.deviceplugin.v1beta1 import api_pb2
from ullage_node.kubelet.slot_board import SlotBoard
from ullage_node.model.devices import ContainerKey
from ullage_node.model.slices import NodeDevice, Pod
from ullage_node.slices.binder import Binder, BinderDependencies, PodUnreachable, StartRefused
from ullage_node.slices.cdi import CDIDirectory, device_name
from ullage_node.slices.library import Library
from ullage_node.slices.pods import PodCache
from ullage_node.slices.reconcile import Reconciler
from ullage_node.slices.steps import StepRecords
from ullage_node.slices.table import SliceTable

NODE = "node-a"
CONTAINER = "main"
GPUS = 8
SHARERS = 8
MEMORY_MIB = 512


class Aborted(Exception):
    """The call failed with a status, as kubelet sees it."""


class Context:
    """As much of a gRPC context as the service uses."""

    async def abort(self, code: grpc.StatusCode, text: str) -> NoReturn:
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        raise Aborted(text)


@dataclass(slots=True)
class Tally:
    """What happened."""

    calls: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Crowd:
    """The node and its crowd."""

    def __init__(self, root: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.tally = Tally()
        self.manager = DeviceManager(self.rng)
        self.manager.healthy = {f"slot-{number:02d}" for number in range(GPUS * SHARERS)}
        self.truth: dict[tuple[str, str], Pod] = {}
        self.spec: dict[SliceKey, DesiredSlice] = {}
        self.epoch = 1
        self.devices = FakeDevices(devices=[a_device(number) for number in range(GPUS)])
        self.runtime = FakeRuntime(root / "cdi")
        self.table, self.pods = SliceTable(), PodCache()
        self.pods.replace([])
        self.table.set_devices(
            NodeDevice(uuid=f"gpu-{number}", memory_mib=16_384, contexts=SHARERS)
            for number in range(GPUS)
        )
        self.surroundings = BinderDependencies(
            node=NODE,
            table=self.table,
            pods=self.pods,
            lister=self,
            reader=self,
            driver=self.devices,
            cdi=CDIDirectory(self.runtime.cdi_dir),
            steps=StepRecords(root / "steps"),
            library=Library(root / "state"),
            save=self.linger,
            lane_folder=lambda _, slot: root / "lanes" / slot,
        )
        self.binder = Binder(self.surroundings)
        self.reconciler = Reconciler(self.surroundings, self.binder)
        self.service = DevicePluginService(SlotBoard(), self._start, device_name)
        self._pod_watch: asyncio.Queue[Callable[[], None]] = asyncio.Queue()
        self._spec_watch: asyncio.Queue[Callable[[], None]] = asyncio.Queue()
        self._uids = itertools.count()
        self._busy_names: set[str] = set()
        self._last_user: dict[str, ContainerKey] = {}
        self._late: set[asyncio.Task[None]] = set()

    # -- what the agent asks ---------------------------------------------------------------------

    async def linger(self) -> None:
        """A message is under way."""
        await self._under_way(4)

    async def _under_way(self, most: int) -> None:
        for _ in range(self.rng.randrange(most)):
            await asyncio.sleep(0)

    async def list_slots(self, timeout_seconds: float) -> Listing:
        await self.linger()
        owners: dict[str, set[SlotOwner]] = {}
        for pod, container, ids in self.manager.holdings():
            owner = SlotOwner(namespace=pod.namespace, pod=pod.name, container=container)
            for slot in ids:
                owners.setdefault(slot, set()).add(owner)
        answer = Listing(owners={slot: frozenset(found) for slot, found in owners.items()})
        await self.linger()
        return answer

    async def get_pod(self, namespace: str, name: str, timeout_seconds: float) -> Pod | None:
        await self.linger()
        if self.rng.random() < 0.05:
            raise PodUnreachable("no answer")
        answer = self.truth.get((namespace, name))
        await self.linger()
        return answer

    async def _start(self, slots: Any) -> None:
        try:
            await self.binder.start_container(slots)
        except StartRefused as refused:
            self.tally.refusals[refused.refusal.reason.value] += 1
            raise StartDenied(refused.refusal.text) from refused

    @property
    def asked(self) -> int:
        """Calls of kubelet so far."""
        return self.tally.calls["Allocate"] + self.tally.calls["PreStartContainer"]

    # -- the crowd -------------------------------------------------------------------------------

    async def run(self, calls: int, at_once: int) -> None:
        """Live until so many Allocate and PreStartContainer calls were made."""
        work = (
            self._deliver(self._pod_watch),
            self._deliver(self._spec_watch),
            self._reconcile(),
        )
        background = [asyncio.create_task(each) for each in work]
        lives = [asyncio.create_task(self._keep_living(calls)) for _ in range(at_once)]
        await asyncio.gather(*lives)
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)

    async def _deliver(self, stream: asyncio.Queue[Callable[[], None]]) -> None:
        """One of the agent's watches: in order, late, and apart from the other."""
        while True:
            event = await stream.get()
            try:
                await self._under_way(30)
            finally:
                event()
            for _ in range(self.rng.randint(0, stream.qsize())):
                stream.get_nowait()()

    async def _reconcile(self) -> None:
        while True:
            await self.linger()
            await self.reconciler.run_once()
            assert self.table.violations() == []
            await asyncio.sleep(0.002)

    async def _keep_living(self, calls: int) -> None:
        while self.asked < calls:
            # Few names: one that has just become free is taken again at once.
            name = next(name for name in map(str, itertools.count()) if self._is_free(name))
            self._busy_names.add(name)
            try:
                await self._live(f"pod-{name}")
            finally:
                self._busy_names.discard(name)
            await self.linger()

    def _is_free(self, name: str) -> bool:
        return name not in self._busy_names

    async def _live(self, name: str) -> None:
        pod = KubeletPod(
            uid=f"uid-{next(self._uids)}",
            namespace="team",
            name=name,
            containers={CONTAINER: 1},
        )
        wanted = self._decide(pod)
        if wanted is None or not await self._comes_true(lambda: self._reserved(wanted)):
            self._withdraw(pod)
            return
        self._show(pod)
        await self.linger()
        try:
            given = self.manager.admit(pod)[CONTAINER]
        except AdmissionFailed:
            pass
        else:
            names = await self._allocate(given)
            for _ in range(self.rng.randint(1, 4)):
                await self._run_once(pod, wanted, given, names)
        await self._leave(pod)

    def _decide(self, pod: KubeletPod) -> DesiredSlice | None:
        """The operator: a device that has room in spec and in status."""
        known = {part.key: part.gpu for part in self.spec.values()}
        known |= {part.desired.key: part.desired.gpu for part in self.table.held}
        taken = Counter(known.values())
        roomy = [gpu for gpu in (f"gpu-{n}" for n in range(GPUS)) if taken[gpu] < SHARERS]
        if not roomy:
            return None
        if self.rng.random() < 0.01:
            self.epoch += 1
        wanted = DesiredSlice(
            key=SliceKey(pod_uid=pod.uid, container=CONTAINER),
            pod_namespace=pod.namespace,
            pod_name=pod.name,
            gpu=self.rng.choice(roomy),
            percent=self.rng.randint(5, 100),
            memory_mib=MEMORY_MIB,
            epoch=self.epoch,
        )
        self.spec[wanted.key] = wanted
        self._write_spec()
        return wanted

    def _write_spec(self) -> None:
        epoch, slices = self.epoch, tuple(self.spec.values())
        self._spec_watch.put_nowait(lambda: self._take_in(epoch, slices))

    def _take_in(self, epoch: int, slices: tuple[DesiredSlice, ...]) -> None:
        before = self.table.epoch
        self.table.intake(epoch, slices)
        assert self.table.epoch >= before

    def _reserved(self, wanted: DesiredSlice) -> bool:
        held = self.table.held_for(ContainerKey(pod_uid=wanted.key.pod_uid, container=CONTAINER))
        return bool(held) and held[0].phase == "Reserved"

    async def _comes_true(self, fact: Callable[[], bool]) -> bool:
        for _ in range(100):
            if fact():
                return True
            await self.linger()
        return False

    async def _allocate(self, given: tuple[str, ...]) -> list[str]:
        self.tally.calls["Allocate"] += 1
        request = api_pb2.AllocateRequest(
            container_requests=[api_pb2.ContainerAllocateRequest(devices_ids=given)]
        )
        answer = await self.service.Allocate(request, Context())
        return [device.name for device in answer.container_responses[0].cdi_devices]

    async def _run_once(
        self, pod: KubeletPod, wanted: DesiredSlice, given: tuple[str, ...], names: list[str]
    ) -> None:
        """One start with kubelet's retries, some life, and the end of the process."""
        request = api_pb2.PreStartContainerRequest(devices_ids=given)
        for _ in range(12):
            self.tally.calls["PreStartContainer"] += 1
            try:
                await self.service.PreStartContainer(request, Context())  # type: ignore[arg-type]
            except Aborted:
                await self._under_way(60)
                continue
            key = ContainerKey(pod_uid=pod.uid, container=CONTAINER)
            self._judge_slots(key, given)
            await self._under_way(20)  # the runtime prepares the root file system
            self._judge_edits(pod, wanted, names)
            self.devices.pids[key] = (1,)
            await self.linger()
            self._end_later(key)
            return

    def _judge_slots(self, key: ContainerKey, given: tuple[str, ...]) -> None:
        """No one else's process may still live on the slots, whoever its pod was."""
        for slot in given:
            before = self._last_user.get(slot, key)
            if before != key and self.devices.pids.get(before):
                self.tally.wrong.append(f"{slot} given on while {before.directory} lives")
            self._last_user[slot] = key

    def _judge_edits(self, pod: KubeletPod, wanted: DesiredSlice, names: list[str]) -> None:
        """What the container really gets, the moment the runtime creates it."""
        self.tally.calls["Started"] += 1
        expected = (f"{pod.uid}_{CONTAINER}", wanted.gpu, str(wanted.percent))
        try:
            env = self.runtime.create(names).env
        except UnresolvableDevice as error:
            self.tally.wrong.append(f"{pod.uid}: {error}")
            return
        got = (env["ULLAGE_SLICE"], env["FAKE_GPUS"], env["FAKE_SHARES"])
        if got != expected:
            self.tally.wrong.append(f"{expected} got {got}")

    def _end_later(self, key: ContainerKey) -> None:
        """The process ends a little later, maybe after its pod."""

        async def late() -> None:
            await self._under_way(60)
            self.devices.pids.pop(key, None)

        task = asyncio.create_task(late())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    def _show(self, pod: KubeletPod) -> None:
        shown = Pod(uid=pod.uid, namespace=pod.namespace, name=pod.name, phase=pod.phase, node=NODE)
        self.truth[pod.namespace, pod.name] = shown
        self._pod_watch.put_nowait(lambda: self.pods.put(shown))

    async def _leave(self, pod: KubeletPod) -> None:
        """Kubelet sees the end first, the API server next, watch and operator at some time."""
        pod.phase = "Succeeded"
        await self.linger()
        if self.rng.random() < 0.5:
            self._show(pod)
            await self.linger()
        self.manager.forget(pod.uid)
        self.truth.pop((pod.namespace, pod.name), None)
        self._pod_watch.put_nowait(lambda: self.pods.drop(pod.uid))
        asyncio.get_running_loop().call_later(self.rng.random() / 100, self._withdraw, pod)

    def _withdraw(self, pod: KubeletPod) -> None:
        self.spec.pop(SliceKey(pod_uid=pod.uid, container=CONTAINER), None)
        self._write_spec()

    async def settle(self) -> None:
        """Let every message arrive, then compare twice."""
        await asyncio.gather(*self._late)
        await asyncio.sleep(0.02)
        for stream in (self._pod_watch, self._spec_watch):
            while not stream.empty():
                stream.get_nowait()()
        for _ in range(2):
            await self.reconciler.run_once()
