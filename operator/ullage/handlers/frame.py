# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs kopf in a thread and an event loop of its own, until its owner ends it.

At its end kopf cancels every task of its loop, so it may not share ours. The instance for ends runs
while this replica leads: on a standby it could remove finalizers that only a leader's handlers
know. Another instance, whose handlers see no existing object, answers reviews.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar, cast

import aiohttp
import kopf

from ullage.cluster.values.lives import FINALIZER
from ullage.handlers.mirror import Mirror
from ullage.handlers.session import SERVER, Send, Session
from ullage.handlers.times import PATCH_RETRIES_S, THREAD_ENDS_S

STUCK: Final = "its thread did not end with the last leadership"
T = TypeVar("T")

Register = Callable[[kopf.OperatorRegistry, "Bridge"], None]
"""Adds the handlers of a kind."""


class Bridge:
    """Calls from kopf's thread into the operator's loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """``loop`` is the operator's."""
        self._loop = loop

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the operator's loop and wait for it here."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))


class NothingHandled(kopf.DiffBaseStorage):
    """Stores no last state: the desired state is decided from the whole cluster."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        """An empty essence: there is never a difference."""
        return cast(kopf.BodyEssence, {})

    def fetch(self, **_: Any) -> kopf.BodyEssence:
        """An empty essence, as if everything had been handled."""
        return cast(kopf.BodyEssence, {})

    def store(self, **_: Any) -> None:
        """Write nothing."""


class Tries(kopf.ProgressStorage):
    """Attempts of handlers, while this replica leads.

    Tenants write annotations: a forged record of progress could block an object for ever.
    """

    def __init__(self, mirror: Mirror) -> None:
        """Start without attempts."""
        self._mirror = mirror
        self._records: dict[tuple[object, str], Any] = {}

    def fetch(self, *, key: str, body: kopf.Body) -> Any:
        """The record of a handler."""
        return self._records.get((body.metadata.get("uid"), key))

    def store(self, *, key: str, record: Any, body: kopf.Body, **_: Any) -> None:
        """Store it in memory."""
        self._records[body.metadata.get("uid"), key] = record

    def purge(self, *, key: str, body: kopf.Body, **_: Any) -> None:
        """Remove a finished handler."""
        self._records.pop((body.metadata.get("uid"), key), None)

    def touch(self, *, body: kopf.Body, value: str | None, **_: Any) -> None:
        """Show kopf an object with a due handler again; kopf itself would write to it."""
        if value is not None:
            self._mirror.repeat(str(body.metadata.get("uid")))

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        """The essence unchanged: objects have none of the records."""
        return essence


class KopfFrame:
    """kopf with our handlers; ``run`` it again after it has ended."""

    def __init__(self, mirror: Mirror) -> None:
        """Nothing is handled before ``run``."""
        self._mirror = mirror
        self._late: Future[None] | None = None
        """Thread that did not end in time."""

    @property
    def stuck(self) -> bool:
        """True while the thread of an earlier leadership still runs; a restart ends it."""
        return self._late is not None and not self._late.done()

    async def run(self, send: Send, register: Register) -> None:
        """Handle until cancelled.

        Args:
            send: Sends patches, in the calling loop.
            register: Adds the handlers.

        Raises:
            RuntimeError: kopf ended unexpectedly, or an earlier one still runs.
        """
        if self.stuck:
            raise RuntimeError(f"kopf: {STUCK}")
        # it logs failures: its successes are our Events, and signals belong to the process
        logging.getLogger("kopf").setLevel(logging.WARNING)
        logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
        stop, ended = threading.Event(), Future[None]()
        bridge = Bridge(asyncio.get_running_loop())

        def work() -> None:
            try:
                asyncio.run(self._operate(bridge, stop, send, register))
            except BaseException as error:  # any end of the thread is a result
                ended.set_exception(error)
            else:
                ended.set_result(None)

        threading.Thread(target=work, name="kopf", daemon=True).start()
        over = asyncio.wrap_future(ended)
        try:
            await asyncio.wait([over])
        finally:
            stop.set()
            self._late = ended
            await asyncio.wait([over], timeout=THREAD_ENDS_S)
            self._mirror.rest()
        raise RuntimeError("kopf ended by itself") from over.exception()

    def prepare(
        self,
        settings: kopf.OperatorSettings,
        registry: kopf.OperatorRegistry,
        bridge: Bridge,
        send: Send,
        register: Register,
    ) -> None:
        """Add our settings, the login that gives kopf our session, and the handlers."""
        configure(settings, self._mirror)
        session = Session(self._mirror, lambda *patch: bridge.call(send(*patch)))

        @kopf.on.login(registry=registry)
        async def login(**_: Any) -> kopf.AiohttpSession:
            return kopf.AiohttpSession(
                server=SERVER, aiohttp_session=cast(aiohttp.ClientSession, session)
            )

        register(registry, bridge)

    async def _operate(
        self, bridge: Bridge, stop: threading.Event, send: Send, register: Register
    ) -> None:
        registry, settings = kopf.OperatorRegistry(), kopf.OperatorSettings()
        self.prepare(settings, registry, bridge, send, register)
        await kopf.operator(
            registry=registry,
            settings=settings,
            clusterwide=True,
            standalone=True,
            # else it looks up the user's name, and the user of our image has none
            identity=cast(Any, "ullage"),
            stop_flag=stop,
        )


def configure(settings: kopf.OperatorSettings, mirror: Mirror) -> None:
    """Make kopf emit no Events, watch no kinds and leave its end to its owner."""
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.process.ultimate_exiting_timeout = None
    settings.persistence.finalizer = FINALIZER
    settings.persistence.diffbase_storage = NothingHandled()
    settings.persistence.progress_storage = Tries(mirror)
    settings.networking.error_backoffs = PATCH_RETRIES_S
    settings.watching.inactivity_timeout = math.inf  # a watch of the mirror never stalls
    settings.queueing.exit_timeout = 0.1
    settings.background.instant_exit_timeout = 0.5
