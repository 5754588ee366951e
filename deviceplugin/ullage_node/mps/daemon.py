# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One device's control daemon and server: started, watched, repaired, stopped.

A check can fail in four ways (silence, no process, an unreadable answer, a fault), and none of them
counts as healthy. An unhealthy server recovers by itself or is restarted, so that clients may
attach again within :data:`SERVER_HEALED_S`. Clients are terminated through the server before
anything is killed; no process of a tenant is ever killed here.

One task runs :meth:`Daemon.run`; other tasks call :meth:`Daemon.terminate` and
:meth:`Daemon.refresh`, which share its lock, so no two commands to one daemon overlap.

A blocked client queue shows only in the control daemon's log: a client whose uid the server does
not serve is pushed to a list and all later clients wait too, without any error and with the server
Active. Being pushed is normal while a server starts, so it counts only if no client is served
afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, assert_never

import structlog

from ullage.api.devices import MpsState
from ullage_node.mps.control import (
    TROUBLE,
    Control,
    ControlDown,
    ControlUnclear,
    DaemonDirectories,
    DaemonState,
)
from ullage_node.mps.places import CONTROL_LOGS, Places, PlaceUnusable
from ullage_node.mps.programs import ProgramCall, ProgramMissing, ProgramRunner, Running
from ullage_node.mps.records import MpsLimits, MpsServer, ServerOrder
from ullage_node.times import (
    CLIENT_QUEUE_S,
    DAEMON_BACKOFF_FIRST_S,
    DAEMON_BACKOFF_MOST_S,
    DAEMON_LISTEN_S,
    DAEMON_MUTE_S,
    DAEMON_STEADY_S,
    DAEMON_STOP_S,
    SERVER_EVICT_S,
    SERVER_FAULT_S,
    SERVER_LOOK_S,
    SERVER_START_S,
    SERVER_UNSETTLED_LOOK_S,
    SERVER_YOUNG_LOOK_S,
)

PUSHED: Final = b"push client to pending list"
SERVED: Final = (b": Ready", b"Server already exists")
"""Log lines when the list was served, and when a client went straight to its server."""
READ_MAX: Final = 1 << 20
"""Most bytes of a log read at once; older ones are skipped."""
TOLD_MAX: Final = 4096
TOLD_CHARACTERS: Final = 200
"""Most characters reported of the last line of a daemon that ended."""


class PendingClients:
    """Detects clients that wait in vain; times are the caller's, seconds."""

    def __init__(self, logs: Sequence[Path]) -> None:
        self._logs = tuple(logs)
        self._offsets: dict[Path, int] = {}
        self._since: float | None = None

    @property
    def source(self) -> str:
        """Name of the first log that is not empty; "" = none."""
        for log in self._logs:
            with contextlib.suppress(OSError):
                if log.stat().st_size:
                    return log.name
        return ""

    def forget(self) -> None:
        """Reset for a new daemon with a new log."""
        self._offsets.clear()
        self._since = None

    def served(self) -> None:
        """Record that a new client is attached: the queue moves."""
        self._since = None

    def starting(self, now: float) -> None:
        """Record that the server is not ready: requests wait for it."""
        self._read(now)
        if self._since is not None:
            self._since = now

    def waiting_seconds(self, now: float) -> float:
        """Seconds that a client has waited while none was served."""
        self._read(now)
        return 0.0 if self._since is None else now - self._since

    def _read(self, now: float) -> None:
        for line in (line for log in self._logs for line in self._new_lines(log)):
            if PUSHED in line:
                self._since = now if self._since is None else self._since
            elif any(word in line for word in SERVED):
                self._since = None

    def _new_lines(self, log: Path) -> list[bytes]:
        try:
            size = log.stat().st_size
            seen = self._offsets.get(log, 0)
            seen = 0 if size < seen else seen  # truncated, because it grew too large
            start = max(seen, size - READ_MAX)
            with log.open("rb") as file:
                file.seek(start)
                new = file.read(size - start)
        except OSError:
            return []
        whole, _, rest = new.rpartition(b"\n")
        self._offsets[log] = start + len(new) - len(rest)
        return whole.splitlines()


def last_words(logs: Sequence[Path]) -> str:
    """The newest line of the last log that has one, sanitised; "" = none."""
    for log in reversed(logs):
        with contextlib.suppress(OSError), log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TOLD_MAX))
            lines = file.read(TOLD_MAX).decode("utf-8", "replace").split("\n")
            line = next((text.strip() for text in reversed(lines) if text.strip()), "")
            if line:
                return "".join(c for c in line if c.isprintable())[-TOLD_CHARACTERS:]
    return ""


_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

Launcher = Callable[[DaemonDirectories, ProgramCall], ProgramCall]
"""Wraps the daemon's call, so that it sees the device's own ``/dev/shm``."""


