# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Lets a notebook keep its memory on a device and use the device only while a cell runs.

::

    %load_ext ullage_run.notebook

Each cell is a step of the lane that the notebook's container shares: it begins when the lane is
free, and other programs use the device between cells. A cell that gets no turn, because the node
refuses it or the user interrupts the wait, runs nothing and shows the error.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, Protocol

from ullage_run import lanes

NO_TURN: Final = (lanes.LaneRefused, TimeoutError, OSError, KeyboardInterrupt)
"""Errors that end a wait for a turn."""

RunCell = Callable[..., Coroutine[Any, Any, Any]]
_original: RunCell | None = None
"""The shell's own function to run cells; a process has one shell."""


class Shell(Protocol):
    """The part of IPython's ``InteractiveShell`` that the extension uses."""

    run_cell_async: RunCell

    def showtraceback(self) -> None:
        """Show the current exception, like that of a cell."""
        ...


def framework() -> lanes.Framework:
    """The installed framework: torch, JAX or none."""
    if find_spec("torch") is not None:
        return lanes.Torch()
    return lanes.JAX() if find_spec("jax") is not None else lanes.Plain()


def load_ipython_extension(shell: Shell) -> None:
    """Make each cell a step; outside a lane nothing changes.

    Args:
        shell: IPython's shell, as ``%load_ext`` passes it.

    Raises:
        ValueError: the container shares a lane, but its memory is not declared.
    """
    global _original
    if _original is None:
        _original = shell.run_cell_async
        shell.run_cell_async = _in_turn(shell, lanes.join(framework()), _original)


def unload_ipython_extension(shell: Shell) -> None:
    """Run cells without turns again.

    Args:
        shell: IPython's shell, as ``%unload_ext`` passes it.
    """
    global _original
    if _original is not None:
        shell.run_cell_async, _original = _original, None


def _in_turn(shell: Shell, lane: lanes.Lane, run: RunCell) -> RunCell:
    """Run cells as steps; a nested cell belongs to the outer cell's step."""
    depth = 0

    @wraps(run)
    async def run_cell_async(raw_cell: str, *args: Any, **options: Any) -> Any:
        nonlocal depth
        if depth:
            return await run(raw_cell, *args, **options)
        step = lane.step()
        try:
            step.__enter__()
        except NO_TURN as error:
            return _refused(shell, raw_cell, error)
        depth += 1
        try:
            result = await run(raw_cell, *args, **options)
        finally:
            depth -= 1
            try:
                step.__exit__(None, None, None)
            except (lanes.LaneRefused, lanes.OutOfLane):
                shell.showtraceback()
        return result

    return run_cell_async


def _refused(shell: Shell, raw_cell: str, error: BaseException) -> Any:
    """The result of a cell that ran nothing; the error is shown."""
    shell.showtraceback()
    ipython = import_module("IPython.core.interactiveshell")  # its shell is the caller
    info = ipython.ExecutionInfo(raw_cell, False, False, True, None)
    result = ipython.ExecutionResult(info)
    result.error_before_exec = error
    return result
