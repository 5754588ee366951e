# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Entry point of the node agent: read settings, run until SIGTERM.

Wrong settings end the process with one clear line. Everything else that is wrong with the node is
reported in its GPUNode and waited for.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from ullage_node.agent import Agent
from ullage_node.alone import alone_in
from ullage_node.api_client import ApiClient, ApiError
from ullage_node.devices.backend import BACKENDS, BackendOptions
from ullage_node.guard.main import run_guard
from ullage_node.logs import configure_logs
from ullage_node.model.devices import BackendPaths
from ullage_node.mps.main import DIRECTORY
from ullage_node.mps.main import serve as serve_mps
from ullage_node.settings import PREFIX, Settings, SettingsError, load_settings
from ullage_node.slices.steps import mount_homes
from ullage_node.telemetry.progress import StepTelemetry

DEVICES_MOST: Final = 16
"""Devices of one node that step records are given room for; those of more lie beside it."""
OPTIONS: Final = {
    "api_server": "API_SERVER",
    "token_file": "API_TOKEN_FILE",
    "ca_file": "API_CA_FILE",
}


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the agent; the console script ``ullage-node``."""
    parser = argparse.ArgumentParser(prog="ullage-node", description="Ullage node agent")
    version = importlib.metadata.version("ullage")
    parser.add_argument("--version", action="version", version=f"ullage-node {version}")
    parser.add_argument(
        "part",
        nargs="?",
        choices=("agent", "guard", "mps", "mounts"),
        default="agent",
        help="agent (default), or a process beside it: guard, which may stop containers, mps, "
        "which runs the MPS control daemons, or mounts, which makes room for step records and ends",
    )
    parser.add_argument("--api-server", help="URL of the API server (default: the own cluster)")
    parser.add_argument("--token-file", help="file with the bearer token")
    parser.add_argument("--ca-file", help="certificate authority of the API server")
    options = vars(parser.parse_args(arguments))
    given = {
        f"{PREFIX}{OPTIONS[name]}": value
        for name, value in options.items()
        if name in OPTIONS and value
    }
    try:
        settings = load_settings({**os.environ, **given})
        configure_logs(settings.log_level)
        # Its core writes plain lines to standard error whenever kubelet goes away.
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
        if options["part"] == "guard":
            run_guard(settings)
        elif options["part"] == "mps":
            asyncio.run(serve_mps(settings.paths.run_dir / DIRECTORY))
        elif options["part"] == "mounts":
            mount_homes(settings.paths.steps_dir, settings.max_sharers * DEVICES_MOST)
        else:
            asyncio.run(serve(settings, os.environ, version))
    except (SettingsError, ApiError, OSError) as error:
        sys.exit(f"ullage-node: {error}")


async def serve(settings: Settings, environment: Mapping[str, str], version: str) -> None:
    """Run one agent until SIGTERM or SIGINT, after any other agent of this node has ended.

    Raises:
        ApiError: no API server is configured.
        OSError: the API server's authority, kubelet's folder or the HTTP port cannot be used.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    async with alone_in(settings.paths.device_plugin_dir, stop) as alone:
        if alone:
            await _work(settings, environment, version, stop)


async def _work(
    settings: Settings, environment: Mapping[str, str], version: str, stop: asyncio.Event
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
        )
    )
    progress = StepTelemetry(paths.steps_dir)
    async with ApiClient(settings.api, environment) as client:
        await Agent(settings, client, backend, progress, version).run(stop)
