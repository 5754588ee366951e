# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Programs in any order, some against the protocol, with restarts and deaths."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ullage.api import lanes as wire
from ullage.api.lanes import Message
from ullage.engines.lanes.recorded import TableRecord
from ullage.engines.lanes.records import Order, Resume, Suspend
from ullage_node.lanes import saved
from ullage_node.lanes.device import DeviceLanes, IdleLimits
from ullage_node.lanes.members import LaneMember
from ullage_node.lanes.outbox import Outbox
from ullage_node.lanes.saved import PAGE_BYTES, SavedLanes
from ullage_node.times import LANE_TIMES_AGE_S, TURN_PATIENCE_S

MEMORY_MIB = 420
"""All four programs are 80 MiB too much; two of them may be suspended."""
JOBS = ("a", "b", "c", "d")
STEPS = (
    "ask",
    "end",
    "end emptied",
    "hang up",
    "die",
    "wait",
    "late",
    "restart",
    "lie",
    "drop",
    "hold",
    "move",
    "fail",
    "move and restart",
    "full disk",
    "room on disk",
)


@dataclass
class Job:
    """A program as it is, whatever the node believes: who owns memory between steps and in them."""

    session: int = 0
    connected: bool = False
    held: bool = True
    caches: bool = False
    running: int = 0
    kept: int = 0
    lane: int = 0
    asks: bool = False
    away: bool = False
    stuck: bool = False
    wire: int = 0


