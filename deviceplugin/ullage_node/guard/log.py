# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The log of guard and watchdog: one JSON object a line on standard error, as the agent's.

Standard library only: both processes run on every node beside the agent, and a logging library
would be most of their memory.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from typing import Final

from ullage.process.environment import LogLevel

_ORDER: Final = tuple(LogLevel)
_least = LogLevel.INFO


def configure_log(level: LogLevel) -> None:
    """Log ``level`` and above."""
    global _least
    _least = level


class Log:
    """The log of one module."""

    def __init__(self, name: str) -> None:
        self._name = name

    def info(self, event: str, **fields: object) -> None:
        """Log a normal action."""
        self._say(LogLevel.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Log a condition that needs attention."""
        self._say(LogLevel.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Log a failure."""
        self._say(LogLevel.ERROR, event, fields)

    def _say(self, level: LogLevel, event: str, fields: dict[str, object]) -> None:
        if _ORDER.index(level) < _ORDER.index(_least):
            return
        line = {
            **fields,
            "event": event,
            "level": level.value,
            "logger": self._name,
            "timestamp": _timestamp(time.time_ns() // 1000),
        }
        # A log that cannot be written must not keep a container frozen.
        with contextlib.suppress(OSError):
            print(json.dumps(line, sort_keys=True, default=repr), file=sys.stderr, flush=True)


def _timestamp(micros: int) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(micros // 1_000_000))
    return f"{seconds}.{micros % 1_000_000:06d}Z"
