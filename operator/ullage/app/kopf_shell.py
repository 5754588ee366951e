# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs kopf as a trigger: it reports that one of our kinds changed, and nothing more.

Its handlers poke and read nothing: kopf's own snapshot has ghosts after a relist, so no state may
come from it. It runs in a thread and loop of its own, because it cancels the tasks of its loop
when it ends.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass

import kopf

from ullage.api.contract import GROUP
from ullage.kube.credentials import Credentials
from ullage.ports import CAPACITY_POOL, INFERENCE_SERVICE, SCHEDULING_POLICY, Kind

POKING_KINDS: tuple[Kind, ...] = (INFERENCE_SERVICE, SCHEDULING_POLICY, CAPACITY_POOL)
"""TrainingJobs come by the thousand and our own reflector pokes for them: a second watch would cost
the API server and this process one more decoding of each of their changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Poker:
    """Carries a poke from kopf's thread into the operator's loop."""

    loop: asyncio.AbstractEventLoop
    poke: Callable[[str], None]

    def __call__(self, reason: str) -> None:
        """Poke from any thread; a loop that is closing already needs none."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.poke, reason)


def connection_info(credentials: Credentials) -> kopf.ConnectionInfo:
    """The same server and credentials as our own client's."""
    configuration = credentials.configuration
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        # the client keeps the scheme before the token, in either case
        token=credentials.token.rpartition(" ")[2] or None,
    )


def kopf_settings() -> kopf.OperatorSettings:
    """Settings that keep kopf from writing, posting, peering and scanning."""
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.watching.chunk_size = 500
    settings.watching.server_timeout = 300
    settings.posting.loggers = False
    settings.persistence.finalizer = f"{GROUP}/cleanup"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(
        prefix=GROUP, key="last-handled"
    )
    return settings


def registry(poker: Poker, credentials: Callable[[], kopf.ConnectionInfo]) -> kopf.OperatorRegistry:
    """Handlers of the kinds whose changes should be noticed at once."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(registry=handlers)  # type: ignore[untyped-decorator, unused-ignore]
    def login(**_: object) -> kopf.ConnectionInfo:
        return credentials()

    for kind in POKING_KINDS:
        _poke_on_event(handlers, poker, kind)
    return handlers


def _poke_on_event(handlers: kopf.OperatorRegistry, poker: Poker, kind: Kind) -> None:
    @kopf.on.event(kind.group, kind.version, kind.plural, registry=handlers)
    def changed(**_: object) -> None:
        poker(f"kopf:{kind.plural}")


class KopfEnded(Exception):
    """kopf's thread ended by itself; the cause is its own error, where it has one."""


async def run_kopf(
    poker: Poker, credentials: Callable[[], kopf.ConnectionInfo], *, stop_s: float = 5.0
) -> None:
    """Run kopf in a thread of its own until cancelled; ``stop_s`` is what its end may take.

    Raises:
        KopfEnded: it ended by itself.
    """
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    stop, failures = threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            asyncio.run(_operate(poker, credentials, stop))
        except Exception as error:  # outermost frame of the thread: told to the task that waits
            failures.append(error)
        finally:
            if not loop.is_closed():
                loop.call_soon_threadsafe(ended.set)

    thread = threading.Thread(target=work, name="kopf", daemon=True)
    thread.start()
    try:
        await ended.wait()
        cause = failures[0] if failures else None
        raise KopfEnded(f"kopf ended by itself: {cause!r}") from cause
    finally:
        stop.set()
        await asyncio.to_thread(thread.join, stop_s)


async def _operate(
    poker: Poker, credentials: Callable[[], kopf.ConnectionInfo], stop: threading.Event
) -> None:
    await kopf.operator(
        registry=registry(poker, credentials),
        settings=kopf_settings(),
        clusterwide=True,
        standalone=True,
        # found by itself it needs a user name, and ours has none in the image
        identity="ullage",  # type: ignore[arg-type]
        stop_flag=stop,
    )