class World:
    """A device, its programs, and the file that the node keeps."""

    def __init__(self, folder: Path, caches: Mapping[str, bool]) -> None:
        self.saved = SavedLanes(folder)
        self.saved.remove("gpu")
        self.jobs = {name: Job(caches=caches[name]) for name in JOBS}
        self.now = 0.0
        self.orders: dict[str, Order] = {}
        self.sent: list[tuple[str, Message]] = []
        self.is_full = False
        """Nothing can be written; what stands in the files stays."""
        self.dials = 0
        """Connections that were ever made; each job has the number of its own."""
        self.lanes, self.outbox = self._device()
        for name in JOBS:
            self.lanes.hold(member(name), self.now)

    def _device(self) -> tuple[DeviceLanes, Outbox[tuple[str, int]]]:
        lanes = DeviceLanes(
            capacity_mib=MEMORY_MIB,
            send=lambda job, message: self.sent.append((job, message)),
            lives=lambda job: self.jobs[job].session > 0,
            idle=IdleLimits(idle_s=0.0, busy_s=0.0, least_resident_s=0.0),
        )
        outbox = Outbox[tuple[str, int]](
            lanes=lanes,
            keep=self.keep,
            listener=lambda job: (job, self.jobs[job].wire) if self.jobs[job].connected else None,
            say=lambda listener, message: self.told(listener[0], message),
            begin=lambda order: self.orders.update({order.job: order}),
        )
        return lanes, outbox

    def act(self, name: str, step: str) -> None:
        """One event of one job."""
        job = self.jobs[name]
        self.now += 0.001
        if step == "wait":
            self.lanes.tick(self.now)
        elif step == "late":
            self.now += 2 * TURN_PATIENCE_S
            self.lanes.tick(self.now)
        elif step in ("full disk", "room on disk"):
            self.is_full = step == "full disk"
            self.again()
        elif step == "restart":
            self.restart()
        elif step in ("move", "fail") and name in self.orders:
            self.move(name, done=step == "move")
        elif step == "move and restart" and name in self.orders:
            self.moved(name, self.orders.pop(name))  # and the agent never hears of it
            self.restart()
        elif step == "hang up":
            job.connected = job.asks = False
            self.lanes.closed(name, self.now)
        elif step == "die":
            self.die(name)
        elif step == "drop":
            self.die(name)
            self.jobs[name].held = False
            self.lanes.drop(name, self.now)
        elif step == "hold":
            job.held = True
            self.lanes.hold(member(name), self.now)
        elif job.held:
            self.speak(name, step)
        self.deliver()

    def die(self, name: str) -> None:
        """The process ends; what it owned is free."""
        job = self.jobs[name]
        self.jobs[name] = Job(held=job.held, caches=job.caches)
        self.lanes.gone(name, self.now)

    def move(self, name: str, *, done: bool) -> None:
        """An order is carried out, or fails."""
        order = self.orders.pop(name)
        if not self.lanes.counts(order):
            return
        if done:
            self.moved(name, order)
        elif isinstance(order, Resume):
            self.jobs[name].stuck = True
        else:
            self.jobs[name].away = False  # whoever cannot suspend brings back what left before
        self.lanes.carried_out(order, "" if done else "no", self.now)
        self.deliver(changed=True)

    def moved(self, name: str, order: Order) -> None:
        """The memory of a program leaves the device or comes back; done before = nothing."""
        if self.lanes.counts(order):
            self.jobs[name].away = isinstance(order, Suspend)

    def speak(self, name: str, step: str) -> None:
        """The program says something, greeting first where it is not connected."""
        job = self.jobs[name]
        if step == "lie":
            self.lanes.hear(name, wire.Release(lease=job.running + 1, emptied=True), self.now)
            return
        if not job.connected:
            self.greet(name)
        if step == "ask" and job.lane and not job.running and not job.asks:
            job.asks = True
            self.lanes.hear(name, wire.Acquire(), self.now)
        elif step.startswith("end") and job.running:
            emptied = step == "end emptied" or not job.caches
            lease, job.running = job.running, 0
            job.kept = 0 if emptied else lease
            self.lanes.hear(name, wire.Release(lease=lease, emptied=emptied), self.now)

    def greet(self, name: str) -> None:
        """Connect again: memory of a step that has ended is given back first."""
        job = self.jobs[name]
        job.session = job.session or 1
        self.dials += 1
        job.connected, job.kept, job.lane, job.wire = True, 0, 0, self.dials
        hello = wire.Hello(
            session="s",
            persistent_mib=member(name).persistent_mib,
            ephemeral_mib=member(name).ephemeral_mib,
            caches=job.caches,
            lease=job.running,
        )
        self.lanes.hear(name, hello, self.now)
        self.deliver()

    def restart(self) -> None:
        """Another agent reads the file; every connection is gone."""
        self.deliver()
        self.orders.clear()
        for job in self.jobs.values():
            job.connected = job.asks = False
        self.saved.close()
        self.saved = SavedLanes(self.saved.path)
        kept = self.saved.read("gpu")
        self.lanes, self.outbox = self._device()
        if kept is not None:
            self.lanes.restore(kept.table, kept.members, kept.sessions, self.now)
        for name in [name for name in self.lanes.jobs if not self.jobs[name].held]:
            self.lanes.drop(name, self.now)
        for name, job in self.jobs.items():
            if job.held:
                self.lanes.hold(member(name), self.now)
                if not job.session:
                    self.lanes.gone(name, self.now)

    def deliver(self, *, changed: bool = False) -> None:
        """What the server does, and what programs do with what they hear."""
        while self.sent or changed or (self.lanes.orders and not self.outbox.problem):
            sent, self.sent[:] = list(self.sent), []
            orders = [one for one in self.lanes.orders if self.lanes.counts(one)]
            self.lanes.orders.clear()
            self.outbox.deliver(sent, orders, changed=changed)
            changed = False

    def again(self) -> None:
        """The node tries to write what it could not."""
        if self.outbox.problem:
            self.outbox.kept()
            self.deliver(changed=True)

    def keep(self) -> None:
        """The files, as the server writes them."""
        if not self.is_full:
            self.saved.keep("gpu", self.lanes, self.now)
            return
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with patch.object(saved, "write_whole", side_effect=full):
            self.saved.keep("gpu", self.lanes, self.now)

    def told(self, name: str, message: Message) -> None:
        """A program hears something, if it still listens."""
        job = self.jobs[name]
        if not job.connected:
            return
        if isinstance(message, wire.Grant):
            assert job.asks
            assert not job.away
            assert not job.stuck
            job.running, job.kept, job.asks, job.lane = message.lease, 0, False, message.lane
        elif isinstance(message, wire.InLane):
            job.lane = message.lane
        elif isinstance(message, wire.Empty) and job.kept == message.lease:
            job.kept = 0
            self.lanes.hear(name, wire.Release(lease=message.lease, emptied=True), self.now)
        elif isinstance(message, wire.Refused):
            job.asks = False

    def check(self) -> None:
        """Nobody owns a step's memory beside another of its lane, and all of it fits the device."""
        owners = {name: one for name, one in self.jobs.items() if one.running or one.kept}
        residents = self.lanes.table.memory.residents
        assert not any(one.away for one in owners.values())
        assert owners.keys() <= residents.keys()
        places = [residents[name].lane for name in owners]
        assert len(places) == len(set(places))
        alive = [name for name, one in self.jobs.items() if one.lane and name in residents]
        here = [name for name, one in self.jobs.items() if one.lane and one.held and not one.away]
        assert set(here) <= residents.keys() | self.lanes.table.queue.keys()
        used = sum(member(name).persistent_mib for name in alive if not self.jobs[name].away)
        used += sum(member(name).ephemeral_mib for name in owners)
        assert used <= MEMORY_MIB


def member(name: str) -> LaneMember:
    """What a job asks for: some fit beside each other, some only in turns."""
    ephemeral = {"a": 300, "b": 250, "c": 100, "d": 60}[name]
    return LaneMember(
        job=name,
        memory_mib=400,
        persistent_mib=50,
        ephemeral_mib=ephemeral,
        suspendable=name in ("b", "c"),
    )


def without_times(table: TableRecord) -> dict[str, Any]:
    """A record without what may be a second old."""
    body = asdict(table)
    for resident in (one for lane in body["lanes"] for one in lane["residents"]):
        for name in ("waited_s", "ran_s", "steps", "step_s", "peak_mib"):
            del resident[name]
    return body


