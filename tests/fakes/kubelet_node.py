# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A whole node in one process: fake kubelet, fake runtime, fake API server, and the real agent.

The test plays operator, scheduler and user: it places slices, creates pods, starts and ends
containers, and takes down whatever it likes. Every wait is for a fact, never for a time.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fakes.apiserver import FakeApiServer
from fakes.kubelet import FakeKubelet
from fakes.kubelet_backend import FakeDevices
from fakes.kubelet_runtime import Created, FakeRuntime
from fakes.kubelet_state import KubeletPod
from fakes.proc_tree import a_process
from fakes.scratch import fast_directory
from ullage.api.labels import ANNOTATION_RESERVATION
from ullage.api.slices import DesiredSlice, ObservedSlice, SliceKey
from ullage.ports import EVENT, GPU_NODE, POD
from ullage_node.agent import Agent
from ullage_node.api_client import ApiClient
from ullage_node.model.devices import ContainerKey
from ullage_node.settings import (
    AgentHttpSettings,
    AgentSettings,
    ApiSettings,
    PathSettings,
    PeriodSettings,
)

NODE = "node-a"
CONTAINER = "main"
PATIENCE_SECONDS = 60.0
FAST = PeriodSettings(
    heartbeat_seconds=60.0,
    starts_seconds=0.05,
    socket_poll_seconds=0.02,
    kubelet_check_seconds=0.2,
    reconcile_seconds=0.2,
    observe_seconds=0.05,
    probe_seconds=0.05,
    discover_seconds=0.5,
    recovery_seconds=0.2,
)


