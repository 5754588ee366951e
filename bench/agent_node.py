# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A pretended node for the agent's benchmark: files like a kernel's, pods that work and serve.

The agent is the real one and reads everything as it would on a node. Of kubelet there is the part
that plugins register with. Nothing here measures.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import grpc
import grpc.aio
from aiohttp import web

from ullage.api.environment import STEPS_FILE
from ullage.api.labels import API_VERSION, SLOT_RESOURCE
from ullage.api.observations import LatencyObjective
from ullage.api.slices import DesiredSlice, SliceKey, SlicePhase, slot_id
from ullage.api.steps import STEP_RECORD_BYTES
from ullage_node.kubelet.plugin_server import DEVICE_PLUGIN, SERVER_OPTIONS
from ullage_node.kubelet.pod_resources import POD_RESOURCES
from ullage_node.kubelet.proto.deviceplugin.v1beta1 import api_pb2
from ullage_node.kubelet.proto.podresources.v1 import api_pb2 as resources_pb2
from ullage_node.kubelet.registrar import KUBELET_SOCKET, REGISTRATION
from ullage_node.kubelet.services import serve_on, stub_of
from ullage_node.model.slices import HeldSlice
from ullage_node.slices.checkpoint import SliceCheckpoint, boot_id, save
from ullage_node.slices.table import binding_of
from ullage_run.record import StepWriter
from ullage_run.requests import RequestHistogram

NODE: Final = "bench"
CONTAINER: Final = "main"
LISTING_SOCKET: Final = "pods.sock"
PERCENT: Final = 25
OF_A_DEVICE: Final = 4
DEVICE_PERCENT: Final = 12
"""Part of the core that each device is: eight fit."""
QUOTA_US: Final = PERCENT * DEVICE_PERCENT * 10
"""Of a container, in each 100 ms."""
TICK_SECONDS: Final = 0.02
PAGE_LINES: Final = 3000
"""Lines of a page beside the histogram: as many as a large model server has."""


