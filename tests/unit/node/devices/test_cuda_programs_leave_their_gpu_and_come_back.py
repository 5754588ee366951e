# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's program is run by its words alone; a stand-in keeps the state of each process in a file.

What the driver does with them needs a GPU and is not tested here.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from fakes.proc_tree import START, a_process
from ullage.api.readers import WireError
from ullage_node.devices.nvidia.cuda_checkpoint import (
    PIDS_MOST,
    CudaCheckpoint,
    CudaState,
    HostCheckpoint,
)
from ullage_node.line_socket import LineServer
from ullage_node.model.devices import ContainerKey
from ullage_node.model.switching import ProcessId, Program, SwitchFailed

STAND_IN = """#!{python}
import pathlib, sys, time
here = pathlib.Path(__file__).parent
words = sys.argv[1:]
with (here / "calls").open("a") as calls:
    calls.write(" ".join(words) + chr(10))
if words == ["--help"]:
    sys.exit(0)
action = words[words.index("--action") + 1] if "--action" in words else "get-state"
state = here / words[words.index("--pid") + 1]
if (here / f"fails-{{action}}-{{state.name}}").exists():
    print("out of memory")
    sys.exit(1)
before = state.read_text()
if action == "get-state":
    print(before)
    sys.exit(0)
rules = {{
    "lock": ("running", "locked"),
    "checkpoint": ("locked", "checkpointed"),
    "restore": ("checkpointed", "locked"),
    "unlock": ("locked", "running"),
}}
needs, after = rules[action]
if before != needs:
    print("the process is", before)
    sys.exit(1)
state.write_text(after)
"""


BOTH = (ProcessId(11, START), ProcessId(12, START))