class NodeRig:
    """The node; an async context manager that starts everything but the agent."""

    def __init__(self, devices: FakeDevices | None = None, seed: int = 0) -> None:
        self.root = fast_directory()
        self.devices = devices or FakeDevices()
        self.runtime = FakeRuntime(self.root / "cdi")
        self.kubelet = FakeKubelet(self.root, self.runtime, seed)
        self.api = FakeApiServer()
        self.agent: Agent | None = None
        self.settings = self._settings(self.root)
        self.epoch = 1
        self._stop = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._uids = itertools.count(1)
        self._slices: dict[SliceKey, DesiredSlice] = {}
        self._created = itertools.count()

    def _settings(self, root: Path) -> AgentSettings:
        (root / "token").write_text("secret")
        return AgentSettings(
            name=NODE,
            paths=PathSettings(
                device_plugin_dir=self.kubelet.plugins,
                pod_resources_socket=self.kubelet.pod_resources_socket,
                cdi_dir=self.runtime.cdi_dir,
                state_dir=root / "state",
                run_dir=root / "run",
                proc_root=root / "proc",
            ),
            api=ApiSettings(token_file=root / "token"),
            http=AgentHttpSettings(host="127.0.0.1", port=0),
            periods=FAST,
        )

    async def __aenter__(self) -> Self:
        self.boot("boot-1")
        await self.api.start()
        self.write_spec()
        await self.kubelet.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop_agent()
        await self.kubelet.__aexit__()
        await self.api.stop()
        shutil.rmtree(self.root)

    def boot(self, identity: str) -> None:
        """The machine's boot id, as /proc shows it."""
        path = self.root / "proc/sys/kernel/random"
        path.mkdir(parents=True, exist_ok=True)
        (path / "boot_id").write_text(identity)

    # -- agent -----------------------------------------------------------------------------------

    async def start_agent(self) -> Agent:
        """Start an agent and wait until kubelet offers its slots."""
        await self.launch()
        agent = self.agent
        assert agent is not None
        # The count alone may still be the one of an agent that has just died.
        await self.until(lambda: agent.registrar.registration.registered)
        await self.kubelet.allocatable(self.slot_count)
        return agent

    async def launch(self) -> None:
        """Start an agent and wait for nothing."""
        self._stop = asyncio.Event()
        started: asyncio.Future[Agent] = asyncio.get_running_loop().create_future()
        self._running = asyncio.create_task(self._run(started))
        self.agent = await started

    async def _run(self, started: asyncio.Future[Agent]) -> None:
        api = ApiSettings(server=self.api.url, token_file=self.settings.api.token_file)
        async with ApiClient(api, {}) as client:
            agent = Agent(self.settings, client, self.devices.backend, self.devices, "test")
            started.set_result(agent)
            await agent.run(self._stop)

    async def stop_agent(self) -> None:
        """SIGTERM."""
        self._stop.set()
        if self._running is not None:
            await self._running
        self._running = self.agent = None

    async def kill_agent(self) -> None:
        """SIGKILL as far as one process can play it: nothing is saved, nothing is said."""
        assert self._running is not None
        assert self.agent is not None
        await self.agent._saver.disable()  # a killed process saves nothing on its way out
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        self._running = self.agent = None

    @property
    def slot_count(self) -> int:
        return sum(min(device.contexts, 8) for device in self.devices.devices)

    # -- operator --------------------------------------------------------------------------------

    def write_spec(self, **extra: Any) -> None:
        """Write the GPUNode's spec as the operator would."""
        spec = {
            "epoch": self.epoch,
            "retire": False,
            "slices": [part.to_wire() for part in self._slices.values()],
            **extra,
        }
        old = self.api.get(GPU_NODE, NODE)
        generation = old["metadata"]["generation"] + 1 if old else 1
        body = {
            "metadata": {"name": NODE, "generation": generation},
            "spec": spec,
            "status": old.get("status", {}) if old else {},
        }
        if old:
            body["metadata"]["uid"] = old["metadata"]["uid"]
            body["metadata"]["managedFields"] = old["metadata"].get("managedFields", [])
        self.api.put(GPU_NODE, body)

    def place(
        self,
        pod: KubeletPod,
        gpu: str = "gpu-0",
        percent: int = 25,
        *,
        memory_mib: int = 1024,
        index: int = 0,
        container: str = CONTAINER,
        epoch: int | None = None,
        inject: bool = False,
        write: bool = True,
    ) -> DesiredSlice:
        """Decide a slice for a pod."""
        part = DesiredSlice(
            key=SliceKey(pod_uid=pod.uid, container=container, index=index),
            pod_namespace=pod.namespace,
            pod_name=pod.name,
            gpu=gpu,
            percent=percent,
            memory_mib=memory_mib,
            epoch=self.epoch if epoch is None else epoch,
            inject=inject,
        )
        self._slices[part.key] = part
        if write:
            self.write_spec()
        return part

    def unplace(self, pod: KubeletPod) -> None:
        """Take a pod's slices out of the spec."""
        self._slices = {k: s for k, s in self._slices.items() if k.pod_uid != pod.uid}
        self.write_spec()

    def status(self) -> dict[str, Any]:
        """The GPUNode's status now."""
        found = self.api.get(GPU_NODE, NODE)
        return (found or {}).get("status") or {}

    def slice_of(self, pod: KubeletPod, index: int = 0) -> ObservedSlice | None:
        """What the agent says of one slice."""
        for raw in self.status().get("slices") or []:
            seen = ObservedSlice.from_wire(raw)
            if (seen.key.pod_uid, seen.key.index) == (pod.uid, index):
                return seen
        return None

    def condition(self, kind: str) -> dict[str, Any]:
        """One condition of the node, empty if it is not set."""
        conditions: list[dict[str, Any]] = self.status().get("conditions") or []
        return next((found for found in conditions if found["type"] == kind), {})

    async def phase(self, pod: KubeletPod, phase: str, index: int = 0) -> ObservedSlice:
        """Wait until the agent says this phase of a pod's slice."""
        await self.until(lambda: (found := self.slice_of(pod, index)) and found.phase == phase)
        seen = self.slice_of(pod, index)
        assert seen is not None
        return seen

    async def phase_of_new(self) -> None:
        """A new decision reaches the node and is answered; it is taken back afterwards."""
        pod = self.a_pod()
        self.place(pod)
        await self.phase(pod, "Reserved")
        self.unplace(pod)
        await self.until(lambda: self.slice_of(pod) is None)

    def events(self, reason: str) -> list[dict[str, Any]]:
        """Events with this reason."""
        return [event for event in self.api.objects(EVENT) if event["reason"] == reason]

    # -- user, scheduler, kubelet ----------------------------------------------------------------

    def a_pod(self, name: str = "", slots: int = 1, namespace: str = "team") -> KubeletPod:
        """A pod that exists nowhere yet."""
        number = next(self._uids)
        return KubeletPod(
            uid=f"uid-{number}",
            namespace=namespace,
            name=name or f"pod-{number}",
            containers={CONTAINER: slots},
        )

    def show_pod(
        self,
        pod: KubeletPod,
        *,
        container: Mapping[str, object] | None = None,
        labels: Mapping[str, str] | None = None,
        reservation: str = "",
    ) -> None:
        """Let the API server show the pod, bound to this node, with more about its container."""
        bears = {"annotations": {ANNOTATION_RESERVATION: reservation}} if reservation else {}
        self.api.put(
            POD,
            {
                "metadata": {
                    "name": pod.name,
                    "namespace": pod.namespace,
                    "uid": pod.uid,
                    "labels": dict(labels or {}),
                    "creationTimestamp": f"2026-01-01T00:00:{next(self._created) % 60:02d}Z",
                    **bears,
                },
                "spec": {
                    "nodeName": NODE,
                    "containers": [{"name": CONTAINER, **(container or {})}],
                },
                "status": {"phase": pod.phase},
            },
        )

    async def placed_pod(self, gpu: str = "gpu-0", percent: int = 25, **how: Any) -> KubeletPod:
        """A pod with a reserved slice, bound and admitted by kubelet, not started."""
        pod = self.a_pod(how.pop("name", ""))
        self.place(pod, gpu, percent, **how)
        await self.phase(pod, "Reserved")
        self.show_pod(pod)
        await self.kubelet.admit(pod)
        return pod

    async def start(self, pod: KubeletPod) -> Created:
        """Start the pod's container and let its process run."""
        made = await self.kubelet.start_container(pod, CONTAINER)
        self.run_process(pod)
        return made

    def run_process(self, pod: KubeletPod) -> None:
        """The container has a process on its device."""
        a_process(self.settings.paths.proc_root, 4711)
        self.devices.pids[ContainerKey(pod_uid=pod.uid, container=CONTAINER)] = (4711,)

    def end_process(self, pod: KubeletPod) -> None:
        """The container's processes are gone."""
        self.devices.pids.pop(ContainerKey(pod_uid=pod.uid, container=CONTAINER), None)

    def finish(self, pod: KubeletPod, phase: str = "Succeeded") -> None:
        """The pod's containers end for good and the API server shows it."""
        self.end_process(pod)
        pod.phase = phase
        self.show_pod(pod)

    def remove_pod(self, pod: KubeletPod) -> None:
        """The pod's object is deleted and kubelet forgets it."""
        self.end_process(pod)
        self.kubelet.manager.forget(pod.uid)
        self.api.remove(POD, pod.name, pod.namespace)

    async def until(self, fact: Callable[[], object]) -> None:
        """Wait for a fact."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not fact():
                await asyncio.sleep(0.01)
