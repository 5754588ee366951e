# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One socket for each container that shares a lane; the messages go to its device's lanes.

The socket lies in its own directory that only its container mounts, below one that only root can
enter: so each client is of that container, and the kernel identifies its process. Input is
untrusted: bounded in size, rate and number of connections, and a misbehaving program is delayed or
disconnected alone. A closed connection proves little: a process owns its memory until it has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from ullage.api import lanes as wire
from ullage.api.environment import LANE_SOCKET
from ullage.api.lanes import IterationPolicy, LaneRefusal, Message
from ullage.api.slices import ObservedLane
from ullage.engines.lanes.records import Order, Suspend
from ullage.engines.lanes.safety import UnsafeLanes
from ullage_node.devices.processes import identified, pod_of
from ullage_node.lanes.allowance import ContainerAllowance
from ullage_node.lanes.connection import LaneConnection
from ullage_node.lanes.device import DeviceLanes, IdleLimits
from ullage_node.lanes.listener import LaneListener
from ullage_node.lanes.members import LaneMember
from ullage_node.lanes.moves import Moves
from ullage_node.lanes.outbox import Outbox
from ullage_node.lanes.peers import PeerProcess
from ullage_node.lanes.programs import Turn
from ullage_node.lanes.reports import StepFault, StepReport
from ullage_node.lanes.saved import SavedLanes
from ullage_node.model.slices import LaneReading
from ullage_node.model.switching import ProcessId
from ullage_node.times import GREET_AGAIN_S, LANES_TICK_S, SUSPEND_UNSEEN_S

