# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Entry point of the operator's image: ``run``, ``retire``, ``release`` and ``serve``."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from importlib.metadata import version

import structlog

from ullage.app.operator import Operator
from ullage.app.settings import Settings, settings_from
from ullage.app.uninstall import release, retire, set_retired
from ullage.kube.client import K8sCluster
from ullage.kube.credentials import CredentialsError, find_credentials
from ullage.ports import Unavailable
from ullage.process.environment import SettingsError
from ullage.process.logs import configure_logs

log = structlog.get_logger("ullage.main")


def run(arguments: list[str] | None = None) -> None:
    """Entry point of ``ullage-operator``."""
    options = _parser().parse_args(arguments)
    try:
        settings = settings_from(os.environ)
    except SettingsError as error:
        raise SystemExit(f"ullage-operator: {error}") from error
    configure_logs(settings.log_level)
    try:
        asyncio.run(_command(options, settings))
    except (CredentialsError, Unavailable) as error:
        # no traceback: the text has the remedy
        log.error("cannot start", error=str(error))
        sys.exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ullage-operator", description=__doc__)
    parser.add_argument("--version", action="version", version=version("ullage"))
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("run", help="decide for the cluster (settings come from ULLAGE_*)")
    leave = commands.add_parser("retire", help="take every node out, before an uninstall")
    leave.add_argument("--timeout", type=float, default=60.0, help="seconds to wait for the nodes")
    free = commands.add_parser("release", help="let every object go, after an uninstall")
    free.add_argument("--timeout", type=float, default=60.0, help="seconds to try")
    back = commands.add_parser("serve", help="take every node in again, after an install")
    back.add_argument("--timeout", type=float, default=60.0, help="seconds to try")
    return parser


async def _command(options: argparse.Namespace, settings: Settings) -> None:
    credentials = await find_credentials(settings.kubeconfig)
    async with K8sCluster(credentials) as cluster:
        if options.command == "run":
            await Operator(settings, cluster).run()
        elif options.command == "retire":
            await retire(cluster, timeout_s=options.timeout)
        elif options.command == "release":
            async with asyncio.timeout(options.timeout):
                names = await release(cluster)
            log.info("objects released", changed=names)
        else:  # undo an earlier retirement, if any
            async with asyncio.timeout(options.timeout):
                names = await set_retired(cluster, retired=False)
            log.info("nodes serve", changed=names)


if __name__ == "__main__":
    run()
