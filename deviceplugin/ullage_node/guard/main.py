# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Entry point of the process that stops containers: ``ullage-node guard``.

It has access to the host's cgroup tree only and decides nothing. The agent in the other container
decides and cannot write there.
"""

from __future__ import annotations

import signal
import socket

from ullage_node.guard.freezer import Freezer
from ullage_node.guard.io_limits import IoLimiter
from ullage_node.guard.journal import Journal
from ullage_node.guard.keeper import Keeper
from ullage_node.guard.log import configure_log
from ullage_node.guard.protocol import FOLDER, guard_socket
from ullage_node.guard.server import GuardServer
from ullage_node.guard.watchdog import under_watchdog
from ullage_node.settings import AgentSettings


def keeper_of(settings: AgentSettings) -> Keeper:
    """The keeper over this node's directories."""
    paths = settings.paths
    return Keeper(
        cgroup_root=paths.cgroup_root,
        proc_root=paths.proc_root,
        journal=Journal(folder=paths.run_dir / FOLDER / "frozen"),
        freezer=Freezer(proc_root=paths.proc_root),
        limiter=IoLimiter(
            cgroup_root=paths.cgroup_root, journal=paths.run_dir / FOLDER / "io-limits.json"
        ),
    )


def run_guard(settings: AgentSettings) -> None:
    """Serve until SIGTERM or SIGINT, in a child of a process that watches it.

    Raises:
        OSError: the socket cannot be created, or the watchdog is gone.
    """
    configure_log(settings.log_level)
    keeper = keeper_of(settings)
    lifeline = under_watchdog(keeper)
    server = GuardServer(guard_socket(settings.paths.run_dir), keeper, beat=lifeline.beat)
    stop, wakeup = socket.socketpair()
    with stop, wakeup:
        wakeup.setblocking(False)
        signal.set_wakeup_fd(wakeup.fileno())
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, lambda number, frame: None)  # the wake-up fd notifies the server
        try:
            server.run(stop)
        finally:
            signal.set_wakeup_fd(-1)
