# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A node whose agent, kubelet, supervisor, daemons and servers die at random, on virtual time.

The agent's own book, binder and reconciler, the NVIDIA backend and the supervisor do the work; the
stress run knows the truth about pods and looks for slots that leaked or were given twice.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from pathlib import Path

from fakes.mps_inline import inline
from fakes.mps_rig import MpsRig
from ullage.api.devices import Backend
from ullage.api.slices import DesiredSlice, SliceKey
from ullage_node.devices.nvidia.sharing import namespace_of
from ullage_node.kubelet.pod_resources import KubeletUnavailable, Listing, SlotOwner
from ullage_node.model.slices import NodeDevice, Pod
from ullage_node.slices.binder import Binder, BinderDependencies, StartRefused
from ullage_node.slices.cdi import CDIDirectory
from ullage_node.slices.checkpoint import decode, encode, snapshot
from ullage_node.slices.library import Library
from ullage_node.slices.pods import PodCache
from ullage_node.slices.reconcile import Reconciler
from ullage_node.slices.steps import StepRecords
from ullage_node.slices.table import SliceTable

NODE = "node-a"
MAIN = "main"
SHARERS = 4
RESTARTS = frozenset({"agent", "kubelet", "daemon", "fault", "mps"})
EVENTS = ("pod", "pod", "end", "kill", "restart", "agent", "kubelet", "daemon", "fault", "mps")


