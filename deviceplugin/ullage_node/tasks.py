# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Starting named tasks and ending them: every task has an owner that awaits it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence


def spawn(**work: Coroutine[None, None, None]) -> list[asyncio.Task[None]]:
    """Start each piece of work as a task of that name."""
    return [asyncio.create_task(each, name=name) for name, each in work.items()]


async def end(tasks: Sequence[asyncio.Task[object]]) -> None:
    """Cancel the tasks and wait until they are over, whatever they end with."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