@dataclass(slots=True)
class Tenant:
    """One container: what was decided, its step record, its server."""

    number: int
    root: Path
    serves: bool
    """Whether it has a latency objective; the others train."""
    histogram: RequestHistogram = field(default_factory=RequestHistogram)
    cpu_us: int = 0

    @property
    def uid(self) -> str:
        """Of its pod."""
        return f"00000000-0000-4000-8000-{self.number:012d}"

    @property
    def slot(self) -> str:
        """What kubelet gave it."""
        return slot_id(self.number)

    @property
    def slice(self) -> DesiredSlice:
        """What was decided for it."""
        return DesiredSlice(
            key=SliceKey(pod_uid=self.uid, container=CONTAINER),
            pod_namespace="bench",
            pod_name=f"pod-{self.number}",
            gpu=f"emulated-{NODE}-{self.number // OF_A_DEVICE}",
            percent=PERCENT,
            memory_mib=512,
            epoch=1,
            workload_class=f"class-{self.number}",
            max_slowdown_percent=500,
            slo=LatencyObjective(latency_ms=200) if self.serves else None,
        )

    @property
    def cgroup(self) -> str:
        """Path in the tree, as kubelet names it."""
        uid = self.uid.replace("-", "_")
        return f"/kubepods.slice/kubepods-pod{uid}.slice/cri-containerd-c{self.number}.scope"

    @property
    def record(self) -> Path:
        """Its step record."""
        return self.root / "run" / "steps" / self.slice.key.directory / STEPS_FILE

    def build(self) -> None:
        """Its files, as kernel, agent and hook leave them."""
        own = self.root / "cgroup" / self.cgroup[1:]
        for place in (own.parent, own):
            _write(place / "cpu.max", "max 100000")
        _write(own / "cpu.max", f"{QUOTA_US} 100000")
        _write(own / "cpuset.cpus", "0")
        _write(own / "cgroup.procs", str(50_000 + self.number))
        _write(own / "cgroup.events", "populated 1\nfrozen 0")
        _write(own / "memory.current", str(300 << 20))
        _write(own / "memory.stat", "anon 1\ninactive_file 0")
        _write(
            self.root / "state" / "slots" / self.slot,
            f"pid={50_000 + self.number} quota={QUOTA_US} version=2 unified={self.cgroup}",
        )
        self.record.parent.mkdir(parents=True)
        self.record.write_bytes(bytes(STEP_RECORD_BYTES))
        self.burn(0.0)

    def burn(self, seconds: float) -> None:
        """Use CPU time."""
        self.cpu_us += int(seconds * QUOTA_US * 10)
        stat = self.root / "cgroup" / self.cgroup[1:] / "cpu.stat"
        _write(stat, f"usage_usec {self.cpu_us}\nuser_usec 0\nsystem_usec 0")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Containers of the node and what they do.

    Attributes:
        tenants: How many; four of them share a device.
        servers: Whether every second one serves, with a latency objective.
        steps_per_second: Steps of each; 0 = it holds its slice and does nothing.
    """

    tenants: int
    servers: bool = False
    steps_per_second: float = 0.0


class PretendedKubelet:
    """What a plugin registers with: it asks back for the plugin's devices, as kubelet does.

    It says that each tenant holds its slot.
    """

    def __init__(self, folder: Path, tenants: Sequence[Tenant]) -> None:
        self.offered = asyncio.Event()
        """Set once the plugin has offered a device."""
        self._folder = folder
        self._tenants = tenants
        self._slots: list[str] = []
        self._server = grpc.aio.server(options=SERVER_OPTIONS)
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen where plugins look for kubelet."""
        serve_on(self._server, REGISTRATION, self)
        serve_on(self._server, POD_RESOURCES, self)
        for socket in (KUBELET_SOCKET, LISTING_SOCKET):
            self._server.add_insecure_port(f"unix://{self._folder / socket}")
        await self._server.start()

    async def List(
        self, _: resources_pb2.ListPodResourcesRequest, __: grpc.aio.ServicerContext
    ) -> resources_pb2.ListPodResourcesResponse:
        """Containers with their slots."""
        answer = resources_pb2.ListPodResourcesResponse()
        for tenant in self._tenants:
            pod = answer.pod_resources.add(name=tenant.slice.pod_name, namespace="bench")
            slots = resources_pb2.ContainerDevices(
                resource_name=SLOT_RESOURCE, device_ids=[tenant.slot]
            )
            pod.containers.add(name=CONTAINER, devices=[slots])
        return answer

    async def GetAllocatableResources(
        self, _: resources_pb2.AllocatableResourcesRequest, __: grpc.aio.ServicerContext
    ) -> resources_pb2.AllocatableResourcesResponse:
        """What the plugin offered."""
        slots = resources_pb2.ContainerDevices(resource_name=SLOT_RESOURCE, device_ids=self._slots)
        return resources_pb2.AllocatableResourcesResponse(devices=[slots])

    async def stop(self) -> None:
        """Stop listening and asking."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        await self._server.stop(grace=None)

    async def Register(
        self, request: api_pb2.RegisterRequest, _: grpc.aio.ServicerContext
    ) -> api_pb2.Empty:
        """Take the plugin in."""
        if self._watch is not None:
            self._watch.cancel()
        self._watch = asyncio.create_task(self._ask(request.endpoint))
        return api_pb2.Empty()

    async def _ask(self, endpoint: str) -> None:
        async with grpc.aio.insecure_channel(f"unix://{self._folder / endpoint}") as channel:
            async for frame in stub_of(DEVICE_PLUGIN, channel).ListAndWatch(api_pb2.Empty()):
                self._slots = [device.ID for device in frame.devices]
                if self._slots:
                    self.offered.set()


class PretendedNode:
    """API server, kubelet, pods and files; an agent is started on it by the measurement."""

    def __init__(self, root: Path, load: Load) -> None:
        self.root = root
        self._steps_per_second = load.steps_per_second
        self.tenants = [
            Tenant(number=number, root=root, serves=load.servers and number % 2 == 1)
            for number in range(load.tenants)
        ]
        self.kubelet = PretendedKubelet(root / "plugins", self.tenants)
        self.status_bytes: list[int] = []
        self.pages = 0
        self.steps = 0
        """Of all tenants so far."""
        self.url = ""
        self.observations = 0
        self._runner: web.AppRunner | None = None

    def environment(self) -> dict[str, str]:
        """The agent's settings."""
        (self.root / "token").write_text("none")
        paths = {
            "DEVICE_PLUGIN_DIR": "plugins",
            "POD_RESOURCES_SOCKET": f"plugins/{LISTING_SOCKET}",
            "CDI_DIR": "cdi",
            "STATE_DIR": "state",
            "RUN_DIR": "run",
            "CGROUP_ROOT": "cgroup",
        }
        return {
            "ULLAGE_NODE_NAME": NODE,
            "ULLAGE_NODE_BACKEND": "emulated",
            "ULLAGE_NODE_API_SERVER": self.url,
            "ULLAGE_NODE_API_TOKEN_FILE": str(self.root / "token"),
            "ULLAGE_NODE_HTTP_HOST": "127.0.0.1",
            "ULLAGE_NODE_HTTP_PORT": "0",
            **{f"ULLAGE_NODE_PATHS_{name}": str(self.root / at) for name, at in paths.items()},
        }

    async def start(self) -> None:
        """Write the files and listen."""
        devices = [
            {"core": 0, "percent": DEVICE_PERCENT, "memoryMiB": 8192, "model": "emulated"}
            for _ in range(max(1, -(-len(self.tenants) // OF_A_DEVICE)))
        ]
        _write(self.root / "state" / "emulated.json", json.dumps({"devices": devices}))
        _write(self.root / "cgroup" / "cgroup.controllers", "cpuset cpu memory pids")
        _write(self.root / "cgroup" / "cpuset.cpus.effective", "0-1")
        (self.root / "plugins").mkdir()
        for tenant in self.tenants:
            tenant.build()
        parts = [(one.slice, one.slot) for one in self.tenants]
        held = tuple(HeldSlice(desired=part, phase=SlicePhase.ATTACHED) for part, _ in parts)
        state = SliceCheckpoint(
            boot_id=boot_id(Path("/proc")),
            epoch=1,
            held=held,
            bindings=tuple(binding_of([one]) for one in parts),
            quarantine={},
        )
        save(self.root / "state" / "node" / "state.json", state)
        application = web.Application()
        application.router.add_get("/metrics/{number}", self._page)
        application.router.add_route("*", "/{rest:.*}", self._api)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        await self.kubelet.start()

    async def stop(self) -> None:
        """Stop listening."""
        await self.kubelet.stop()
        if self._runner is not None:
            await self._runner.cleanup()

    async def work(self) -> None:
        """Let every tenant step and serve until cancelled.

        Steps follow the clock, however late a tick comes.
        """
        if not self._steps_per_second:
            return
        dice = random.Random(1)
        writers = [StepWriter(str(tenant.record)) for tenant in self.tenants]
        step_s = 1.0 / self._steps_per_second
        began, done = time.monotonic(), 0
        while True:
            await asyncio.sleep(TICK_SECONDS)
            due = int((time.monotonic() - began) / step_s) - done
            done += due
            for tenant, writer in zip(self.tenants, writers, strict=True):
                for _ in range(due):
                    took = step_s * dice.uniform(0.8, 1.2)
                    writer.step(took_ns=int(took * 1e9))
                    tenant.histogram.observe(took * 2)
                if due:
                    tenant.burn(due * step_s)
                self.steps += due

    async def _page(self, request: web.Request) -> web.Response:
        self.pages += 1
        tenant = self.tenants[int(request.match_info["number"])]
        others = "".join(f'model_metric_{n}{{model="m"}} {n}\n' for n in range(PAGE_LINES))
        return web.Response(text=others + tenant.histogram.metrics_text())

    async def _api(self, request: web.Request) -> web.StreamResponse:
        if request.method == "PATCH":
            body = await request.read()
            self.status_bytes.append(len(body))
            self.observations = len(json.loads(body)["status"]["observations"])
            return web.json_response({})
        if request.method == "POST":
            return web.json_response({}, status=201)
        if request.query.get("watch"):
            await asyncio.sleep(3600)
        pods = request.path.endswith("/pods")
        items = [self._pod(one) for one in self.tenants] if pods else [self._gpu_node()]
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})

    def _gpu_node(self) -> dict[str, object]:
        slices = [tenant.slice.to_wire() for tenant in self.tenants]
        return {
            "apiVersion": API_VERSION,
            "kind": "GPUNode",
            "metadata": {"name": NODE, "uid": "node", "generation": 1},
            "spec": {"epoch": 1, "slices": slices},
        }

    def _pod(self, tenant: Tenant) -> dict[str, object]:
        port = int(self.url.rpartition(":")[2])
        annotations = {
            "prometheus.io/port": str(port),
            "prometheus.io/path": f"/metrics/{tenant.number}",
        }
        metadata = {"name": tenant.slice.pod_name, "namespace": "bench", "uid": tenant.uid}
        return {
            "metadata": {**metadata, "annotations": annotations},
            "spec": {"nodeName": NODE, "containers": [{"name": CONTAINER}]},
            "status": {"phase": "Running", "podIP": "127.0.0.1"},
        }
