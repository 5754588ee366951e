# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""An event loop whose time jumps: waiting costs nothing and is exact.

Only for code that touches no sockets: where everything waits for something that no timer will
bring, the test fails at once instead of hanging.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

Result = TypeVar("Result")
START = 1_000.0
TICK = 1e-6
"""A turn of the loop takes this long, as no turn takes no time; else rounding could stop time."""


class _Jumping(selectors.SelectSelector):
    """Instead of waiting, moves the clock of its loop."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everything waits and no timer runs: this would hang for ever")
        self.loop.now += max(TICK, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop that begins at ``START`` seconds."""

    def __init__(self) -> None:
        self.now = START
        selector = _Jumping()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now

    def call_exception_handler(self, context: Mapping[str, Any]) -> None:
        raise context.get("exception") or RuntimeError(context["message"])


class LoopClock:
    """The product's clock on the loop's time."""

    EPOCH = 1_767_323_045.0 - START
    """Makes the virtual wall clock begin at 2026-01-02T03:04:05Z."""

    def now(self) -> float:
        return self.EPOCH + asyncio.get_running_loop().time()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


def run_virtual(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end on a loop of its own."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
