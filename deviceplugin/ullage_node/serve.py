# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The agent's process, from its settings to SIGTERM.

A second agent on a node waits until the first has ended. Two agents would bind slots and write
checkpoint and status from separate books, and would take over kubelet's registration from each
other for ever. The lock is on kubelet's plugin directory, which both use in any configuration; the
kernel releases it with the process, and no file is left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import structlog

from ullage.process.logs import configure_logs
from ullage_node.agent import Agent
from ullage_node.api_client import ApiClient, ApiServerError
from ullage_node.devices.backend import BACKENDS, BackendOptions
from ullage_node.model.devices import BackendPaths
from ullage_node.settings import AgentSettings
from ullage_node.telemetry.progress import StepTelemetry
from ullage_node.times import LOCK_RETRY_S

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@contextlib.asynccontextmanager
async def alone_in(directory: Path, stop: asyncio.Event) -> AsyncIterator[bool]:
    """Lock a directory for the block; waits while another process holds the lock.

    Args:
        directory: the directory; created if missing.
        stop: ends the wait.

    Yields:
        True if the lock is held; ``False`` = ``stop`` was set before.

    Raises:
        OSError: the directory cannot be created or opened.
    """
    handle = _open(directory)
    try:
        held = _lock(handle)
        if not held:
            _log.warning("another agent works on this node; waiting for its end", at=str(directory))
        while not held and not stop.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOCK_RETRY_S):
                    await stop.wait()
            held = _lock(handle)
        yield held
    finally:
        os.close(handle)


def _open(directory: Path) -> int:
    directory.mkdir(parents=True, exist_ok=True)
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def run_agent(settings: AgentSettings, environment: Mapping[str, str], version: str) -> None:
    """Run the agent until SIGTERM or SIGINT; one clear line where no API server is configured.

    Raises:
        OSError: the API server's authority, kubelet's directory or the HTTP port cannot be used.
    """
    configure_logs(settings.log_level)
    # gRPC's core writes plain lines to standard error whenever kubelet goes away.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    try:
        asyncio.run(serve(settings, environment, version))
    except ApiServerError as error:
        sys.exit(f"ullage-node: {error}")


async def serve(settings: AgentSettings, environment: Mapping[str, str], version: str) -> None:
    """Run one agent until SIGTERM or SIGINT, after any other agent of this node has ended.

    Raises:
        ApiError: no API server is configured.
        OSError: the API server's authority, kubelet's directory or the HTTP port cannot be used.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    async with alone_in(settings.paths.device_plugin_dir, stop) as alone:
        if alone:
            await _work(settings, environment, version, stop)


async def _work(
    settings: AgentSettings, environment: Mapping[str, str], version: str, stop: asyncio.Event
) -> None:
    paths = settings.paths
    backend = BACKENDS[settings.backend](
        BackendOptions(
            node_name=settings.name,
            contexts=settings.max_sharers,
            paths=BackendPaths(
                state_dir=paths.state_dir,
                run_dir=paths.run_dir,
                cgroup_root=paths.cgroup_root,
                proc_root=paths.proc_root,
            ),
            overhead_mib=settings.context_overhead_mib,
            suspends=settings.checkpoint.enabled,
            mig=settings.mig.enabled,
        )
    )
    progress = StepTelemetry(paths.steps_dir)
    async with ApiClient(settings.api, environment) as client:
        await Agent(settings, client, backend, progress, version).run(stop)