SHARED = [HealthCheck.function_scoped_fixture]  # each world begins with no file
EVENTS = st.lists(st.tuples(st.sampled_from(JOBS), st.sampled_from(STEPS)), max_size=40)
CACHES = st.fixed_dictionaries({name: st.booleans() for name in JOBS})


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=SHARED)
@given(EVENTS, CACHES)
def test_a_lane_has_one_owner_whatever_happens(
    tmp_path: Path,
    events: list[tuple[str, str]],
    caches: dict[str, bool],
) -> None:
    world = World(tmp_path, caches)
    for name, step in events:
        world.act(name, step)
        world.check()


@pytest.mark.slow
@settings(max_examples=30, deadline=None, suppress_health_check=SHARED)
@given(EVENTS, CACHES)
def test_who_asks_is_granted_in_the_end(
    tmp_path: Path,
    events: list[tuple[str, str]],
    caches: dict[str, bool],
) -> None:
    world = World(tmp_path, caches)
    for name, step in events:
        world.act(name, step)
    world.act("a", "room on disk")
    done: set[str] = set()
    for _ in range(12):
        for name, job in world.jobs.items():
            if not job.held:
                continue
            if job.stuck:
                world.die(name)
                world.deliver()
            world.act(name, "ask")
            world.act(name, "late")
            for other in tuple(world.orders):
                world.act(other, "move")
            job = world.jobs[name]
            if job.running:
                done.add(name)
                world.act(name, "end emptied")
            if name in done and job.session:
                world.die(name)
                world.deliver()
    assert done == {name for name, job in world.jobs.items() if job.held}


def test_memory_that_is_kept_is_given_back_for_one_that_is_expected(tmp_path: Path) -> None:
    world = World(tmp_path, {"a": True, "b": False, "c": False, "d": True})
    for name, step in (
        *(("a", "ask"), ("d", "ask")),
        *(("a", "end emptied"), ("d", "end")),  # a was quick, so it is expected back
        *(("d", "ask"), ("a", "ask")),
    ):
        world.act(name, step)
        world.check()


@settings(max_examples=20, deadline=None, suppress_health_check=SHARED)
@given(EVENTS, CACHES)
def test_what_is_kept_is_read_as_it_was(
    tmp_path: Path,
    events: list[tuple[str, str]],
    caches: dict[str, bool],
) -> None:
    world = World(tmp_path, caches)
    for name, step in events:
        world.act(name, step)
    world.act("a", "room on disk")
    world.keep()
    kept = world.saved.read("gpu")
    assert kept is not None
    assert without_times(kept.table) == without_times(world.lanes.table.record())
    assert (kept.members, kept.sessions) == (world.lanes.members, world.lanes.sessions)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"version":3}', b"\xff", b"[" * 9000])
def test_a_file_that_cannot_be_read_counts_as_none(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "gpu.json").write_bytes(data)
    assert SavedLanes(tmp_path).read("gpu") is None


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"[" * 900, b" " * (PAGE_BYTES + 1)])
def test_lanes_whose_leases_cannot_be_read_count_as_none(tmp_path: Path, data: bytes) -> None:
    world = World(tmp_path, dict.fromkeys(JOBS, False))
    world.act("a", "ask")
    assert world.saved.read("gpu") is not None
    (tmp_path / "gpu.leases").write_bytes(data)
    assert SavedLanes(tmp_path).read("gpu") is None


def test_a_step_writes_the_leases_alone(tmp_path: Path) -> None:
    world = World(tmp_path, dict.fromkeys(JOBS, False))
    world.act("a", "ask")
    whole = (tmp_path / "gpu.json").read_bytes()
    world.act("a", "end emptied")
    world.act("a", "ask")
    assert (tmp_path / "gpu.json").read_bytes() == whole
    kept = SavedLanes(tmp_path).read("gpu")
    assert kept is not None
    (lease,) = [one.lease for lane in kept.table.lanes for one in lane.residents if one.lease]
    assert (lease.job, lease.lease) == ("a", world.jobs["a"].running)
    world.now += 2 * LANE_TIMES_AGE_S
    world.act("a", "end emptied")
    world.act("a", "ask")
    assert (tmp_path / "gpu.json").read_bytes() != whole, "times are kept now and then"


def test_the_file_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    world = World(tmp_path, dict.fromkeys(JOBS, False))
    world.act("a", "ask")
    path = tmp_path / "gpu.json"
    body = json.loads(path.read_bytes()) | {"version": 1}
    del body["edition"]
    path.write_text(json.dumps(body))
    (tmp_path / "gpu.leases").unlink()
    kept = SavedLanes(tmp_path).read("gpu")
    assert kept is not None
    assert kept.members == world.lanes.members


def test_a_record_that_contradicts_the_device_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path, dict.fromkeys(JOBS, False))
    world.act("a", "ask")
    world.keep()
    path = tmp_path / "gpu.json"
    body = json.loads(path.read_bytes())
    body["table"]["lanes"][0]["residents"][0]["persistent_mib"] = 10_000
    path.write_text(json.dumps(body))
    kept = SavedLanes(tmp_path).read("gpu")
    assert kept is not None
    fresh = DeviceLanes(capacity_mib=MEMORY_MIB, send=lambda *_: None)
    with pytest.raises((ValueError, RuntimeError)):
        fresh.restore(kept.table, kept.members, kept.sessions, 0.0)
    assert not fresh.jobs
