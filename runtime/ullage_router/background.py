# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Parts of the router that run until it stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

log = logging.getLogger("ullage.router")


class BackgroundTasks:
    """Tasks that never end by themselves; if one does, the router has failed."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self.fault: BaseException | None = None
        """Error of the last part that ended."""

    def start(self, part: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run a part."""
        task = asyncio.create_task(part)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def running(self) -> list[asyncio.Task[None]]:
        """All parts, to be cancelled."""
        return list(self._tasks)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("a part of the router ended", exc_info=error)
            self.fault = error
