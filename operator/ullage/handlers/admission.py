# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""kopf's admission of the kinds that users write: warnings at ``kubectl apply``, never a refusal.

kopf dispatches reviews to the handlers; the server is ours, since kopf's own bounds neither
connections nor bodies nor rates. Reviews above a rate are allowed without advice, so a flood costs
only its sender's advice.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, cast

import kopf
from aiohttp import web

from ullage.api.readers import JsonObject, WireError, section
from ullage.cluster.records.snapshot import Snapshot
from ullage.handlers.frame import Bridge
from ullage.handlers.mirror import HasLife
from ullage.handlers.times import REVIEW_SNAPSHOT_S
from ullage.ports import Forbidden, JsonPatch, Kind
from ullage.scheduling.status.advice import ADVISED, Offers, advise, offers_of
from ullage.webhook.review import allowed, request_of
from ullage.webhook.server import COME_AGAIN, WebhookServer

PATH: Final = "/advise"
MOST_BYTES: Final = 2**20
"""Maximum bytes of one review; an update has the object twice."""
LARGE_BYTES: Final = 2**16
MOST_LARGE_BYTES: Final = 2**22
"""Bytes per second of reviews above ``LARGE_BYTES``: decoding one takes milliseconds."""
UNIT_BYTES: Final = 2**14
MOST_UNITS: Final = 64
"""Units per second; a review is one unit, and one more for each ``UNIT_BYTES``."""
MOST_OF_NAMESPACE: Final = 16
MOST_WARNINGS: Final = 5
LONGEST_WARNING: Final = 250
"""Maximum characters; the API server truncates above 256."""
_KEPT: Final = ("name", "namespace", "labels")
"""Metadata that a handler sees; without a uid kopf stores nothing about an object."""

Look = Callable[[], Coroutine[Any, Any, Snapshot | None]]
"""The snapshot, in the operator's loop; ``None`` = it is incomplete."""


