# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One device's control daemon and server: started, watched, healed, ended. Touches no other device.

A check can fail in four ways (silence, no process, an unreadable answer, a fault), and none of them
counts as healthy. An unhealthy server recovers by itself or is restarted, so that clients may come
again within :data:`HEALED_SECONDS`. Clients are terminated through the server before anything is
killed; no process of a tenant is ever killed here.

One task runs :meth:`Daemon.run`; other tasks ask through :meth:`Daemon.terminate` and
:meth:`Daemon.refresh`, which share its lock, so no two commands to one daemon overlap.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, assert_never

import structlog

from ullage.api.contract import MpsState
from ullage_node.mps.control import (
    TROUBLE,
    Control,
    ControlDown,
    ControlUnclear,
    Look,
    Place,
)
from ullage_node.mps.pending import PendingClients, last_words
from ullage_node.mps.places import CONTROL_LOGS, Places, PlaceUnusable
from ullage_node.mps.programs import Call, ProgramMissing, Programs, Running
from ullage_node.mps.records import Limits, Order, Server

HEALTH_SECONDS: Final = 5.0
"""Between two looks at a healthy server."""
UNSETTLED_SECONDS: Final = 1.0
"""Between two looks at any other."""
YOUNG_SECONDS: Final = 0.1
"""Between two looks at one that was started just now: containers may wait for it."""
LISTEN_SECONDS: Final = 5.0
"""How long a new daemon may need until it listens."""
START_SECONDS: Final = 15.0
"""How long a server may initialise."""
MUTE_SECONDS: Final = 8.0
"""How long a living daemon may give no good answer."""
FAULT_SECONDS: Final = 20.0
"""How long clients of a faulted server may stay; a clean exit of all of them heals it."""
QUEUE_SECONDS: Final = 10.0
"""How long a client may wait for a server while none of its kind is served."""
HEALED_SECONDS: Final = 30.0
"""The promise that the times above add up to."""
EVICT_SECONDS: Final = 4.0
"""Together for all clients, before their server is started again."""
STOP_SECONDS: Final = 2.0
BACKOFF_FIRST_SECONDS: Final = 0.5
BACKOFF_MOST_SECONDS: Final = 8.0
STEADY_SECONDS: Final = 60.0
"""A daemon that ran so long counts as a success; the back-off begins again."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

Launcher = Callable[[Place, Call], Call]
"""Wraps the daemon's call, so that it sees the device's own ``/dev/shm``."""


class Daemon:
    """The daemon of one device."""

    def __init__(
        self,
        order: Order,
        control: Control,
        programs: Programs,
        places: Places,
        launcher: Launcher,
    ) -> None:
        self.order = order
        self.place = places.of(order)
        self._control = control
        self._programs = programs
        self._places = places
        self._launcher = launcher
        self._running: Running | None = None
        self._lock = asyncio.Lock()
        self._poked = asyncio.Event()
        self._look = Look(server_pid=0, state=MpsState.DOWN)
        self._logs = tuple(self.place.log / name for name in CONTROL_LOGS)
        self._queue = PendingClients(self._logs)
        self._answered = False
        self._state, self._why = MpsState.DOWN, "not started yet"
        self._since = _now()
        self._seen_at: float | None = None
        self._started_at = self._start_after = self._good_at = _now()
        self._backoff = BACKOFF_FIRST_SECONDS
        self._draining = False
        self._faults = self._restarts = 0

    @property
    def server(self) -> Server:
        """Latest known state; the end of the daemon shows at once."""
        if self._running is not None and self._running.returncode is not None:
            self._poked.set()
            self._set(MpsState.DOWN, f"the control daemon ended with {self._running.returncode}")
        age = 0.0 if self._seen_at is None else _now() - self._seen_at
        return Server(
            uuid=self.order.uuid,
            protocol=self.order.protocol,
            state=self._state,
            why=self._why,
            server_pid=self._look.server_pid,
            clients=None if self._seen_at is None else tuple(sorted(self._look.clients)),
            age_ms=int(age * 1000),
            draining=self._draining,
            multi_user=self._control.multi_user,
            memory_key=self._control.memory_key,
            log=self._queue.source,
            faults=self._faults,
            restarts=self._restarts,
        )

    async def run(self) -> None:
        """Serve the device until cancelled; then end the daemon and remove its directory."""
        try:
            while True:
                async with self._lock:
                    pause = await self._step()
                self._poked.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._poked.wait()
        finally:
            async with self._lock:
                await self._end("the device is not served any more")
            self._places.remove(self.place)

    async def refresh(self) -> None:
        """Look at once, because someone needs to know who is attached now."""
        async with self._lock:
            if self._running is not None:
                try:
                    self._take(await self._control.look())
                except (*TROUBLE, ProgramMissing):
                    self._poked.set()  # what to make of it is the step's to say

    async def terminate(self, pid: int) -> str:
        """Tear one client down; "" = its process may be killed now, else why not.

        A client that cannot be torn down puts the server into draining: no one new may come, and
        it is started again as soon as it has no clients.
        """
        async with self._lock:
            try:
                self._take(await self._control.look())
                if pid not in self._look.clients:
                    return ""
                await self._control.terminate(self._look, pid)
                self._take(await self._control.look())
            except (*TROUBLE, ProgramMissing) as error:
                self._draining = self._draining or pid in self._look.clients
                self._poked.set()
                return str(error)
            if pid in self._look.clients:
                self._draining = True
                return f"{pid} is still attached after terminate_client"
            return ""

    async def limit(self, limits: Limits) -> str:
        """Give a namespace its limits; "" = done."""
        return await self._ask(lambda: self._control.limit(limits))

    async def unlimit(self, name: str) -> str:
        """Remove a namespace; "" = done."""
        return await self._ask(lambda: self._control.unlimit(name))

    async def _ask(self, work: Callable[[], Awaitable[None]]) -> str:
        async with self._lock:
            try:
                await work()
            except (*TROUBLE, ProgramMissing) as error:
                return str(error)
            return ""

    # -- one step --------------------------------------------------------------------------------

    async def _step(self) -> float:
        """Start, look or heal; answers how long to wait before the next step."""
        running = self._running
        if running is not None and running.returncode is not None:
            told = last_words(self._logs)
            await self._fail(
                f"the control daemon ended with status {running.returncode}"
                + (f": {told}" if told else "")
            )
        if self._running is None:
            wait = self._start_after - _now()
            if wait > 0 or not await self._start():
                return max(wait, UNSETTLED_SECONDS / 2)
        await self._watch()
        self._places.trim(self.place)
        if self.server.ready:
            return HEALTH_SECONDS
        young = _now() - self._started_at < LISTEN_SECONDS
        return YOUNG_SECONDS if young and self._state is MpsState.STARTING else UNSETTLED_SECONDS

    async def _start(self) -> bool:
        self._queue.forget()
        try:
            self._places.prepare(self.place)
            call = self._launcher(self.place, self._control.daemon())
            self._running = await self._programs.start(call, self._logs[-1])
        except (PlaceUnusable, ProgramMissing) as error:
            self._set(MpsState.DOWN, str(error))
            self._start_after = _now() + self._next_backoff()
            return False
        self._started_at = self._good_at = _now()
        self._draining = self._answered = False
        self._set(MpsState.STARTING, "the control daemon was started")
        return True

    async def _watch(self) -> None:
        """One look and what follows from it."""
        try:
            look = await self._control.look()
            self._take(look)
            await self._judge(look)
        except ControlDown as error:
            await self._mute(error, LISTEN_SECONDS)
        except TROUBLE as error:
            await self._mute(error, MUTE_SECONDS)

    async def _judge(self, look: Look) -> None:
        match look.state:
            case MpsState.DOWN:
                self._queue.starting(_now())
                await self._control.begin()
                self._set(MpsState.STARTING, "the server is being started")
                await self._expect_start()
            case MpsState.STARTING:
                self._queue.starting(_now())
                self._set(MpsState.STARTING, "the server initialises")
                await self._expect_start()
            case MpsState.FAULT:
                await self._outlast_fault()
            case MpsState.ACTIVE | MpsState.UNKNOWN:
                await self._stay_active(look)
            case _:
                assert_never(look.state)

    async def _stay_active(self, look: Look) -> None:
        if look.default_percent != self._control.default_percent:
            await self._control.begin()  # defaults are lost with a server, or someone set others
        waiting = self._queue.waiting_seconds(_now())
        if waiting >= QUEUE_SECONDS:
            await self._renew(
                f"a client has waited {waiting:.0f} s for the server: its queue hangs"
            )
            return
        if self._draining and not look.clients:
            await self._renew("a client could not be terminated; the server is free of clients now")
            return
        self._good_at = _now()
        self._set(
            MpsState.ACTIVE,
            "waits for its clients to leave: one could not be terminated" if self._draining else "",
        )
        if _now() - self._started_at >= STEADY_SECONDS:
            self._backoff = BACKOFF_FIRST_SECONDS

    async def _expect_start(self) -> None:
        if _now() - max(self._since, self._started_at) >= START_SECONDS:
            await self._renew(f"no server within {START_SECONDS:.0f} s")

    async def _outlast_fault(self) -> None:
        if self._state is not MpsState.FAULT:
            self._faults += 1
            _log.warning("MPS server fault", gpu=self.order.uuid, clients=len(self._look.clients))
        count = len(self._look.clients)
        self._set(MpsState.FAULT, f"a client's fatal fault; {count} clients have not left yet")
        if _now() - self._since >= FAULT_SECONDS:
            await self._renew(f"{count} clients stayed {FAULT_SECONDS:.0f} s after a fatal fault")

    async def _mute(self, error: Exception, patience: float) -> None:
        """No good answer: unknown, and after a while a new daemon."""
        fresh = _now() - self._started_at < patience
        state = MpsState.STARTING if fresh and isinstance(error, ControlDown) else MpsState.UNKNOWN
        self._set(state, str(error) or type(error).__name__)
        if _now() - self._good_at >= patience:
            await self._renew(f"no good answer for {patience:.0f} s: {error}")

    # -- ending ----------------------------------------------------------------------------------

    async def _renew(self, why: str) -> None:
        """End daemon and server, clients first; the next step starts them again."""
        _log.warning("MPS server is started again", gpu=self.order.uuid, why=why)
        await self._end(why)
        self._note_restart()

    async def _fail(self, why: str) -> None:
        """The daemon is gone; its server may not be."""
        if not self._answered:
            self._control.start_otherwise()
        _log.warning("MPS control daemon ended", gpu=self.order.uuid, why=why)
        if self._running is not None:
            await self._running.stop(0)
        self._running = None
        self._forget(why)
        self._note_restart()

    def _note_restart(self) -> None:
        self._restarts += 1
        self._start_after = _now() + self._next_backoff()
        self._poked.set()

    async def _end(self, why: str) -> None:
        if self._running is None:
            return
        await self._evict()
        with contextlib.suppress(*TROUBLE, ProgramMissing):
            await self._control.quit()
        await self._running.stop(STOP_SECONDS)
        self._running = None
        self._forget(why)

    async def _evict(self) -> None:
        """Terminate attached clients, as far as the server still does it."""
        with contextlib.suppress(TimeoutError, *TROUBLE, ProgramMissing):
            async with asyncio.timeout(EVICT_SECONDS):
                for pid in sorted(self._look.clients):
                    with contextlib.suppress(ControlUnclear):
                        await self._control.terminate(self._look, pid)

    def _forget(self, why: str) -> None:
        self._look = Look(server_pid=0, state=MpsState.DOWN)
        self._seen_at = _now()  # no one is attached to a server that does not exist
        self._set(MpsState.DOWN, why)

    # -- small things ----------------------------------------------------------------------------

    def _take(self, look: Look) -> None:
        if look.clients.keys() - self._look.clients.keys():
            self._queue.served()
        self._look, self._seen_at, self._answered = look, _now(), True

    def _set(self, state: MpsState, why: str) -> None:
        if state is not self._state:
            self._since = _now()
            _log.info("MPS server", gpu=self.order.uuid, state=state.value, why=why)
        self._state, self._why = state, why

    def _next_backoff(self) -> float:
        pause = self._backoff
        self._backoff = min(pause * 2, BACKOFF_MOST_SECONDS)
        return pause


def _now() -> float:
    return asyncio.get_running_loop().time()