class Driver:
    """The stand-in, and what it knows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "cuda-checkpoint"
        self.path.write_text(STAND_IN.format(python=sys.executable))
        self.path.chmod(self.path.stat().st_mode | stat.S_IXUSR)
        self.program = CudaCheckpoint(path=self.path, proc_root=folder / "proc")
        for pid in (11, 12):
            self.set(pid, "running")
            a_process(folder / "proc", pid)

    def set(self, pid: int, state: str) -> None:
        (self.folder / str(pid)).write_text(state)

    def fails(self, action: str, pid: int) -> None:
        (self.folder / f"fails-{action}-{pid}").touch()

    @property
    def states(self) -> list[str]:
        return [(self.folder / str(pid)).read_text() for pid in (11, 12)]

    @property
    def actions(self) -> list[str]:
        calls = (self.folder / "calls").read_text().splitlines()
        return [one for one in calls if one.startswith("--action")]


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path)


async def test_all_processes_of_a_container_leave_and_come_back(driver: Driver) -> None:
    await driver.program.suspend(BOTH)
    assert driver.states == ["checkpointed", "checkpointed"]
    assert driver.actions[:2] == [
        "--action lock --timeout 10000 --pid 11",
        "--action lock --timeout 10000 --pid 12",
    ], "none is copied before all stand still"
    await driver.program.resume(BOTH)
    assert driver.states == ["running", "running"]


async def test_what_was_done_before_is_not_done_again(driver: Driver) -> None:
    driver.set(11, "checkpointed")
    await driver.program.suspend(BOTH)
    assert driver.states == ["checkpointed", "checkpointed"]
    driver.set(11, "running")
    driver.set(12, "locked")
    await driver.program.resume(BOTH)
    assert driver.states == ["running", "running"]


@pytest.mark.parametrize("action", ["lock", "checkpoint"])
@pytest.mark.parametrize("before", ["running", "checkpointed"])
async def test_where_one_cannot_leave_all_run_on(driver: Driver, action: str, before: str) -> None:
    driver.set(11, before)
    driver.fails(action, 12)
    with pytest.raises(SwitchFailed, match="out of memory"):
        await driver.program.suspend(BOTH)
    assert driver.states == ["running", "running"]


async def test_a_restore_that_fails_is_told_and_not_tried_again(driver: Driver) -> None:
    await driver.program.suspend(BOTH)
    driver.fails("restore", 11)
    with pytest.raises(SwitchFailed, match="--action restore --pid 11: out of memory"):
        await driver.program.resume(BOTH)
    assert driver.states == ["checkpointed", "checkpointed"]
    assert driver.actions.count("--action restore --pid 11") == 1


async def test_a_process_that_is_lost_or_unknown_is_no_process_that_came_back(
    driver: Driver,
) -> None:
    driver.set(11, "failed")
    with pytest.raises(SwitchFailed, match="lost"):
        await driver.program.resume(BOTH[:1])
    driver.set(11, "asleep")
    with pytest.raises(SwitchFailed, match="asleep"):
        await driver.program.resume(BOTH[:1])
    assert await driver.program.state(BOTH[1]) is CudaState.RUNNING


async def test_who_has_the_number_of_a_process_that_ended_is_left_alone(driver: Driver) -> None:
    """The kernel gives numbers again: what was seen, or kept over a restart, is compared first."""
    await driver.program.suspend(BOTH)
    a_process(driver.folder / "proc", 11, start=START + 1)
    driver.set(11, "running")
    await driver.program.resume(BOTH)
    assert driver.states == ["running", "running"]
    assert not [call for call in driver.actions[4:] if "--pid 11" in call]
    await driver.program.suspend(BOTH)
    assert driver.states == ["running", "checkpointed"]
    with pytest.raises(SwitchFailed, match="have ended"):
        await driver.program.resume(BOTH[:1])
    with pytest.raises(SwitchFailed, match="process 11 has ended"):
        await driver.program.state(BOTH[0])


async def test_an_agent_of_an_earlier_version_names_numbers_alone(driver: Driver) -> None:
    answer = await driver.program.answer({"verb": "suspend", "pids": [11, 12]})
    assert answer == {"problem": ""}
    assert driver.states == ["checkpointed", "checkpointed"]


async def test_the_agent_asks_over_a_socket(driver: Driver, tmp_path: Path) -> None:
    host = HostCheckpoint(tmp_path / "checkpoint.sock")
    assert "is not reached" in await host.problem()
    moved = Program(
        key=ContainerKey(pod_uid="uid-1", container="main"), processes=BOTH, memory_mib=100
    )
    async with LineServer(tmp_path / "checkpoint.sock", driver.program.answer):
        assert await host.problem() == ""
        await host.suspend(moved)
        assert driver.states == ["checkpointed", "checkpointed"]
        driver.fails("restore", 12)
        with pytest.raises(SwitchFailed, match="out of memory"):
            await host.resume(moved)


async def test_a_program_that_is_not_there_is_a_reason(tmp_path: Path) -> None:
    program = CudaCheckpoint(path=tmp_path / "nothing")
    assert "cannot be run" in str((await program.answer({"verb": "able"}))["problem"])


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"verb": "toggle", "pids": [11]},
        {"verb": "suspend", "pids": [1]},
        {"verb": "suspend", "pids": ["11"]},
        {"verb": "suspend", "pids": [True]},
        {"verb": "suspend", "pids": "11"},
        {"verb": "suspend", "pids": [2] * (PIDS_MOST + 1)},
        {"verb": "suspend", "pids": [11, 12], "starts": [START]},
        {"verb": "suspend", "pids": [11], "starts": [-1]},
        {"verb": "suspend", "pids": [11], "starts": ["4242"]},
    ],
)
async def test_what_is_no_request_runs_nothing(driver: Driver, request_: dict[str, object]) -> None:
    with pytest.raises(WireError):
        await driver.program.answer(request_)
    assert not (driver.folder / "calls").exists()


async def test_a_program_that_hangs_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "hangs"
    path.write_text('#!/bin/sh\necho $$ > "$0.pid"\nexec sleep 600\n')
    path.chmod(0o700)
    with pytest.raises(SwitchFailed, match="did not end in"):
        await CudaCheckpoint(path=path).able()
    pid = int((tmp_path / "hangs.pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
