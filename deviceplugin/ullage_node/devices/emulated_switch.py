# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Suspends and resumes containers of emulated devices.

The memory of an emulated device is the machine's own, and is counted, not held: it leaves the
account and comes back to it. Meanwhile all processes of the container stand still for as long as a
GPU would take to copy that much, so that the cost is there. Afterwards they run on, as the CPU
threads of a GPU program do: they get no step, so they do nothing on the device, and one of them
must be able to ask for the next step.
"""

from __future__ import annotations

from typing import Final

from ullage_node.model.switching import Program, StandStill, SwitchFailed
from ullage_node.times import EMULATED_MOVE_MOST_S

MIB_PER_SECOND: Final = 12 * 1024
"""As fast as PCIe 4.0 copies with 16 lanes, less its protocol, to a power of two (derived)."""


class EmulatedSwitch:
    """Lets a container stand still while its memory moves.

    Args:
        stand_still: Stops all its processes for a while.
    """

    def __init__(self, stand_still: StandStill) -> None:
        self._stand_still = stand_still

    async def suspend(self, program: Program) -> None:
        """See :class:`~ullage_node.model.switching.ProcessSwitch`."""
        await self._move(program)

    async def resume(self, program: Program) -> None:
        """See :class:`~ullage_node.model.switching.ProcessSwitch`."""
        await self._move(program)

    async def _move(self, program: Program) -> None:
        seconds = min(program.memory_mib / MIB_PER_SECOND, EMULATED_MOVE_MOST_S)
        pids = tuple(process.pid for process in program.processes)
        problem = await self._stand_still(program.key, pids, seconds)
        if problem:
            raise SwitchFailed(f"it could not be stopped: {problem}")
