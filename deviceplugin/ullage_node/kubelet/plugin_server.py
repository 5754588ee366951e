# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The device plugin as kubelet sees it: one resource, one socket, five calls.

``Allocate`` runs during pod admission, where an error fails the pod for ever: it returns names
only, looks nothing up and cannot refuse. The node decides in ``PreStartContainer``. This module
knows kubelet's protocol but not slices.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import grpc
import grpc.aio

from ullage_node.kubelet.proto.deviceplugin.v1beta1 import api_pb2
from ullage_node.kubelet.services import serve_on
from ullage_node.kubelet.slot_board import SlotBoard

HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"
DEVICE_PLUGIN: Final = api_pb2.DESCRIPTOR.services_by_name["DevicePlugin"]
SERVER_OPTIONS: Final = (("grpc.so_reuseport", 0),)

StartContainer = Callable[[Sequence[str]], Awaitable[None]]
"""Prepares a container or raises :class:`StartDenied`."""


class StartDenied(Exception):
    """The container must not start now; the text goes to kubelet and into the pod's event."""


class DevicePluginService:
    """Answers kubelet's calls; one instance lives as long as the agent."""

    def __init__(
        self, board: SlotBoard, start: StartContainer, cdi_name: Callable[[str], str]
    ) -> None:
        self._board = board
        self._start = start
        self._cdi_name = cdi_name

    async def GetDevicePluginOptions(
        self, request: api_pb2.Empty, context: object
    ) -> api_pb2.DevicePluginOptions:
        """Make kubelet call PreStartContainer before each start."""
        return plugin_options()

    async def ListAndWatch(
        self, request: api_pb2.Empty, context: object
    ) -> AsyncIterator[api_pb2.ListAndWatchResponse]:
        """The slots now and after every change; the end of the stream deregisters the plugin."""
        async for slots in self._board.frames():
            yield _frame(slots)

    async def GetPreferredAllocation(
        self, request: api_pb2.PreferredAllocationRequest, context: object
    ) -> api_pb2.PreferredAllocationResponse:
        """Empty answer, never announced: slots do not differ."""
        return api_pb2.PreferredAllocationResponse()

    async def Allocate(
        self, request: api_pb2.AllocateRequest, context: object
    ) -> api_pb2.AllocateResponse:
        """The CDI name of each slot; its edits are decided when the container starts."""
        return api_pb2.AllocateResponse(
            container_responses=[
                api_pb2.ContainerAllocateResponse(
                    cdi_devices=[
                        api_pb2.CDIDevice(name=self._cdi_name(slot))
                        for slot in container.devices_ids
                    ]
                )
                for container in request.container_requests
            ]
        )

    async def PreStartContainer(
        self, request: api_pb2.PreStartContainerRequest, context: grpc.aio.ServicerContext
    ) -> api_pb2.PreStartContainerResponse:
        """Prepare the container, or fail this start with a text that says why."""
        try:
            await self._start(list(request.devices_ids))
        except StartDenied as denied:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(denied))
        return api_pb2.PreStartContainerResponse()


class PluginServer:
    """Serves one socket in kubelet's directory; can be started and stopped any number of times."""

    def __init__(self, service: DevicePluginService, board: SlotBoard, socket: Path) -> None:
        self._service = service
        self._board = board
        self._server: grpc.aio.Server | None = None
        self._inode = 0
        self.socket = socket

    @property
    def running(self) -> bool:
        """True if a client may still be connected, with or without a socket."""
        return self._server is not None

    @property
    def serving(self) -> bool:
        """True if the server runs and its socket is still the one in the directory."""
        try:
            return self._server is not None and self.socket.stat().st_ino == self._inode
        except OSError:
            return False

    async def start(self) -> None:
        """Listen on a fresh socket.

        Raises:
            OSError: the directory is missing or not writable, or the path is too long.
        """
        await self.stop()
        self.socket.unlink(missing_ok=True)
        server = grpc.aio.server(options=SERVER_OPTIONS)
        serve_on(server, DEVICE_PLUGIN, self._service)
        try:
            server.add_insecure_port(f"unix://{self.socket}")
        except RuntimeError as error:
            raise OSError(f"cannot listen on {self.socket}: {error}") from error
        self._board.open()
        await server.start()
        self._server = server
        self.socket.chmod(0o600)
        self._inode = self.socket.stat().st_ino

    async def stop(self) -> None:
        """End every stream at once, then stop; running containers are not touched."""
        server, self._server = self._server, None
        self._board.close()
        if server is None:
            return
        await server.stop(grace=None)
        if self._is_ours():
            with contextlib.suppress(OSError):
                self.socket.unlink(missing_ok=True)
        self._inode = 0

    def _is_ours(self) -> bool:
        try:
            return self.socket.stat().st_ino == self._inode
        except OSError:
            return False


def plugin_options() -> api_pb2.DevicePluginOptions:
    """The options sent at registration and on request."""
    return api_pb2.DevicePluginOptions(
        pre_start_required=True, get_preferred_allocation_available=False
    )


def _frame(slots: Mapping[str, bool]) -> api_pb2.ListAndWatchResponse:
    return api_pb2.ListAndWatchResponse(
        devices=[
            api_pb2.Device(ID=slot, health=HEALTHY if healthy else UNHEALTHY)
            for slot, healthy in slots.items()
        ]
    )
