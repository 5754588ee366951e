# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Entry point of the webhook's pods: prepare pods that request devices, until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import signal
from importlib.metadata import version
from pathlib import Path
from typing import Final

import structlog

from ullage.process.environment import LogLevel
from ullage.process.logs import configure_logs
from ullage.webhook.server import WebhookServer

log = structlog.get_logger("ullage.webhook")

PORT: Final = 9443
CERTIFICATES: Final = "/etc/ullage/webhook"
LEAVE_S: Final = 5.0
"""The API server calls a terminating pod until its endpoint is withdrawn everywhere."""


def run(arguments: list[str] | None = None) -> None:
    """Entry point of ``ullage-webhook``."""
    options = _parser().parse_args(arguments)
    configure_logs(LogLevel(options.log_level))
    asyncio.run(serve(options.port, Path(options.certificates), leave_s=LEAVE_S))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ullage-webhook", description=__doc__)
    parser.add_argument("--version", action="version", version=version("ullage"))
    parser.add_argument("--port", type=int, default=PORT, help="port to serve on")
    parser.add_argument(
        "--certificates", default=CERTIFICATES, help="folder with tls.crt and tls.key"
    )
    parser.add_argument(
        "--log-level",
        default=LogLevel.INFO.value,
        choices=[level.value for level in LogLevel],
        help="least severe lines of the log",
    )
    return parser


async def serve(port: int, folder: Path, *, leave_s: float) -> None:
    """Serve until SIGTERM, and a little longer (seconds)."""
    ends = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ends.set)
    server = WebhookServer(folder)
    await server.start(port)
    log.info("serving", port=port, version=version("ullage"))
    try:
        await ends.wait()
        await asyncio.sleep(leave_s)
    finally:
        await server.stop()
    log.info("stopped")


if __name__ == "__main__":
    run()
