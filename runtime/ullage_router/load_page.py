# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``GET /load`` on the metrics port: the load, for whatever scales the replicas.

``?after=N&wait=S`` answers as soon as another number of requests than N has arrived, at the latest
after S seconds, so that a service without replicas wakes at its first request.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Final

from aiohttp import web

from ullage_router.dispatcher import JSON, Dispatcher
from ullage_router.open_inference import error_body

LOAD_PATH: Final = "/load"
LONGEST_S: Final = 30
MOST_DIGITS: Final = 18


async def load_page(dispatcher: Dispatcher, query: Mapping[str, str]) -> web.Response:
    """The page, or 400 for a query that is none."""
    after, wait_s = _whole(query, "after", 10**MOST_DIGITS), _whole(query, "wait", LONGEST_S)
    if after is None or wait_s is None:
        text = f"after and wait are whole numbers, wait at most {LONGEST_S}"
        return web.Response(status=400, body=error_body(text), headers=JSON)
    if wait_s:
        await dispatcher.arrivals.beyond(after, wait_s)
    return web.Response(body=json.dumps(_load(dispatcher)).encode(), headers=JSON)


def _load(dispatcher: Dispatcher) -> dict[str, int]:
    return {
        "arrived": dispatcher.arrivals.total,
        "requestsMilli": round(1e3 * dispatcher.arrivals.per_s(dispatcher.now_s())),
        "waiting": len(dispatcher.queue),
        "idleSeconds": int(dispatcher.idle_s),
        # Rounded up: 0 says that no request has waited for a replica yet.
        "wakeMillis": math.ceil(1e3 * dispatcher.wake_s),
    }


def _whole(query: Mapping[str, str], name: str, most: int) -> int | None:
    text = query.get(name, "0")
    if not (text.isascii() and text.isdigit()) or len(text) > MOST_DIGITS or int(text) > most:
        return None
    return int(text)
