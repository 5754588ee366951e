# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``kopf run --dev --standalone -A -m ullage.app.dev``: the operator on a contributor's machine.

kopf has the main thread, with its own options and log; the rest of the operator runs beside it, in
a thread with a loop of its own. Session, settings and handlers are those of the image. Only kopf
imports this: it adds to kopf's default registry.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import Future
from threading import Thread
from typing import Any

import kopf

from ullage.app.operator import Operator, Surroundings
from ullage.app.settings import settings_from
from ullage.handlers.frame import Bridge, KopfFrame, Register
from ullage.handlers.session import Send
from ullage.kube.client import K8sCluster
from ullage.kube.credentials import find_credentials

Leadership = tuple[KopfFrame, Bridge, Send, Register]
_led: Future[Leadership] = Future()
_ended: Future[None] = Future()
_end: Future[tuple[asyncio.AbstractEventLoop, Operator]] = Future()


class _Outside(KopfFrame):
    """Gives the running kopf the configuration of a leadership."""

    async def run(self, send: Send, register: Register) -> None:
        if _led.done():
            raise RuntimeError("the Lease was lost: begin again")
        _led.set_result((self, Bridge(asyncio.get_running_loop()), send, register))
        await asyncio.Event().wait()


async def _operate() -> None:
    settings = settings_from(os.environ)
    credentials = await find_credentials(settings.kubeconfig)
    async with K8sCluster(credentials) as cluster:
        operator = Operator(settings, cluster, Surroundings(frame=_Outside))
        _end.set_result((asyncio.get_running_loop(), operator))
        await operator.work()


def _run() -> None:
    try:
        asyncio.run(_operate())
    except BaseException as error:  # kopf ends with it
        if not _led.done():
            _led.set_exception(error)
        _ended.set_exception(error)
    else:
        _ended.set_result(None)


@kopf.on.startup()
async def startup(settings: kopf.OperatorSettings, **_: Any) -> None:
    """Start the operator, and wait until it leads."""
    Thread(target=_run, name="operator", daemon=True).start()
    frame, bridge, send, register = await asyncio.wrap_future(_led)
    frame.prepare(settings, kopf.get_default_registry(), bridge, send, register)


@kopf.on.cleanup()
async def cleanup(**_: Any) -> None:
    """Stop the operator: its Lease is released."""
    if _end.done():
        loop, operator = _end.result()
        loop.call_soon_threadsafe(operator.stop)
        await asyncio.wrap_future(_ended)