CONNECTIONS_MOST: Final = 8
"""Most connections of one container."""
STATE: Final = "state"
SOCKETS: Final = "sockets"

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class _LaneSocket:
    """One container's socket."""

    job: str
    pod_uid: str
    device: str
    folder: Path
    allowance: ContainerAllowance
    listener: LaneListener | None = None
    connections: set[LaneConnection] = field(default_factory=set)
    speaker: LaneConnection | None = None
    """The connection of the process that greeted."""
    process: PeerProcess | None = None
    """That process; it may live on without a connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneTenant:
    """A container that holds part of a device; ``slot`` names the directory of its socket."""

    member: LaneMember
    pod_uid: str = ""
    slot: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedDevice:
    """A device as its lanes see it: its memory, if it enforces limits, and its tenants."""

    memory_mib: int
    counts_only: bool
    tenants: tuple[LaneTenant, ...]


class LaneServer:
    """The sockets of a node; all calls from one event loop.

    Args:
        root: directory for sockets and state, gone after a reboot.
        proc_root: the host's ``/proc``.
        clock: seconds since boot, not since process start: leases outlive an agent.
    """

    def __init__(
        self, root: Path, proc_root: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._root = root
        self._proc_root = proc_root
        self._clock = clock
        self._saved = SavedLanes(root / STATE)
        self._began = clock()
        self._places: dict[str, _LaneSocket] = {}
        self._sent: list[tuple[str, Message]] = []
        self._outboxes: dict[str, Outbox[LaneConnection]] = {}
        self._unseen: dict[str, float] = {}
        """Jobs to suspend without a visible process, and since when."""
        self._ended_steps: set[str] = set()
        """Devices with leases that ended since the last save."""
        self._timer: asyncio.TimerHandle | None = None
        self.devices: dict[str, DeviceLanes] = {}
        self.policy = IterationPolicy.FAIR
        self.idle = IdleLimits()
        self.moves = Moves(self._carried_out)
        """Carries out suspends and resumes."""
        self.on_report: Callable[[StepReport], None] = lambda _: None
        self.on_turn: Callable[[Turn], None] = lambda _: None

    # -- containers on the devices ----------------------------------------------------------------

    def folder(self, slot: str) -> Path:
        """Directory that a container with this first slot mounts."""
        return self._root / SOCKETS / slot

    def prepare(self, job: str, slot: str) -> Path:
        """Create the directory of a container that is about to start: its last start has ended.

        Raises:
            OSError: it cannot be created.
        """
        self._restarting(job)
        folder = self.folder(slot)
        for parent in (self._root, folder.parent):
            parent.mkdir(parents=True, exist_ok=True)
            parent.chmod(0o700)  # reached only through a mount of a subdirectory
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
        return folder

    def order_by(self, policy: IterationPolicy) -> None:
        """Set the policy of the next turns of all lanes.

        Args:
            policy: Selects the next step.
        """
        self.policy = policy
        for lanes in self.devices.values():
            lanes.order_by(policy)

    async def settle(self, devices: Mapping[str, SharedDevice]) -> None:
        """Bring devices, members and sockets in line with the slices held now.

        Devices without a container that shares a lane are skipped.

        Raises:
            OSError: a socket could not be created, or the saved state of a device cannot be read
                now.
        """
        now = self._clock()
        wanted = {
            name: device
            for name, device in devices.items()
            if name in self.devices or any(tenant.member.shares for tenant in device.tenants)
        }
        for name in self.devices.keys() - {
            name
            for name, device in wanted.items()
            if any(tenant.member.shares for tenant in device.tenants)
        }:
            self._forget_device(name)
            wanted.pop(name, None)
        for name, device in wanted.items():  # before others get their slots
            lanes = self.devices.get(name) or self._begin(name, device, now)
            held = {tenant.member.job: tenant for tenant in device.tenants}
            for job in [job for job in lanes.jobs if job not in held]:
                lanes.drop(job, now)
                self._close_place(job)
            self._deliver(name)
        for name, device in wanted.items():
            lanes = self.devices[name]
            before = lanes.members
            for tenant in device.tenants:
                lanes.hold(tenant.member, now)
                if tenant.member.shares and tenant.slot:
                    self._open_place(name, tenant)
            self._deliver(name, changed=lanes.members != before)

    def _restarting(self, job: str) -> None:
        place = self._places.get(job)
        if place is not None:
            for connection in tuple(place.connections):
                connection.abort()
            self._gone(place)

    def seen(self, empty: Iterable[str]) -> None:
        """Handle containers observed without a process: their memory is free."""
        for job in empty:
            place = self._places.get(job)
            if place is None or place.speaker is not None:
                continue
            process = place.process
            if process is None and self.moves.lives(self._suspended(place)):
                continue  # its processes live but hold no device memory
            if process is None or process.pidfd < 0 or process.ended:
                self._gone(place)

    def unkept(self, device: str) -> str:
        """The obstacle to writing a device's lanes, for which nothing is granted; empty = none."""
        outbox = self._outboxes.get(device)
        return outbox.problem if outbox is not None else ""

    @property
    def readings(self) -> dict[str, LaneReading]:
        """Readings of the jobs that take turns, by name."""
        now = self._clock()
        return {
            job: reading
            for lanes in self.devices.values()
            for job, reading in lanes.readings(now).items()
        }

    @property
    def observed(self) -> tuple[ObservedLane, ...]:
        """The lanes of all devices."""
        return tuple(
            lane for gpu in sorted(self.devices) for lane in self.devices[gpu].observed(gpu)
        )

    async def run(self) -> None:
        """Report stalls and exceeded limits, until cancelled; then close every socket."""
        try:
            while True:
                self.tick()
                await asyncio.sleep(LANES_TICK_S)
        finally:
            await self.close()

    async def close(self) -> None:
        """Close every socket; leases stay as they are, for the next agent."""
        if self._timer is not None:
            self._timer.cancel()
        for job in tuple(self._places):
            self._close_place(job)
        await self.moves.close()
        self._saved.close()

    def clear(self) -> None:
        """Remove directory and state; only when the node is taken out of service."""
        shutil.rmtree(self._root, ignore_errors=True)

    def tick(self) -> None:
        """Apply the passage of time."""
        now = self._clock()
        for name, lanes in self.devices.items():
            lanes.tick(now)
            if name in self._ended_steps or self.unkept(name):
                self._keep(name)  # else the next agent would wait for an idle program
            self._deliver(name)

    def _begin(self, name: str, device: SharedDevice, now: float) -> DeviceLanes:
        lanes = DeviceLanes(
            capacity_mib=device.memory_mib,
            send=lambda job, message: self._sent.append((job, message)),
            lives=self._lives,
            policy=self.policy,
            enforce=device.counts_only,
            idle=self.idle,
        )
        saved = self._saved.read(name)
        if saved is not None:
            try:
                lanes.restore(saved.table, saved.members, saved.sessions, now)
                for job, processes in saved.processes.items():
                    if job in lanes.jobs:
                        lanes.jobs[job].processes = self._known(processes)
            except (ValueError, UnsafeLanes) as error:
                _log.warning("kept lanes are of no use", device=name, why=str(error))
        self._add(name, lanes)
        return lanes

    def _add(self, name: str, lanes: DeviceLanes) -> None:
        self.devices[name] = lanes
        self._outboxes[name] = Outbox(
            lanes=lanes,
            keep=lambda: self._saved.keep(name, lanes, self._clock()),
            listener=self._speaker,
            say=LaneConnection.say,
            begin=lambda order: self.moves.begin(name, order, lanes.jobs[order.job].processes),
        )

    def _speaker(self, job: str) -> LaneConnection | None:
        place = self._places.get(job)
        return place.speaker if place is not None else None

    def _forget_device(self, name: str) -> None:
        lanes = self.devices.pop(name)
        del self._outboxes[name]
        for job in lanes.jobs:
            self._close_place(job)
        self._saved.remove(name)

    # -- sockets ---------------------------------------------------------------------------------

    def _open_place(self, device: str, tenant: LaneTenant) -> None:
        job = tenant.member.job
        place = self._places.get(job)
        folder = self.folder(tenant.slot)
        if place is not None and (place.folder, place.device) == (folder, device):
            return
        self._close_place(job)
        path = self.prepare(job, tenant.slot) / LANE_SOCKET
        place = _LaneSocket(
            job=job,
            pod_uid=tenant.pod_uid,
            device=device,
            folder=folder,
            allowance=ContainerAllowance(self._clock()),
        )
        place.listener = LaneListener(
            path,
            place.allowance.dials,
            self._clock,
            lambda: LaneConnection(
                job,
                place.allowance,
                self._clock,
                opened=partial(self._opened, place),
                heard=partial(self._hear, place),
                closed=partial(self._hang_up, place),
            ),
        )
        self._places[job] = place

    def _close_place(self, job: str) -> None:
        self._unseen.pop(job, None)
        place = self._places.pop(job, None)
        if place is None:
            return
        if place.listener is not None:
            place.listener.close()
        for connection in tuple(place.connections):
            connection.abort()
        self._unwatch(place)
        if all(
            other.folder != place.folder for other in self._places.values()
        ):  # else the next one's
            with contextlib.suppress(OSError):
                (place.folder / LANE_SOCKET).unlink(missing_ok=True)

    def _opened(self, place: _LaneSocket, connection: LaneConnection) -> None:
        place.connections.add(connection)
        if refusal := self._stranger(place, connection.peer):
            connection.refuse(*refusal)

    def _stranger(self, place: _LaneSocket, peer: PeerProcess) -> tuple[LaneRefusal, str] | None:
        if len(place.connections) > CONNECTIONS_MOST:
            text = f"the container has {CONNECTIONS_MOST} connections already"
            return LaneRefusal.BUSY, text
        pod = pod_of(self._proc_root, peer.pid)  # if unknown, the directory identifies the owner
        if pod not in (None, place.pod_uid):
            return LaneRefusal.FOREIGN_PROCESS, f"process {peer.pid} is of pod {pod}"
        return None

    def _hear(self, place: _LaneSocket, connection: LaneConnection, message: Message) -> None:
        if self._places.get(place.job) is not place:
            return
        if isinstance(message, wire.Hello):
            self._greet(place, connection, message)
        elif place.speaker is not connection:
            text = "the process has not said who it is"
            connection.say(wire.Refused(reason=LaneRefusal.NO_HELLO, message=text))
        else:
            self.devices[place.device].hear(place.job, message, self._clock())
            self._deliver(place.device)

    def _greet(self, place: _LaneSocket, connection: LaneConnection, message: wire.Hello) -> None:
        lanes, now = self.devices[place.device], self._clock()
        same = lanes.sessions.get(place.job) == message.session
        if not same and place.process is not None and place.process.ended:
            self._gone(place)  # before the event loop reported it
        before = place.speaker
        place.speaker = connection
        lanes.hear(place.job, message, now)
        if lanes.sessions.get(place.job) == message.session and lanes.jobs[place.job].connected:
            connection.greeted()
            self._watch(place, connection.peer)
            if before is not None and before is not connection:
                before.abort()
            self._deliver(place.device)
            return
        self._deliver(place.device)
        place.speaker = before

    def _hang_up(self, place: _LaneSocket, connection: LaneConnection) -> None:
        place.connections.discard(connection)
        watched = place.process is connection.peer  # then the end of the watch closes it
        if place.speaker is connection:
            place.speaker = None
            lanes = self.devices.get(place.device)
            if lanes is not None and self._places.get(place.job) is place:
                lanes.closed(place.job, self._clock())
                self._deliver(place.device)
                if place.process is not None and place.process.ended:
                    self._gone(place)
        if not watched:
            connection.peer.close()

    # -- processes -------------------------------------------------------------------------------

    def _lives(self, job: str) -> bool:
        """True if the process that greeted for a job may still hold memory."""
        place = self._places.get(job)
        if place is None:
            return False
        if place.process is not None:
            if place.process.pidfd >= 0:
                return not place.process.ended
            return place.speaker is not None and not place.speaker.closing
        return self._clock() - self._began < GREET_AGAIN_S

    def _watch(self, place: _LaneSocket, peer: PeerProcess) -> None:
        if place.process is peer:
            return
        self._unwatch(place)
        place.process = peer
        if peer.pidfd >= 0:
            asyncio.get_running_loop().add_reader(peer.pidfd, self._ended, place, peer)

    def _unwatch(self, place: _LaneSocket) -> None:
        peer, place.process = place.process, None
        if peer is None:
            return
        if peer.pidfd >= 0:
            asyncio.get_running_loop().remove_reader(peer.pidfd)
        if all(connection.peer is not peer for connection in place.connections):
            peer.close()

    def _ended(self, place: _LaneSocket, peer: PeerProcess) -> None:
        """Handle the end of a process; another process may hold its connection."""
        if place.process is not peer:
            return
        speaker = place.speaker
        self._gone(place)
        if speaker is not None and speaker.peer is peer:
            speaker.abort()

    def _gone(self, place: _LaneSocket) -> None:
        place.speaker = None
        self._unwatch(place)
        lanes = self.devices.get(place.device)
        if lanes is not None and self._places.get(place.job) is place:
            lanes.gone(place.job, self._clock())
            self._deliver(place.device)

    # -- answers ---------------------------------------------------------------------------------

    def _deliver(self, device: str, *, changed: bool = False) -> None:
        """Persist the grants, then send them."""
        lanes, outbox = self.devices[device], self._outboxes[device]
        sent, self._sent = self._sent, []
        if any(isinstance(message, wire.Done) for _, message in sent):
            self._ended_steps.add(device)
        before = outbox.problem
        if outbox.deliver(sent, self._ready(lanes), changed=changed):
            self._ended_steps.discard(device)
        self._tell_unkept(device, before)
        while lanes.reports:
            self.on_report(lanes.reports.popleft())
        while lanes.turns:
            self.on_turn(lanes.turns.popleft())
        self._wake()

    def _ready(self, lanes: DeviceLanes) -> list[Order]:
        """The orders that can be carried out now.

        A suspend waits until the processes are visible, which takes a moment after a restart; for a
        container without any it fails in the end.
        """
        orders = [order for order in lanes.orders if lanes.counts(order)]
        lanes.orders.clear()
        ready: list[Order] = []
        for order in orders:
            known, now = lanes.jobs[order.job], self._clock()
            if isinstance(order, Suspend):
                # processes already suspended are no longer visible
                known.processes = known.processes or self.moves.processes(order.job)
                since = self._unseen.setdefault(order.job, now)
                if not known.processes and now - since < SUSPEND_UNSEEN_S:
                    lanes.orders.append(order)
                    continue
            self._unseen.pop(order.job, None)
            ready.append(order)
        return ready

    def _carried_out(self, device: str, order: Order, problem: str) -> None:
        lanes = self.devices.get(device)
        if lanes is not None:
            lanes.carried_out(order, problem, self._clock())
            self._deliver(device, changed=True)

    def _known(self, processes: tuple[ProcessId, ...]) -> tuple[ProcessId, ...]:
        """Saved processes; an earlier version of the agent saved PIDs only."""
        return tuple(
            process
            for kept in processes
            for process in ((kept,) if kept.start else identified(self._proc_root, (kept.pid,)))
        )

    def _suspended(self, place: _LaneSocket) -> tuple[ProcessId, ...]:
        """The processes of a container that is suspended; empty = it is not."""
        lanes = self.devices.get(place.device)
        away = lanes is not None and lanes.is_away(place.job)
        return lanes.jobs[place.job].processes if lanes is not None and away else ()

    def _keep(self, device: str) -> None:
        outbox = self._outboxes[device]
        before = outbox.problem
        if outbox.kept():
            self._ended_steps.discard(device)
        self._tell_unkept(device, before)

    def _tell_unkept(self, device: str, before: str) -> None:
        """Report the change: once when a device's lanes cannot be written, once when they can."""
        problem = self._outboxes[device].problem
        if bool(problem) == bool(before):
            return
        if not problem:
            _log.info("lanes are kept again, and grants are told", device=device)
            return
        _log.error("lanes cannot be kept, so nothing is granted", device=device, why=problem)
        text = f"no step is granted until the node can write down whose turn it is: {problem}"
        for job in self.devices[device].jobs:
            self.on_report(StepReport(job=job, fault=StepFault.UNKEPT, message=text))

    def _wake(self) -> None:
        """Wake up when the first undelivered grant expires."""
        ends = [at for lanes in self.devices.values() if (at := lanes.wake_s) is not None]
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if ends:
            wait_s = max(0.0, min(ends) - self._clock())
            self._timer = asyncio.get_running_loop().call_later(wait_s, self.tick)