class Daemon:
    """The daemon of one device."""

    def __init__(
        self,
        order: ServerOrder,
        control: Control,
        programs: ProgramRunner,
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
        self._look = DaemonState(server_pid=0, state=MpsState.DOWN)
        self._logs = tuple(self.place.log / name for name in CONTROL_LOGS)
        self._queue = PendingClients(self._logs)
        self._answered = False
        self._state, self._why = MpsState.DOWN, "not started yet"
        self._since = _now()
        self._seen_at: float | None = None
        self._started_at = self._start_after = self._good_at = _now()
        self._backoff = DAEMON_BACKOFF_FIRST_S
        self._draining = False
        self._faults = self._restarts = 0

    @property
    def server(self) -> MpsServer:
        """Latest known state; the end of the daemon is visible at once."""
        if self._running is not None and self._running.returncode is not None:
            self._poked.set()
            self._set(MpsState.DOWN, f"the control daemon ended with {self._running.returncode}")
        age = 0.0 if self._seen_at is None else _now() - self._seen_at
        return MpsServer(
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
        """Check at once, because a caller needs the current clients."""
        async with self._lock:
            if self._running is not None:
                try:
                    self._take(await self._control.look())
                except (*TROUBLE, ProgramMissing):
                    self._poked.set()  # the step handles it

    async def terminate(self, pid: int) -> str:
        """Terminate one client; "" = its process may be killed now, else the obstacle.

        If that fails the server drains: it accepts no new clients, and restarts as soon as it has
        none.
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

    async def limit(self, limits: MpsLimits) -> str:
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
        """Start, check or repair; returns the time until the next step."""
        running = self._running
        if running is not None and running.returncode is not None:
            last_line = last_words(self._logs)
            await self._fail(
                f"the control daemon ended with status {running.returncode}"
                + (f": {last_line}" if last_line else "")
            )
        if self._running is None:
            wait = self._start_after - _now()
            if wait > 0 or not await self._start():
                return max(wait, SERVER_UNSETTLED_LOOK_S / 2)
        await self._watch()
        self._places.trim(self.place)
        if self.server.ready:
            return SERVER_LOOK_S
        young = _now() - self._started_at < DAEMON_LISTEN_S
        return (
            SERVER_YOUNG_LOOK_S
            if young and self._state is MpsState.STARTING
            else SERVER_UNSETTLED_LOOK_S
        )

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
        """Check once and act on the result."""
        try:
            look = await self._control.look()
            self._take(look)
            await self._judge(look)
        except ControlDown as error:
            await self._mute(error, DAEMON_LISTEN_S)
        except TROUBLE as error:
            await self._mute(error, DAEMON_MUTE_S)

    async def _judge(self, look: DaemonState) -> None:
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

    async def _stay_active(self, look: DaemonState) -> None:
        if look.default_percent != self._control.default_percent:
            await self._control.begin()  # defaults are lost with a server, or changed externally
        waiting = self._queue.waiting_seconds(_now())
        if waiting >= CLIENT_QUEUE_S:
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
        if _now() - self._started_at >= DAEMON_STEADY_S:
            self._backoff = DAEMON_BACKOFF_FIRST_S

    async def _expect_start(self) -> None:
        if _now() - max(self._since, self._started_at) >= SERVER_START_S:
            await self._renew(f"no server within {SERVER_START_S:.0f} s")

    async def _outlast_fault(self) -> None:
        if self._state is not MpsState.FAULT:
            self._faults += 1
            _log.warning("MPS server fault", gpu=self.order.uuid, clients=len(self._look.clients))
        count = len(self._look.clients)
        self._set(MpsState.FAULT, f"a client's fatal fault; {count} clients have not left yet")
        if _now() - self._since >= SERVER_FAULT_S:
            await self._renew(f"{count} clients stayed {SERVER_FAULT_S:.0f} s after a fatal fault")

    async def _mute(self, error: Exception, patience: float) -> None:
        """Handle a missing answer: unknown, and after a while a new daemon."""
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
        """Handle the end of the daemon; its server may still run."""
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
        await self._running.stop(DAEMON_STOP_S)
        self._running = None
        self._forget(why)

    async def _evict(self) -> None:
        """Terminate attached clients, if the server still responds."""
        with contextlib.suppress(TimeoutError, *TROUBLE, ProgramMissing):
            async with asyncio.timeout(SERVER_EVICT_S):
                for pid in sorted(self._look.clients):
                    with contextlib.suppress(ControlUnclear):
                        await self._control.terminate(self._look, pid)

    def _forget(self, why: str) -> None:
        self._look = DaemonState(server_pid=0, state=MpsState.DOWN)
        self._seen_at = _now()  # a server that does not exist has no clients
        self._set(MpsState.DOWN, why)

    # -- helpers ---------------------------------------------------------------------------------

    def _take(self, look: DaemonState) -> None:
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
        self._backoff = min(pause * 2, DAEMON_BACKOFF_MOST_S)
        return pause


def _now() -> float:
    return asyncio.get_running_loop().time()