class StressRun:
    """One node; ``live`` are the pods that the API server and kubelet know, with their slot."""

    def __init__(self, base: Path, kind: Backend, seed: int) -> None:
        self.rng = random.Random(seed)
        self.rig = MpsRig(base, kind)
        self.cdi = CDIDirectory(base / "cdi-of-slots")
        self.steps = StepRecords(self.rig.run_dir / "steps")
        self.live: dict[str, tuple[Pod, str]] = {}
        self.spec: dict[SliceKey, DesiredSlice] = {}
        self.kubelet_away = 0
        self.checkpoint = b""
        self.counts: Counter[str] = Counter()
        self._uids = itertools.count()
        self._slots = [f"slot-{number:02d}" for number in range(SHARERS * len(self.rig.gpus))]

    # -- what the agent asks ---------------------------------------------------------------------

    async def list_slots(self, timeout_seconds: float) -> Listing:
        if self.kubelet_away > 0:
            self.kubelet_away -= 1
            raise KubeletUnavailable("restarts")
        return Listing(
            owners={
                slot: frozenset({SlotOwner(namespace=pod.namespace, pod=pod.name, container=MAIN)})
                for pod, slot in self.live.values()
            }
        )

    async def get_pod(self, namespace: str, name: str, timeout_seconds: float) -> Pod | None:
        return next((pod for pod, _ in self.live.values() if pod.name == name), None)

    async def save(self) -> None:
        self.checkpoint = encode(snapshot(self.table, "boot", {}))

    # -- the agent -------------------------------------------------------------------------------

    async def start_agent(self) -> None:
        """A new process: what it knows is the checkpoint."""
        self.table, self.pods = SliceTable(), PodCache()
        self.backend = inline(self.rig)
        await self.backend.probe.start()
        await self.backend.probe.discover()
        if self.checkpoint:
            state = decode(self.checkpoint)
            self.table.restore(state.epoch, state.held, state.bindings)
        self.table.set_devices(
            NodeDevice(uuid=gpu, memory_mib=81_559, contexts=SHARERS, overhead_mib=512)
            for gpu in self.rig.gpus
        )
        surroundings = BinderDependencies(
            node=NODE,
            table=self.table,
            pods=self.pods,
            lister=self,
            reader=self,
            driver=self.backend.driver,
            cdi=self.cdi,
            steps=self.steps,
            library=Library(self.rig.run_dir / "state"),
            save=self.save,
            lane_folder=lambda _, slot: self.rig.run_dir / "lanes" / slot,
        )
        self.binder = Binder(surroundings)
        self.reconciler = Reconciler(surroundings, self.binder)
        self.watch()

    def watch(self) -> None:
        """Pods and spec as the API server shows them."""
        self.pods.replace(pod for pod, _ in self.live.values())
        self.table.intake(1, tuple(self.spec.values()))

    async def round(self) -> None:
        """One second of the agent's life; a reconciliation, and what always holds after it."""
        self.watch()
        await self.backend.probe.health()
        await self.backend.driver.observe(self.table.bindings)
        await self.reconciler.run_once()
        await self.save()
        await asyncio.sleep(1)
        assert self.table.violations() == []
        slots = Counter(slot for binding in self.table.bindings for slot in binding.slots)
        assert max(slots.values(), default=1) == 1

    # -- pods ------------------------------------------------------------------------------------

    async def run_pod(self) -> None:
        """A pod is placed where there is room, and started."""
        taken = Counter(part.gpu for part in self.spec.values())
        taken |= Counter(part.desired.gpu for part in self.table.held)
        roomy = [gpu for gpu in self.rig.gpus if taken[gpu] < SHARERS]
        held = {slot for _, slot in self.live.values()}
        free = [slot for slot in self._slots if slot not in held]
        if not roomy or not free:
            return
        uid = f"uid-{next(self._uids)}"
        pod = Pod(uid=uid, namespace="team", name=f"pod-{uid}", phase="Running", node=NODE)
        key = SliceKey(pod_uid=uid, container=MAIN)
        self.spec[key] = DesiredSlice(
            key=key,
            pod_namespace=pod.namespace,
            pod_name=pod.name,
            gpu=self.rng.choice(roomy),
            percent=self.rng.choice((10, 20, 40)),
            memory_mib=1024,
            epoch=1,
        )
        self.watch()
        self.live[uid] = (pod, self.rng.choice(free))
        await self.start(uid)

    async def start(self, uid: str) -> None:
        """kubelet asks until the container may start."""
        pod, slot = self.live[uid]
        for _ in range(90):
            await self.round()
            try:
                binding = await self.binder.start_container([slot])
            except StartRefused as refused:
                self.counts[refused.refusal.reason.value] += 1
                continue
            assert binding.key.pod_uid == uid
            edits = await self.backend.driver.prepare(binding)
            self.rig.start_process(binding, dict(edits.env))
            return
        raise AssertionError(f"{pod.name} never started: {self.counts}")

    def end(self, uid: str, *, clean: bool) -> None:
        self.end_process(uid, clean=clean)
        del self.live[uid]
        self.spec = {key: part for key, part in self.spec.items() if key.pod_uid != uid}

    def end_process(self, uid: str, *, clean: bool = True) -> None:
        for key in [key for key in self.rig.running if key.pod_uid == uid]:
            binding = next((b for b in self.table.bindings if b.key == key), None)
            if binding is not None:
                self.rig.end_container(binding, clean=clean)

    @property
    def restarts(self) -> int:
        """Of agent, kubelet, supervisor, daemons and servers so far."""
        return sum(self.counts[what] for what in RESTARTS)

    # -- events ----------------------------------------------------------------------------------

    async def event(self) -> None:
        what = self.rng.choice(EVENTS)
        self.counts[what] += 1
        uid = self.rng.choice(sorted(self.live)) if self.live else ""
        if what == "pod":
            await self.run_pod()
        elif what == "agent":
            await self.start_agent()
        elif what == "kubelet":
            self.kubelet_away = self.rng.randrange(1, 4)
        elif what == "mps":
            await self._restart_supervisor()
        elif what in ("daemon", "fault"):
            await self._harm(what, self.rng.choice(self.rig.gpus))
        elif uid and what == "restart":
            self.end_process(uid)
            await self.start(uid)
        elif uid:
            self.end(uid, clean=what == "end")
        await self.round()

    async def _harm(self, what: str, gpu: str) -> None:
        """Daemon or server dies; the processes of that device's tenants end and start again."""
        machine = self.rig.programs.machine(gpu)
        if what == "fault":
            machine.do("fault")
        else:
            machine.crashed = True
        await self._restart_tenants({part.gpu for part in self.spec.values()} & {gpu})

    async def _restart_supervisor(self) -> None:
        await self.rig.supervisor.retire()
        self.rig.supervisor = self.rig.new_supervisor()
        await self._restart_tenants(set(self.rig.gpus))

    async def _restart_tenants(self, gpus: set[str]) -> None:
        tenants = sorted(
            key.pod_uid
            for key, part in self.spec.items()
            if part.gpu in gpus and key.pod_uid in self.live
        )
        for uid in tenants:
            self.end_process(uid)
        for uid in tenants:
            await self.start(uid)

    # -- the end ---------------------------------------------------------------------------------

    async def settle(self) -> None:
        self.kubelet_away = 0
        for _ in range(40):
            await self.round()

    def truth(self) -> dict[str, str]:
        """Slots that belong to a living pod."""
        return {slot: uid for uid, (_, slot) in self.live.items()}

    def bound(self) -> dict[str, str]:
        """Slots as the book has them."""
        return {slot: key.pod_uid for slot, key in self.table.slots.items()}

    def namespaces(self) -> set[str]:
        """Namespaces of all servers, the default one left out."""
        return {
            name
            for daemon in self.rig.programs.living
            for server in daemon.machine.servers.values()
            for name in server.namespaces
            if name != "default"
        }

    def wanted_namespaces(self) -> set[str]:
        """Those of bound containers."""
        return {namespace_of(binding.key) for binding in self.table.bindings}
