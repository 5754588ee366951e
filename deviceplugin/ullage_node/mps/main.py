# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Entry point of the MPS supervisor (``ullage-node mps``), the one privileged program of the node.

It uses no API, has two settings (log level and directory), listens on one socket that only root may
use, and stops its daemons in order on SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Final

from ullage_node.mps.control import DaemonDirectories
from ullage_node.mps.places import Mounts, Places
from ullage_node.mps.probe import Processes
from ullage_node.mps.programs import ProgramCall, ProgramRunner
from ullage_node.mps.server import supervisor_socket
from ullage_node.mps.supervisor import MpsSupervisor

DIRECTORY: Final = "mps"
"""Directory below the run directory, at the same path in every container."""


def with_own_memory(place: DaemonDirectories, call: ProgramCall) -> ProgramCall:
    """The daemon's call with the device's own ``/dev/shm`` around it."""
    launch = (sys.executable, "-m", "ullage_node.mps.launch", str(place.shm))
    return ProgramCall(words=(*launch, *call.words), stdin=call.stdin, env=call.env)


async def serve(root: Path) -> None:
    """Supervise until SIGTERM or SIGINT.

    Raises:
        OSError: the directory or the socket cannot be used.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    supervisor = MpsSupervisor(
        ProgramRunner(),
        Places(root=root, mounts=Mounts()),
        Processes(),
        with_own_memory,
    )
    async with supervisor_socket(supervisor, root):
        watching = asyncio.create_task(supervisor.run(), name="supervisor")
        stopped = asyncio.create_task(stop.wait(), name="stop")
        await asyncio.wait({watching, stopped}, return_when=asyncio.FIRST_COMPLETED)
        for task in (watching, stopped):
            task.cancel()
        results = await asyncio.gather(watching, stopped, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result
