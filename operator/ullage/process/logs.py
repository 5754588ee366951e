# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Logs: one JSON object per line on standard error, ours and those of libraries."""

from __future__ import annotations

import logging
import sys
from typing import Final

import structlog

from ullage.process.environment import LogLevel

MOST_CHARACTERS: Final = 8_192
"""Longest text in a log line; exceptions may quote tenants' data, at any length."""


def bounded(_: object, __: str, entry: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Cut the middle out of long texts: beginning and end of a traceback are most useful."""
    half = MOST_CHARACTERS // 2
    for name, value in entry.items():
        if isinstance(value, str) and len(value) > MOST_CHARACTERS:
            entry[name] = f"{value[:half]} … {len(value) - 2 * half} more … {value[-half:]}"
    return entry


def configure_logs(level: LogLevel) -> None:
    """Send everything of ``level`` and above through one JSON renderer."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                bounded,
                structlog.processors.JSONRenderer(sort_keys=True),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.value.upper())
    for chatty in ("aiohttp.access", "asyncio", "grpc"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, root.level))
