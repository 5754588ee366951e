# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m ullage_katib NAME --service HOST:PORT --algorithm tpe``: trials by Katib.

The exit status is 0 when the TuningJob has all its trials, 1 after too many failures, where another
start may help, 2 where it cannot, and 143 after SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

import structlog

from ullage.kube.client import K8sCluster
from ullage.kube.credentials import CredentialsError, find_credentials, namespace_of
from ullage.process.environment import LogLevel
from ullage.process.logs import configure_logs
from ullage_katib.bridge import (
    REFUSALS_BEFORE_FORGETTING,
    BridgeOptions,
    KatibBridge,
    NoMoreTries,
    SearchGone,
    Unusable,
)
from ullage_katib.messages import KatibAlgorithm
from ullage_katib.service import KatibService
from ullage_katib.times import KATIB_ANSWER_S

log = structlog.get_logger("ullage_katib")

FAILED: Final = 1
UNUSABLE: Final = 2
TERMINATED: Final = 128 + signal.SIGTERM
FEWEST_TRIES: Final = REFUSALS_BEFORE_FORGETTING + 1
MOST_TRIES: Final = 1_000
_ADDRESS: Final = re.compile(r"[A-Za-z0-9.\-]{1,253}:[0-9]{1,5}|\[[0-9a-fA-F:]{2,39}\]:[0-9]{1,5}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """The command line, parsed."""

    options: BridgeOptions
    service: str
    deadline_s: float
    kubeconfig: str
    context: str
    log_level: LogLevel


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    try:
        invocation = parsed(arguments)
    except CredentialsError as error:
        print(f"ullage_katib: {error}", file=sys.stderr)
        return UNUSABLE
    configure_logs(invocation.log_level)
    return asyncio.run(suggest(invocation))


def parsed(arguments: Sequence[str] | None = None) -> Invocation:
    """The command line as a record.

    Args:
        arguments: Arguments; ``None`` = those of the process.

    Raises:
        CredentialsError: neither a namespace nor a kubeconfig is named, or the latter is unusable.
        SystemExit: an argument is invalid.
    """
    given = _parser().parse_args(arguments)
    namespace = given.namespace
    if not namespace and not given.kubeconfig:
        raise CredentialsError("name a namespace with --namespace, or a kubeconfig")
    return Invocation(
        options=BridgeOptions(
            namespace=namespace or namespace_of(given.kubeconfig, given.context),
            name=given.name,
            algorithm=KatibAlgorithm(name=given.algorithm, settings=tuple(given.setting)),
            allow_repeats=given.allow_repeats,
            tries=given.tries,
            look_s=given.look_seconds,
        ),
        service=given.service,
        deadline_s=given.deadline_seconds,
        kubeconfig=given.kubeconfig,
        context=given.context,
        log_level=LogLevel(given.log_level),
    )


async def suggest(invocation: Invocation) -> int:
    """Suggest trials until the search has all of them; returns the exit status."""
    work = asyncio.create_task(_suggest(invocation))
    # a process that is PID 1 of its container ignores SIGTERM without a handler
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        return TERMINATED
    except (NoMoreTries, SearchGone) as error:
        log.error("gave up", error=str(error))
        return FAILED
    except (Unusable, CredentialsError) as error:
        log.error("cannot suggest trials", error=str(error))
        return UNUSABLE
    return 0


async def _suggest(invocation: Invocation) -> None:
    credentials = await find_credentials(invocation.kubeconfig, invocation.context)
    async with (
        K8sCluster(credentials, user_agent="ullage-katib") as cluster,
        KatibService(invocation.service, invocation.deadline_s) as service,
    ):
        await KatibBridge(cluster, service, invocation.options).run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ullage_katib",
        description="A suggestion service of Katib chooses the trials of a TuningJob.",
    )
    parser.add_argument("--version", action="version", version=version("ullage"))
    parser.add_argument("name", help="TuningJob with the algorithm External")
    parser.add_argument(
        "--service", required=True, type=_address, help="HOST:PORT of the suggestion service"
    )
    parser.add_argument("--algorithm", required=True, help="name that the service knows, as tpe")
    parser.add_argument(
        "--setting", action="append", default=[], type=_setting, metavar="NAME=VALUE",
        help="a setting of the algorithm; may be given several times",
    )  # fmt: skip
    parser.add_argument("-n", "--namespace", default="", help="of the TuningJob")
    parser.add_argument(
        "--kubeconfig", default=os.environ.get("KUBECONFIG", ""),
        help="outside the cluster; in a pod its service account is used",
    )  # fmt: skip
    parser.add_argument("--context", default="", help="of the kubeconfig")
    parser.add_argument(
        "--allow-repeats", action="store_true", help="run points again that were suggested before"
    )
    parser.add_argument(
        "--deadline-seconds", type=_seconds, default=KATIB_ANSWER_S, help="for each answer"
    )
    parser.add_argument(
        "--tries", type=_count, default=10, help="failures in a row, after which it gives up"
    )
    parser.add_argument(
        "--look-seconds", type=_seconds, default=2.0, help="between two looks at the TuningJob"
    )
    parser.add_argument(
        "--log-level", default=LogLevel.INFO.value, choices=[level.value for level in LogLevel],
        help="least severe lines of the log",
    )  # fmt: skip
    return parser


def _address(text: str) -> str:
    if not _ADDRESS.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no HOST:PORT")
    return text


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=VALUE")
    return name, value


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not within 1 hour")
    return seconds


def _count(text: str) -> int:
    count = int(text)
    if not FEWEST_TRIES <= count <= MOST_TRIES:
        raise argparse.ArgumentTypeError(f"{text} is not from {FEWEST_TRIES} to {MOST_TRIES}")
    return count


if __name__ == "__main__":
    sys.exit(main())
