# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the checkpoint: at most once per change, never two writes at a time.

A container start waits for its write; everything else is saved by the background task soon after.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from ullage_node.slices.checkpoint import Checkpoint, save

RETRY_SECONDS: Final = 5.0

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Saver:
    """Owns the checkpoint file while ``enabled``."""

    def __init__(self, path: Path, compose: Callable[[], Checkpoint]) -> None:
        self._path = path
        self._compose = compose
        self._lock = asyncio.Lock()
        self._poked = asyncio.Event()
        self._saved: Checkpoint | None = None
        self.enabled = True
        self.writes = 0

    def poke(self) -> None:
        """Something may have changed."""
        self._poked.set()

    async def save(self) -> None:
        """Make the present state safe; returns when it is.

        Raises:
            OSError: the file system refuses.
        """
        async with self._lock:
            state = self._compose()
            if not self.enabled or state == self._saved:
                return
            # fsync may take long on a busy disk; the event loop must not wait for it.
            await asyncio.to_thread(save, self._path, state)
            self._saved = state
            self.writes += 1

    async def disable(self) -> None:
        """Write nothing any more; returns when no write is under way."""
        async with self._lock:
            self.enabled = False
            self._saved = None

    async def run(self) -> None:
        """Save after pokes until cancelled."""
        while True:
            await self._poked.wait()
            self._poked.clear()
            try:
                await self.save()
            except OSError as error:
                _log.error("checkpoint not written", path=str(self._path), error=str(error))
                await asyncio.sleep(RETRY_SECONDS)
                self._poked.set()
