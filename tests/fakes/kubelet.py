# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A kubelet for device plugins: real gRPC over unix sockets, the real one's order and its traps.

Registration, dialling back, ListAndWatch, Allocate at admission, PreStartContainer before each
start, replay of what was allocated, pod-resources. A restart deletes every socket and forgets the
endpoints; a stream that ends late takes the successor's endpoint down, as in the real kubelet.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from fakes.kubelet_runtime import Created, FakeRuntime
from fakes.kubelet_state import AdmissionFailed, DeviceManager, KubeletPod
from ullage_node.kubelet.plugin_server import DEVICE_PLUGIN
from ullage_node.kubelet.pod_resources import POD_RESOURCES
from ullage_node.kubelet.proto.deviceplugin.v1beta1 import api_pb2 as plugin_pb2
from ullage_node.kubelet.proto.podresources.v1 import api_pb2 as resources_pb2
from ullage_node.kubelet.registrar import REGISTRATION
from ullage_node.kubelet.services import serve_on, stub_of

RESOURCE = "ullage.dev/slot"
OPTIONS = (("grpc.so_reuseport", 0),)


class StartRefused(Exception):
    """``CreateContainerConfigError``: the text stands in the pod's event, the pod stays."""


class Unregistered(Exception):
    """No living endpoint for the resource."""


@dataclass(slots=True)
class Endpoint:
    """One registered plugin."""

    channel: grpc.aio.Channel
    stub: Any
    pre_start: bool = False
    prefers: bool = False
    """Wants to be asked before each allocation which of the free devices are best."""
    stopped: bool = False
    devices: dict[str, str] = field(default_factory=dict)
    stream: asyncio.Task[None] | None = None


