# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m ullage_router --backend http://HOST:PORT --objective-ms N ...``.

It prints ``listening PORT METRICS-PORT``, and then the port of gRPC where that is served. SIGTERM
drains it; its exit status is 0 then, 1 after an internal error, 2 for invalid arguments.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Final

import uvloop

from ullage_router.dispatcher import Dispatcher
from ullage_router.server import RouterServer
from ullage_router.settings import Addresses, RouterSettings, addresses_of, parser, settings_of
from ullage_router.times import ENDING_LOOK_S, THREAD_SWITCH_S

BAD_ARGUMENTS: Final = 2
SPARE_FILES: Final = 256
"""Open files beside connections of clients: connections to replicas, and the process's own."""


async def route(settings: RouterSettings, addresses: Addresses) -> int:
    """Route until SIGTERM or SIGINT.

    Returns:
        0, or 1 when a permanent part of the router has ended.

    Raises:
        OSError: an address cannot be listened on.
    """
    asked_to_end = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked_to_end.set)
    dispatcher = Dispatcher(settings)
    server = RouterServer(settings, dispatcher)
    await dispatcher.start()
    try:
        await server.start(addresses)
        # Loaded modules stay; exclude them from collections.
        gc.collect()
        gc.freeze()
        ports = [server.port, server.metrics_port, *([server.grpc_port] if addresses.grpc else [])]
        print("listening", *ports, flush=True)
        while dispatcher.fault is None and not asked_to_end.is_set():
            await asyncio.sleep(ENDING_LOOK_S)
        if dispatcher.fault is None:
            await server.drain()
    finally:
        await dispatcher.stop()
        await server.stop()
    return 0 if dispatcher.fault is None else 1


def open_files(connections: int) -> None:
    """Allow as many open files as connections need.

    Raises:
        ValueError: the system allows fewer; the text says what to change.
    """
    needed = connections + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ValueError(f"--connections {connections} needs {needed} open files, allowed: {hard}")
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if "--version" in words:
        print(version("ullage"))
        return 0
    given = parser().parse_args(words)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        settings = settings_of(given)
        addresses = addresses_of(given)
        open_files(settings.limits.connections)
        sys.setswitchinterval(THREAD_SWITCH_S)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(route(settings, addresses))
    except (ValueError, OSError) as error:
        print(f"ullage-router: {error}", file=sys.stderr)
        return BAD_ARGUMENTS


if __name__ == "__main__":
    sys.exit(main())
