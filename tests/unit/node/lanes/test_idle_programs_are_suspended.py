# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Three programs of which the device holds two at a time: sockets, orders, restarts, failures."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from fakes.lanes_rig import LaneRig, Wire, eventually, hello
from ullage.api.lanes import (
    Acquire,
    Done,
    Empty,
    Grant,
    InLane,
    InQueue,
    LaneRefusal,
    Refused,
    Release,
)
from ullage_node.lanes.reports import StepFault
from ullage_node.model.switching import Program, SwitchFailed

JOBS = ("a", "b", "c")


@dataclass
class Switch:
    """Notes who comes and goes; ``refuses`` says what fails, ``slow`` is open while one may end."""

    moves: list[tuple[str, str, tuple[int, ...]]] = field(default_factory=list)
    refuses: dict[tuple[str, str], str] = field(default_factory=dict)
    slow: asyncio.Event = field(default_factory=asyncio.Event)
    away: set[str] = field(default_factory=set)

    async def suspend(self, program: Program) -> None:
        await self._move("suspend", program)
        self.away.add(program.key.pod_uid)

    async def resume(self, program: Program) -> None:
        await self._move("resume", program)
        self.away.discard(program.key.pod_uid)

    async def _move(self, what: str, program: Program) -> None:
        job = program.key.pod_uid
        self.moves.append((what, job, tuple(process.pid for process in program.processes)))
        await self.slow.wait()
        if why := self.refuses.get((what, job)):
            raise SwitchFailed(why)

    @property
    def said(self) -> list[str]:
        return [f"{what} {job}" for what, job, _ in self.moves]


@dataclass
class Scene:
    """The rig with its switch, and a connection of each program."""

    rig: LaneRig
    switch: Switch
    paths: dict[str, Path] = field(default_factory=dict)
    wires: dict[str, Wire] = field(default_factory=dict)

    async def greet(self, job: str, *, caches: bool = False) -> None:
        self.wires[job] = await self.rig.wire(self.paths[job])
        await self.wires[job].say(hello(job, caches=caches))

    async def granted(self, job: str) -> int:
        """The lease of a job's next step; what is told of its lane before is passed over."""
        while not isinstance(message := await self.wires[job].hear(), Grant):
            assert isinstance(message, InLane | Done), message
        return message.lease

    async def step(self, job: str) -> None:
        await self.wires[job].say(Acquire())
        lease = await self.granted(job)
        await self.wires[job].say(Release(lease=lease, emptied=True))
        assert isinstance(await self.wires[job].hear(), Done)

    def told(self, fault: StepFault) -> list[str]:
        return [one.job for one in self.rig.reports if one.fault is fault]


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    """Jobs of 100 + 300 MiB on 520 MiB, with the node's tasks running."""
    switch = Switch()
    switch.slow.set()
    made = Scene(LaneRig(root=tmp_path, memory_mib=520, switch=switch), switch)
    for job in JOBS:
        made.paths[job] = await made.rig.hold(job, 100, 300, lane=1, suspendable=1)
    tick = asyncio.create_task(_tick(made.rig))
    yield made
    tick.cancel()
    await made.rig.close()


async def _tick(rig: LaneRig) -> None:
    while True:
        rig.server.tick()
        await asyncio.sleep(0.01)


async def full(scene: Scene) -> None:
    """Programs a and b are on the device and c has greeted."""
    for job in ("a", "b"):
        await scene.greet(job)
        assert isinstance(await scene.wires[job].hear(), InLane)
    await scene.step("b")
    await scene.greet("c")
    assert isinstance(await scene.wires["c"].hear(), InQueue)


async def test_three_programs_run_where_two_fit(scene: Scene) -> None:
    await full(scene)
    assert isinstance(await scene.wires["c"].hear(), InLane)
    for job in (*JOBS, *JOBS):
        await scene.step(job)
    assert scene.switch.said[:3] == ["suspend a", "suspend b", "resume a"]
    assert scene.told(StepFault.SUSPENDED)[:2] == ["a", "b"]
    assert scene.told(StepFault.RESUMED)[0] == "a"
    assert "a" in scene.told(StepFault.RESTORE_REFUSED), "it asked before its memory was free"
    assert len(scene.switch.away) == 1


