# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Moves a container's memory off its device and back while its processes stay alive."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ullage_node.model.devices import ContainerKey


class ProcessId(NamedTuple):
    """PID and start time of a process, ``start`` in ticks since boot.

    The kernel reuses a PID once its process has ended, so both are compared.
    """

    pid: int
    start: int


StandStill = Callable[[ContainerKey, tuple[int, ...], float], Awaitable[str]]
"""Stops a container with these processes for so many seconds; "" = success."""


class SwitchFailed(Exception):
    """A container could not be suspended or resumed; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A container that is suspended or resumed.

    ``processes`` are all that held device memory before it was suspended, by host PID;
    ``memory_mib`` is the size to move, as declared by its owner.
    """

    key: ContainerKey
    processes: tuple[ProcessId, ...]
    memory_mib: int


class ProcessSwitch(Protocol):
    """Suspends and resumes containers. Either call may be repeated after an agent restart."""

    async def suspend(self, program: Program) -> None:
        """Take all memory of the processes off the device; done before = nothing to do.

        Raises:
            SwitchFailed: it keeps its memory, which is still reserved for it, and runs.
        """
        ...

    async def resume(self, program: Program) -> None:
        """Bring the memory back; done before = nothing to do.

        Call it only when the memory is free: otherwise the process is lost.

        Raises:
            SwitchFailed: the memory use of the processes is unknown.
        """
        ...
