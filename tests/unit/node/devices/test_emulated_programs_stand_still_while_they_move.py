# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from ullage_node.devices.emulated import MIB_PER_SECOND, EmulatedSwitch
from ullage_node.model.devices import ContainerKey
from ullage_node.model.switching import ProcessId, Program, SwitchFailed
from ullage_node.times import EMULATED_MOVE_MOST_S

KEY = ContainerKey(pod_uid="uid-1", container="main")


class Freezer:
    """Notes who stands still for how long; ``problem`` is its answer."""

    def __init__(self, problem: str = "") -> None:
        self.problem = problem
        self.stood: list[tuple[ContainerKey, tuple[int, ...], float]] = []

    async def stand_still(self, key: ContainerKey, pids: tuple[int, ...], seconds: float) -> str:
        self.stood.append((key, pids, seconds))
        return self.problem


def program(memory_mib: int) -> Program:
    processes = (ProcessId(11, 1), ProcessId(12, 1))
    return Program(key=KEY, processes=processes, memory_mib=memory_mib)


async def test_a_container_stands_still_as_long_as_its_memory_takes() -> None:
    freezer = Freezer()
    switch = EmulatedSwitch(freezer.stand_still)
    await switch.suspend(program(MIB_PER_SECOND // 2))
    await switch.resume(program(MIB_PER_SECOND * 100))
    assert freezer.stood == [(KEY, (11, 12), 0.5), (KEY, (11, 12), EMULATED_MOVE_MOST_S)]


async def test_one_that_cannot_be_stopped_is_not_suspended() -> None:
    switch = EmulatedSwitch(Freezer("the guard does not answer").stand_still)
    for move in (switch.suspend, switch.resume):
        with pytest.raises(SwitchFailed, match="the guard does not answer"):
            await move(program(1))
