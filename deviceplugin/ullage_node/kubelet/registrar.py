# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps the plugin registered with kubelet, for ever.

kubelet forgets plugins when it restarts (and deletes their sockets), and it drops one when the
stream of a predecessor ends late. Neither is announced, so kubelet's socket is checked every second
and kubelet itself is queried every few seconds. Where another plugin offers GPUs on this node
nothing is registered: a GPU must not have two owners.

It retries for ever and never crashes because of kubelet; it reports its state as :class:`Standing`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import grpc
import grpc.aio
import structlog

from ullage.api.labels import SLOT_RESOURCE
from ullage_node.kubelet.plugin_server import PluginServer, plugin_options
from ullage_node.kubelet.pod_resources import KubeletUnavailable, PodResources
from ullage_node.kubelet.proto.deviceplugin.v1beta1 import api_pb2
from ullage_node.kubelet.services import stub_of
from ullage_node.kubelet.slot_board import SlotBoard
from ullage_node.times import (
    ALLOCATABLE_S,
    LEAVING_PAUSE_S,
    REGISTER_BACKOFF_FIRST_S,
    REGISTER_BACKOFF_MOST_S,
    REGISTER_S,
)

REGISTRATION: Final = api_pb2.DESCRIPTOR.services_by_name["Registration"]
API_VERSION: Final = "v1beta1"
KUBELET_SOCKET: Final = "kubelet.sock"
PLUGIN_SOCKET: Final = "ullage.sock"

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class RegistrationFailed(Exception):
    """kubelet is unreachable, or refused; the text says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """State of our registration with kubelet."""

    registered: bool = False
    foreign: str = ""
    """Resources of another GPU plugin, as text; meanwhile nothing is registered."""
    problem: str = ""
    """The reason why the plugin is not registered, if any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """Periods of the checks, in seconds."""

    poll: float
    check: float


class Registrar:
    """One task that registers, watches and registers again."""

    def __init__(
        self,
        directory: Path,
        server: PluginServer,
        board: SlotBoard,
        resources: PodResources,
        rhythm: Rhythm,
    ) -> None:
        self._kubelet = directory / KUBELET_SOCKET
        self._server = server
        self._board = board
        self._resources = resources
        self._rhythm = rhythm
        self._wanted = False
        self._wake = asyncio.Event()
        self._registered_with: tuple[int, int] | None = None
        self._checked_at = 0.0
        self._backoff = REGISTER_BACKOFF_FIRST_S
        self.registration = Registration()
        self.registrations = 0
        self.on_change: Callable[[], None] = lambda: None
        """Called after every change of :attr:`registration`."""

    def serve(self, wanted: bool) -> None:
        """Set if slots are to be offered at all."""
        if wanted != self._wanted:
            self._wanted = wanted
            self._wake.set()

    async def left(self) -> None:
        """Return when serving has stopped; only after ``serve(False)``."""
        while self._server.running:
            await asyncio.sleep(LEAVING_PAUSE_S)

    async def run(self) -> None:
        """Work until cancelled; then deregister at once."""
        try:
            while True:
                pause = await self._turn()
                self._wake.clear()
                try:
                    async with asyncio.timeout(pause):
                        await self._wake.wait()
                except TimeoutError:
                    continue
        finally:
            await self._server.stop()

    async def _turn(self) -> float:
        """Check everything once; returns the time until the next check."""
        try:
            await self._look()
        except (RegistrationFailed, KubeletUnavailable, OSError) as error:
            self._set(replace(self.registration, registered=False, problem=str(error)))
            self._registered_with = None
            pause = self._backoff * random.uniform(0.7, 1.3)  # jitter, not security-relevant
            self._backoff = min(self._backoff * 2, REGISTER_BACKOFF_MOST_S)
            return pause
        self._backoff = REGISTER_BACKOFF_FIRST_S
        return self._rhythm.poll

    async def _look(self) -> None:
        identity = _identity(self._kubelet)
        if self._registered_with not in (None, identity) or not self._server.serving:
            self._registered_with = None
        due = time.monotonic() - self._checked_at >= self._rhythm.check
        if due or (self._wanted and self._registered_with is None):
            await self._check(identity)
        if not self._wanted or self.registration.foreign:
            await self._withdraw()
        elif self._registered_with is None:
            await self._register(identity)

    async def _check(self, identity: tuple[int, int] | None) -> None:
        """Check kubelet's view; it may have lost the plugin without a restart."""
        if identity is None:
            raise KubeletUnavailable(f"{self._kubelet} is not there; is kubelet running?")
        self._checked_at = time.monotonic()
        try:
            believed = await self._resources.allocatable(ALLOCATABLE_S)
        except KubeletUnavailable:
            if self._registered_with is None:
                raise
            return  # busy or starting; deregistering would only remove the slots for a while
        if believed.foreign != self.registration.foreign:
            self._set(replace(self.registration, foreign=believed.foreign))
        offered = {slot for slot, healthy in self._board.slots.items() if healthy}
        if self._registered_with is not None and offered and not offered & believed.slots:
            _log.warning("kubelet lost our slots", offered=len(offered))
            self._registered_with = None

    async def _withdraw(self) -> None:
        if self._server.running:
            await self._server.stop()
            self._registered_with = None
        self._set(replace(self.registration, registered=False, problem=""))

    async def _register(self, identity: tuple[int, int] | None) -> None:
        # The old stream must end before the new registration: kubelet would confuse the two.
        await self._server.start()
        request = api_pb2.RegisterRequest(
            version=API_VERSION,
            endpoint=self._server.socket.name,
            resource_name=SLOT_RESOURCE,
            options=plugin_options(),
        )
        async with grpc.aio.insecure_channel(f"unix://{self._kubelet}") as channel:
            stub = stub_of(REGISTRATION, channel)
            try:
                await stub.Register(request, timeout=REGISTER_S, wait_for_ready=False)
            except grpc.aio.AioRpcError as error:
                raise RegistrationFailed(f"kubelet: {error.details()}") from error
        self._registered_with = identity
        self._checked_at = time.monotonic()
        self.registrations += 1
        _log.info("registered", slots=len(self._board.slots), registrations=self.registrations)
        self._set(replace(self.registration, registered=True, problem=""))

    def _set(self, registration: Registration) -> None:
        if registration != self.registration:
            if registration.problem and registration.problem != self.registration.problem:
                _log.warning("not registered", problem=registration.problem)
            self.registration = registration
            self.on_change()


def _identity(socket: Path) -> tuple[int, int] | None:
    """Inode and change time of kubelet's socket; ``None`` if missing."""
    try:
        status = socket.stat()
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns
