# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Entry point of the node agent and of the processes beside it: read settings, run until SIGTERM.

Invalid settings end the process with one clear line. Every other problem of the node is reported in
its GPUNode and retried. Each process loads only the modules it needs: the guard runs on every node
beside the agent and must cost less.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final

from ullage.process.environment import SettingsError
from ullage_node.settings import PREFIX, AgentSettings, load_settings

DEVICES_MOST: Final = 16
"""Devices of one node for which step records get room; records beyond lie outside it."""
OPTIONS: Final = {
    "api_server": "API_SERVER",
    "token_file": "API_TOKEN_FILE",
    "ca_file": "API_CA_FILE",
}


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the agent; the console script ``ullage-node``."""
    parser = argparse.ArgumentParser(prog="ullage-node", description="Ullage node agent")
    parser.add_argument("--version", action="store_true", help="say the version and end")
    parser.add_argument(
        "part",
        nargs="?",
        choices=("agent", "guard", "mps", "processes", "mounts"),
        default="agent",
        help="agent (default), or a process beside it: guard, which may stop containers, mps, "
        "which runs the MPS control daemons, processes, which reads whose processes are on a GPU, "
        "or mounts, which makes room for step records and ends",
    )
    parser.add_argument("--api-server", help="URL of the API server (default: the own cluster)")
    parser.add_argument("--token-file", help="file with the bearer token")
    parser.add_argument("--ca-file", help="certificate authority of the API server")
    options = vars(parser.parse_args(arguments))
    if options["version"]:
        print(f"ullage-node {_version()}")
        sys.exit(0)
    given = {
        f"{PREFIX}{OPTIONS[name]}": value
        for name, value in options.items()
        if name in OPTIONS and value
    }
    try:
        _run_part(options["part"], load_settings({**os.environ, **given}))
    except (SettingsError, OSError) as error:
        sys.exit(f"ullage-node: {error}")


def _run_part(part: str, settings: AgentSettings) -> None:
    """Become one of the processes; its modules are loaded here, those of the others never."""
    if part == "guard":
        from ullage_node.guard.main import run_guard

        run_guard(settings)
    elif part == "mps":
        import asyncio

        from ullage.process.logs import configure_logs
        from ullage_node.mps.main import DIRECTORY, serve

        configure_logs(settings.log_level)
        asyncio.run(serve(settings.paths.run_dir / DIRECTORY))
    elif part == "processes":
        import asyncio

        from ullage.process.logs import configure_logs
        from ullage_node.devices.nvidia.serve_processes import serve as serve_processes

        configure_logs(settings.log_level)
        program = settings.checkpoint.program if settings.checkpoint.enabled else None
        serving = serve_processes(
            settings.paths.run_dir, checkpoint=program, mig=settings.mig.enabled
        )
        asyncio.run(serving)
    elif part == "mounts":
        from ullage.process.logs import configure_logs
        from ullage_node.slices.steps import mount_homes

        configure_logs(settings.log_level)
        mount_homes(settings.paths.steps_dir, settings.max_sharers * DEVICES_MOST)
    else:
        from ullage_node.serve import run_agent

        run_agent(settings, os.environ, _version())


def _version() -> str:
    import importlib.metadata  # its imports are a fifth of the guard's memory

    return importlib.metadata.version("ullage")