async def test_nothing_is_granted_before_the_memory_is_back(scene: Scene) -> None:
    await full(scene)
    assert isinstance(await scene.wires["c"].hear(), InLane)
    scene.switch.slow.clear()
    await scene.wires["a"].say(Acquire())
    await eventually(lambda: "suspend b" in scene.switch.said)
    assert await scene.wires["a"].silent(0.1)
    scene.switch.slow.set()
    await scene.granted("a")
    assert scene.switch.said == ["suspend a", "suspend b", "resume a"]


async def test_what_is_suspended_is_known_to_the_next_agent(scene: Scene) -> None:
    scene.rig.pids["a"] = (os.getpid(),)
    await full(scene)
    assert isinstance(await scene.wires["c"].hear(), InLane)
    scene.rig.pids["a"] = ()  # a GPU shows no process that is suspended
    await scene.rig.restart()
    scene.rig.server.seen(["a"])
    assert [one.job for one in scene.rig.server.devices["gpu"].members] == list(JOBS)
    assert scene.rig.server.observed[0].suspended == 1
    await scene.greet("a")
    assert isinstance(await scene.wires["a"].hear(), InQueue), "its memory comes first"
    assert isinstance(await scene.wires["a"].hear(), InLane)
    assert scene.switch.moves[-1] == ("resume", "a", (os.getpid(),))
    await scene.step("a")


async def test_an_agent_that_dies_amid_a_suspend_does_it_again(scene: Scene) -> None:
    scene.switch.slow.clear()
    await full(scene)
    await eventually(lambda: scene.switch.said == ["suspend a"])
    await scene.rig.restart()
    assert await scene.wires["c"].hear() is None
    await scene.greet("c")
    assert isinstance(await scene.wires["c"].hear(), InQueue), "a may still hold its memory"
    scene.switch.slow.set()
    assert isinstance(await scene.wires["c"].hear(), InLane)
    assert scene.switch.said == ["suspend a", "suspend a"]


async def test_a_program_that_cannot_be_suspended_stays_and_its_owner_is_told(
    scene: Scene,
) -> None:
    scene.switch.refuses["suspend", "a"] = "it uses managed memory"
    await full(scene)
    assert isinstance(await scene.wires["c"].hear(), InLane)
    assert scene.switch.said == ["suspend a", "suspend b"], "the other one goes"
    (report,) = [one for one in scene.rig.reports if one.fault is StepFault.SUSPEND_FAILED]
    assert (report.job, "managed memory" in report.message) == ("a", True)
    await scene.step("a")


async def test_a_program_that_cannot_be_resumed_is_told_and_never_granted(scene: Scene) -> None:
    scene.switch.refuses["resume", "a"] = "out of memory"
    await full(scene)
    assert isinstance(await scene.wires["c"].hear(), InLane)
    for _ in range(2):
        await scene.wires["a"].say(Acquire())
        refused = await scene.wires["a"].hear()
        assert isinstance(refused, Refused)
        assert refused.reason is LaneRefusal.STUCK
    assert scene.told(StepFault.RESTORE_FAILED) == ["a"]
    assert scene.switch.said.count("resume a") == 1
    await scene.step("c")


async def test_a_suspended_program_that_dies_is_forgotten(scene: Scene) -> None:
    await full(scene)
    assert isinstance(await scene.wires["c"].hear(), InLane)
    scene.rig.tenants.pop("a")
    await scene.rig.settle()
    assert not scene.rig.server.devices["gpu"].table.away.jobs
    assert scene.rig.server.observed[0].suspended == 0


async def test_a_program_with_a_cache_gives_it_back_after_each_step(scene: Scene) -> None:
    await scene.greet("a", caches=True)
    assert isinstance(await scene.wires["a"].hear(), InLane)
    await scene.wires["a"].say(Acquire())
    lease = await scene.granted("a")
    await scene.wires["a"].say(Release(lease=lease))
    assert await scene.wires["a"].hear() == Empty(lease=lease), "though nobody waits"
    await scene.wires["a"].say(Release(lease=lease, emptied=True))
    assert isinstance(await scene.wires["a"].hear(), Done)


