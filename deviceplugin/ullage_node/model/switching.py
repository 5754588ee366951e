# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Moves a container's memory off its device and back while its processes live on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ullage_node.model.devices import ContainerKey


class ProcessId(NamedTuple):
    """Number and start of a process of this boot, ``start`` in ticks since then.

    The kernel gives a number again once its process has ended, so both are compared.
    """

    pid: int
    start: int


StandStill = Callable[[ContainerKey, tuple[int, ...], float], Awaitable[str]]
"""Lets a container with these processes stand still for so many seconds; "" = it did."""


class SwitchFailed(Exception):
    """A container could not be suspended or resumed; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A container that is suspended or resumed.

    ``processes`` are all that hold memory of the device, by the host's numbers, as they were before
    it was suspended; ``memory_mib`` is what moves, by its owner's word.
    """

    key: ContainerKey
    processes: tuple[ProcessId, ...]
    memory_mib: int


class ProcessSwitch(Protocol):
    """Suspends and resumes containers. Either call may come again after a restart of the agent."""

    async def suspend(self, program: Program) -> None:
        """Take all memory of the processes off the device; done before = nothing to do.

        Raises:
            SwitchFailed: it holds its memory, which is still reserved for it, and runs.
        """
        ...

    async def resume(self, program: Program) -> None:
        """Bring the memory back; done before = nothing to do.

        Call it only where the memory is free: a process that finds none is lost.

        Raises:
            SwitchFailed: what the processes hold is not known.
        """
        ...
