# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Carries out the orders of a device's lanes: suspends containers and resumes them.

One order at a time per device, since they share its bus; each ends within ``MOVE_MOST_S``. The
outcome is reported to the owner. The lane engine ensures before that the memory is free; nothing is
retried here.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from ullage.engines.lanes.records import Order, Resume
from ullage_node.devices.processes import lives
from ullage_node.model.switching import ProcessId, ProcessSwitch, Program, SwitchFailed
from ullage_node.times import MOVE_MOST_S

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Moves:
    """The suspends and resumes under way.

    Args:
        done: Called with the device, the order, and the reason of failure; empty = success.
    """

    def __init__(self, done: Callable[[str, Order, str], None]) -> None:
        self._done = done
        self._tasks: set[asyncio.Task[None]] = set()
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.switch: ProcessSwitch | None = None
        """The mechanism; ``None`` = this node suspends nothing."""
        self.find: Callable[[str], Program | None] = lambda _: None
        """The container of a job, with its currently visible processes."""
        self.proc_root = Path("/proc")

    def processes(self, job: str) -> tuple[ProcessId, ...]:
        """The processes of a job that are visible on its device now."""
        program = self.find(job)
        return program.processes if program is not None else ()

    def lives(self, processes: Sequence[ProcessId]) -> bool:
        """True if any of these processes still exists."""
        return any(lives(self.proc_root, process) for process in processes)

    def begin(self, device: str, order: Order, processes: tuple[ProcessId, ...]) -> None:
        """Start to carry out an order; never waits.

        Args:
            device: UUID.
            order: An order of its lanes.
            processes: The container's processes when it was suspended.
        """
        task = asyncio.get_running_loop().create_task(self._carry_out(device, order, processes))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Stop waiting; orders under way are resumed by the next agent."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry_out(self, device: str, order: Order, processes: tuple[ProcessId, ...]) -> None:
        back = isinstance(order, Resume)
        async with self._locks[device]:
            problem = await self._try(order, processes, back=back)
        context = {"job": order.job, "device": device, "processes": len(processes)}
        if problem:
            _log.warning("resume failed" if back else "suspend failed", why=problem, **context)
        else:
            _log.info("resumed" if back else "suspended", **context)
        self._done(device, order, problem)

    async def _try(self, order: Order, processes: tuple[ProcessId, ...], *, back: bool) -> str:
        """Carry out an order; the text of its failure, empty = none."""
        program = self.find(order.job)
        if self.switch is None:
            return "this node suspends no processes any more"
        if program is None or not processes:
            return "no process of the container is seen on the device"
        alive = tuple(process for process in processes if lives(self.proc_root, process))
        if not alive:
            return "the processes of the container have ended"
        moved = replace(program, processes=alive)
        try:
            async with asyncio.timeout(MOVE_MOST_S):
                await (self.switch.resume(moved) if back else self.switch.suspend(moved))
        except SwitchFailed as error:
            return str(error)
        except TimeoutError:
            return f"it did not end within {MOVE_MOST_S:.0f} s"
        return ""