async def test_a_container_without_a_lane_starts_once_its_memory_is_free(scene: Scene) -> None:
    await full(scene)
    assert isinstance(await scene.wires["c"].hear(), InLane)
    scene.switch.slow.clear()
    await scene.rig.hold("plain", memory_mib=120)
    lanes = scene.rig.server.devices["gpu"]
    assert not lanes.has_room("plain")
    await eventually(lambda: len(scene.switch.said) == 2)
    assert not lanes.has_room("plain"), "the program still holds its memory"
    scene.switch.slow.set()
    await eventually(lambda: lanes.has_room("plain"))


async def test_without_a_switch_a_program_stays_where_it_is(scene: Scene) -> None:
    scene.rig.server.moves.switch = None
    await full(scene)
    await eventually(lambda: len(scene.told(StepFault.SUSPEND_FAILED)) == 2)
    assert await scene.wires["c"].silent()
    await scene.step("a")


async def test_what_counts_from_a_start_on_changes_nothing_while_a_program_runs(
    scene: Scene,
) -> None:
    await scene.greet("a")
    assert isinstance(await scene.wires["a"].hear(), InLane)
    tenant = scene.rig.tenants["a"]
    member = replace(tenant.member, suspendable=False, context_mib=512)
    scene.rig.tenants["a"] = replace(tenant, member=member)
    await scene.rig.settle()
    lanes = scene.rig.server.devices["gpu"]
    assert lanes.table.memory.residents["a"].demand.suspendable
    assert lanes.jobs["a"].member == tenant.member
    await scene.step("a")


async def test_a_context_counts_beside_the_memory_of_a_program(scene: Scene) -> None:
    tenant = scene.rig.tenants.pop("a")
    await scene.rig.settle()
    member = replace(tenant.member, context_mib=60)
    scene.rig.tenants["a"] = replace(tenant, member=member)
    await scene.rig.settle()
    await scene.greet("a")
    told = await scene.wires["a"].hear()
    assert isinstance(told, InLane)
    assert told.limit_mib == 400, "its framework is capped at what it asked for"
    assert scene.rig.server.devices["gpu"].table.memory.free_mib == 520 - 160 - 300


@pytest.mark.parametrize("why", ["", "it uses managed memory"])
async def test_a_program_that_greets_while_it_leaves_hears_of_its_lane_afterwards(
    scene: Scene, why: str
) -> None:
    scene.switch.slow.clear()
    if why:
        scene.switch.refuses["suspend", "a"] = why
    await full(scene)
    await eventually(lambda: scene.switch.said == ["suspend a"])
    await scene.wires["a"].close()
    await scene.greet("a")
    assert isinstance(await scene.wires["a"].hear(), InQueue)
    scene.switch.slow.set()
    while not isinstance(await scene.wires["a"].hear(), InLane):
        pass
    await scene.step("a")


async def test_a_program_that_is_stuck_is_told_so_when_it_greets(scene: Scene) -> None:
    scene.switch.refuses["resume", "a"] = "out of memory"
    await full(scene)
    assert isinstance(await scene.wires["c"].hear(), InLane)
    await scene.wires["a"].say(Acquire())
    assert isinstance(await scene.wires["a"].hear(), Refused)
    await scene.wires["a"].close()
    await scene.greet("a")
    refused = await scene.wires["a"].hear()
    assert isinstance(refused, Refused)
    assert refused.reason is LaneRefusal.STUCK


async def test_a_suspend_waits_until_the_processes_are_seen(scene: Scene) -> None:
    scene.rig.pids["a"] = ()
    await full(scene)
    assert await scene.wires["c"].silent(0.1)
    assert not scene.switch.said
    scene.rig.pids["a"] = (os.getpid(),)
    assert isinstance(await scene.wires["c"].hear(), InLane)
    assert scene.switch.moves == [("suspend", "a", (os.getpid(),))]


async def test_a_container_without_a_process_is_not_suspended(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ullage_node.lanes.server.SUSPEND_UNSEEN_S", 0.1)
    scene.rig.pids["a"] = ()
    await full(scene)
    assert isinstance(await scene.wires["c"].hear(), InLane)
    assert scene.switch.said == ["suspend b"], "the other one goes"
    assert scene.told(StepFault.SUSPEND_FAILED) == ["a"]