@dataclass(slots=True)
class ReviewRate:
    """Units spent in the current second, by namespace, and bytes of large reviews."""

    second: int = -1
    large_bytes: int = 0
    units: Counter[str] = field(default_factory=Counter)

    def decodes(self, size: int, now: float) -> bool:
        """Count the bytes of a body; returns True when it should be decoded."""
        self._begin(now)
        self.large_bytes += size if size > LARGE_BYTES else 0
        return size <= LARGE_BYTES or self.large_bytes <= MOST_LARGE_BYTES

    def advises(self, namespace: str, size: int, now: float) -> bool:
        """Count the bytes of a review; returns True when it gets advice."""
        self._begin(now)
        units = min(1 + size // UNIT_BYTES, MOST_OF_NAMESPACE)
        spent = self.units.get(namespace, 0)
        if spent + units > MOST_OF_NAMESPACE or self.units.total() + units > MOST_UNITS:
            return False
        self.units[namespace] += units
        return True

    def _begin(self, now: float) -> None:
        if int(now) != self.second:
            self.second, self.large_bytes = int(now), 0
            self.units.clear()


class AdmissionAdvice:
    """The handlers and the port of one process, leading or not; all of it in kopf's thread."""

    kinds: Final[Mapping[Kind, HasLife]] = dict.fromkeys(ADVISED, lambda _: False)
    """Kinds known to kopf; none of their objects is watched."""

    def __init__(self, look: Look, folder: Path, port: int) -> None:
        """``folder`` holds ``tls.crt`` and ``tls.key``; nothing is served before ``register``."""
        self._look = look
        self._folder = folder
        self._port = port
        self._rate = ReviewRate()
        self._offers: Offers | None = None
        self._looked_at = -REVIEW_SNAPSHOT_S
        self._server: WebhookServer | None = None

    @property
    def port(self) -> int:
        """The listening port; 0 = none yet."""
        return self._server.port if self._server is not None else 0

    def register(self, registry: kopf.OperatorRegistry, bridge: Bridge) -> None:
        """Add the handlers, and the server in place of kopf's."""

        @kopf.on.startup(registry=registry)
        async def startup(settings: kopf.OperatorSettings, **_: Any) -> None:
            settings.admission.server = cast(Any, self.serve)

        for kind in ADVISED:
            self._advise(registry, bridge, kind)

    def _advise(self, registry: kopf.OperatorRegistry, bridge: Bridge, kind: Kind) -> None:
        @kopf.on.validate(
            kind.group, kind.version, kind.plural, registry=registry, id=f"advice-{kind.plural}"
        )
        async def advice(body: kopf.Body, warnings: list[str], **_: Any) -> None:
            offers = await self._current_offers(bridge)
            if offers is not None:
                raw = {**body, "metadata": {"uid": "new", **body["metadata"]}}
                warnings += advise(kind, raw, offers)

    async def _current_offers(self, bridge: Bridge) -> Offers | None:
        """The cluster's offers, at most ``OLD_S`` old; ``None`` = the snapshot is incomplete."""
        now = asyncio.get_running_loop().time()
        if now - self._looked_at >= REVIEW_SNAPSHOT_S:
            self._looked_at = now
            snapshot = await bridge.call(self._look())
            self._offers = offers_of(snapshot) if snapshot is not None else None
        return self._offers

    async def serve(self, review: kopf.WebhookFn) -> AsyncIterator[kopf.WebhookClientConfig]:
        """Serve until cancelled, as a server of kopf's does."""
        server = WebhookServer(self._folder, path=PATH, reply=partial(self._reply, review))
        self._server = server
        await server.start(self._port)
        try:
            yield {}  # the configuration is the chart's
            await asyncio.Event().wait()
        finally:
            await server.stop()

    async def _reply(self, review: kopf.WebhookFn, body: bytes) -> bytes:
        """Admit the object, with the warnings of the handlers.

        Raises:
            HTTPException: it is not a review, or the rate is exceeded.
        """
        now = asyncio.get_running_loop().time()
        if len(body) > MOST_BYTES:
            raise web.HTTPRequestEntityTooLarge(max_size=MOST_BYTES, actual_size=len(body))
        if not self._rate.decodes(len(body), now):
            raise web.HTTPTooManyRequests(text="too many large reviews\n", headers=COME_AGAIN)
        try:
            uid, request = request_of(body)
            asked = _reduced(uid, request)
        except WireError as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from error
        namespace = str(request.get("namespace") or "")
        if asked is None or not self._rate.advises(namespace, len(body), now):
            return allowed(uid, {})
        answer = await review(cast(Any, asked))
        warnings = answer["response"].get("warnings") or []
        return allowed(uid, {"warnings": [_line(text) for text in warnings[:MOST_WARNINGS]]})


class _Read(dict[str, object]):
    """An immutable part of an object; kopf copies objects whole, of any depth."""

    def __deepcopy__(self, _: object) -> Self:
        return self


def _reduced(uid: str, request: JsonObject) -> JsonObject | None:
    """The review for kopf: the object that is written, without its author.

    ``None`` = the review is of another kind.

    Raises:
        WireError: a part of it has the wrong type.
    """
    resource, written = section(request, "resource"), section(request, "object")
    names = (resource.get("group"), resource.get("version"), resource.get("resource"))
    kind = next(
        (kind for kind in ADVISED if (kind.group, kind.version, kind.plural) == names), None
    )
    if kind is None or not written or request.get("subResource"):
        return None
    metadata = section(written, "metadata")
    return {
        "request": {
            "uid": uid,
            "resource": {"group": kind.group, "version": kind.version, "resource": kind.plural},
            "operation": request.get("operation"),
            "userInfo": {},
            "object": {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "metadata": _Read({key: metadata[key] for key in _KEPT if key in metadata}),
                "spec": _Read(section(written, "spec")),
            },
        }
    }


def _line(text: str) -> str:
    """A text that the API server passes on: short, and printable whatever it quotes."""
    plain = "".join(sign if sign.isprintable() else "?" for sign in text[:LONGEST_WARNING])
    return plain if len(text) <= LONGEST_WARNING else f"{plain[:-1]}…"


async def refuse(kind: Kind, namespace: str, name: str, _: JsonPatch) -> JsonObject:
    """A patch of kopf's: admission writes nothing.

    Raises:
        Forbidden: always.
    """
    raise Forbidden(403, f"admission writes nothing: {kind.plural} {namespace}/{name}")