class FakeKubelet:
    """One node's kubelet; an async context manager."""

    def __init__(self, root: Path, runtime: FakeRuntime, seed: int = 0) -> None:
        self.plugins = root / "device-plugins"
        self.resources = root / "pod-resources"
        for directory in (self.plugins, self.resources):
            directory.mkdir(parents=True)
        self.runtime = runtime
        self.manager = DeviceManager(random.Random(seed))
        self.endpoint: Endpoint | None = None
        self.cdi_names: dict[tuple[str, str], tuple[str, ...]] = {}
        """What Allocate answered; replayed at every start, never asked again."""
        self.registrations = 0
        self.calls: list[str] = []
        self.foreign_gpus = 0
        self.foreign_name = "nvidia.com/gpu"
        self._servers: list[grpc.aio.Server] = []
        self._registered = asyncio.Condition()
        self._old: list[Endpoint] = []

    @property
    def pod_resources_socket(self) -> Path:
        return self.resources / "kubelet.sock"

    async def __aenter__(self) -> FakeKubelet:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        for endpoint in [*self._old, *([self.endpoint] if self.endpoint else [])]:
            await self._end(endpoint)

    async def start(self) -> None:
        """Delete every socket in the directory, then listen."""
        for left in self.plugins.iterdir():
            left.unlink()
        registration, lister = grpc.aio.server(options=OPTIONS), grpc.aio.server(options=OPTIONS)
        serve_on(registration, REGISTRATION, self)
        serve_on(lister, POD_RESOURCES, self)
        self.pod_resources_socket.unlink(missing_ok=True)
        lister.add_insecure_port(f"unix://{self.pod_resources_socket}")
        registration.add_insecure_port(f"unix://{self.plugins / 'kubelet.sock'}")
        await lister.start()
        await registration.start()
        self._servers = [registration, lister]

    async def stop(self) -> None:
        """Go away; pods and what they were given stay."""
        for server in self._servers:
            await server.stop(grace=None)
        self._servers = []
        for socket in (self.plugins / "kubelet.sock", self.pod_resources_socket):
            socket.unlink(missing_ok=True)

    async def restart(self) -> None:
        """Endpoints are forgotten; the resource is 0 until the plugin registers again."""
        await self.stop()
        if self.endpoint is not None:
            await self._end(self.endpoint)
        self.endpoint = None
        self.manager.healthy = set()
        await self.start()

    # -- Registration ----------------------------------------------------------------------------

    async def Register(self, request: Any, context: Any) -> Any:
        assert request.version == "v1beta1"
        assert request.resource_name == RESOURCE
        channel = grpc.aio.insecure_channel(f"unix://{self.plugins / request.endpoint}")
        endpoint = Endpoint(channel=channel, stub=stub_of(DEVICE_PLUGIN, channel))
        options = await endpoint.stub.GetDevicePluginOptions(plugin_pb2.Empty(), timeout=30)
        endpoint.pre_start = options.pre_start_required
        endpoint.prefers = options.get_preferred_allocation_available
        if self.endpoint is not None:
            self._old.append(self.endpoint)  # the newest wins; the old stream is not closed
        self.endpoint = endpoint
        endpoint.stream = asyncio.create_task(self._watch(endpoint))
        return plugin_pb2.Empty()

    async def _watch(self, endpoint: Endpoint) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError):
            async for frame in endpoint.stub.ListAndWatch(plugin_pb2.Empty()):
                endpoint.devices = {device.ID: device.health for device in frame.devices}
                self.manager.healthy = {
                    name for name, health in endpoint.devices.items() if health == "Healthy"
                }
                await self._announce()
        # kubelet knows endpoints by resource name only: whoever's stream this was, the resource
        # becomes unhealthy and the endpoint that is registered now counts as stopped.
        if self.endpoint is not None:
            self.endpoint.stopped = True
        self.manager.healthy = set()
        await self._announce()

    async def _announce(self) -> None:
        self.registrations += 1
        async with self._registered:
            self._registered.notify_all()

    async def allocatable(self, count: int) -> None:
        """Wait until kubelet offers this many slots through a living endpoint."""
        async with self._registered, asyncio.timeout(60):
            await self._registered.wait_for(lambda: self.offered == count)

    @property
    def offered(self) -> int:
        alive = self.endpoint is not None and not self.endpoint.stopped
        return len(self.manager.healthy) if alive else 0

    # -- pods ------------------------------------------------------------------------------------

    async def admit(self, pod: KubeletPod) -> None:
        """Admission: choose ids, ask the plugin what they mean, remember the answer."""
        try:
            for container, ids in self.manager.admit(pod).items():
                answer = await self._stub().Allocate(
                    plugin_pb2.AllocateRequest(
                        container_requests=[plugin_pb2.ContainerAllocateRequest(devices_ids=ids)]
                    ),
                    timeout=30,
                )
                self.calls.append("Allocate")
                devices = answer.container_responses[0].cdi_devices
                self.cdi_names[pod.uid, container] = tuple(device.name for device in devices)
        except (AdmissionFailed, Unregistered, grpc.aio.AioRpcError):
            pod.phase = "Failed"
            raise

    async def start_container(self, pod: KubeletPod, container: str) -> Created:
        """One start, first or repeated: PreStartContainer, then the runtime."""
        ids = self.manager.allocated[pod.uid, container]
        try:
            self.calls.append("PreStartContainer")
            await self._stub().PreStartContainer(
                plugin_pb2.PreStartContainerRequest(devices_ids=ids), timeout=30
            )
        except grpc.aio.AioRpcError as error:
            raise StartRefused(str(error.details())) from error
        made = self.runtime.create(self.cdi_names[pod.uid, container])
        pod.phase = "Running"
        return made

    def _stub(self) -> Any:
        if self.endpoint is None or self.endpoint.stopped:
            raise Unregistered(RESOURCE)
        return self.endpoint.stub

    async def _end(self, endpoint: Endpoint) -> None:
        if endpoint.stream is not None:
            endpoint.stream.cancel()
            await asyncio.gather(endpoint.stream, return_exceptions=True)
        await endpoint.channel.close()

    # -- pod-resources ---------------------------------------------------------------------------

    async def List(self, request: Any, context: Any) -> Any:
        pods: dict[str, Any] = {}
        for pod, container, ids in self.manager.holdings():
            entry = pods.setdefault(
                pod.uid, resources_pb2.PodResources(name=pod.name, namespace=pod.namespace)
            )
            entry.containers.add(
                name=container,
                devices=[resources_pb2.ContainerDevices(resource_name=RESOURCE, device_ids=ids)],
            )
        return resources_pb2.ListPodResourcesResponse(pod_resources=pods.values())

    async def Get(self, request: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "not served before 1.36")

    async def GetAllocatableResources(self, request: Any, context: Any) -> Any:
        devices = [
            resources_pb2.ContainerDevices(resource_name=RESOURCE, device_ids=[slot])
            for slot in sorted(self.manager.healthy)
        ]
        if self.foreign_gpus:
            ids = [f"GPU-{number}" for number in range(self.foreign_gpus)]
            devices.append(
                resources_pb2.ContainerDevices(resource_name=self.foreign_name, device_ids=ids)
            )
        return resources_pb2.AllocatableResourcesResponse(devices=devices)
