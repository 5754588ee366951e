# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Stands in for kopf's session with the API server.

Lists and watches are answered out of the mirror, discovery from what is mirrored; a patch, the only
thing that kopf writes, goes through the operator's own client, which renews tokens, and past its
fence. Nothing else is answered: kopf has no connection of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlsplit

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from ullage.handlers.mirror import Mirror
from ullage.ports import ApiError, JsonObject, Kind

SERVER: Final = "http://mirror.invalid"
"""No name that resolves: what is not answered here goes nowhere."""

Send = Callable[[Kind, str, str, str, object], Coroutine[Any, Any, JsonObject]]
"""Sends a patch: kind, namespace, name, content type, body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """What a path names."""

    kind: Kind
    namespace: str = ""
    name: str = ""


class Session:
    """What kopf uses of an ``aiohttp.ClientSession``."""

    def __init__(self, mirror: Mirror, send: Send) -> None:
        """``send`` carries a patch out and raises :class:`ApiError`."""
        self._mirror = mirror
        self._send = send
        self._documents = _discovery(mirror.kinds)
        self.headers: dict[str, str] = {"User-Agent": "ullage-operator"}
        self.closed = False

    async def request(
        self,
        *,
        method: str,
        url: str,
        json: object = None,
        headers: Mapping[str, str] | None = None,
        **_: object,
    ) -> Answer:
        """Answer one request; every error is an answer, as from a server."""
        parts = urlsplit(url)
        query = parse_qs(parts.query)
        discovered = self._documents.get(parts.path)
        if method.upper() == "GET" and discovered is not None:
            return Answer(HTTPStatus.OK, discovered)
        target = _target(self._mirror.kinds, parts.path)
        if target is None:
            return _refusal(HTTPStatus.NOT_FOUND, f"{parts.path} is not served to kopf")
        if method.upper() == "PATCH" and target.name:
            return await self._patched(target, headers or {}, json)
        if method.upper() != "GET" or target.name:
            return _refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"{method} {parts.path}")
        if "watch" in query:
            return Answer(HTTPStatus.OK, lines=self._watch(target.kind, query))
        bodies, version = self._mirror.listed(target.kind)
        return Answer(HTTPStatus.OK, _list(target.kind, bodies, version))

    async def close(self) -> None:
        """No request is made after this."""
        self.closed = True

    async def _patched(self, target: _Target, headers: Mapping[str, str], body: object) -> Answer:
        try:
            patched = await self._send(
                target.kind, target.namespace, target.name, headers.get("Content-Type", ""), body
            )
        except ApiError as error:
            # kopf would log in again for a 401, but tokens are renewed below; 0 is no answer
            known = error.status not in (0, HTTPStatus.UNAUTHORIZED)
            status = error.status if known else HTTPStatus.SERVICE_UNAVAILABLE
            return _refusal(status, error.message)
        return Answer(HTTPStatus.OK, patched)

    async def _watch(self, kind: Kind, query: Mapping[str, list[str]]) -> AsyncIterator[bytes]:
        """Lines of a watch, until the response is closed."""
        loop, news = asyncio.get_running_loop(), asyncio.Event()
        version = int(query["resourceVersion"][0])

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed, and this watch with it
                loop.call_soon_threadsafe(news.set)

        end = self._mirror.listen(wake)
        try:
            while True:
                news.clear()
                changed = self._mirror.since(kind, version)
                if changed is None:
                    gone = {"kind": "Status", "code": HTTPStatus.GONE, "reason": "Expired"}
                    yield _line("ERROR", gone)
                    return
                changes, version = changed
                for change in changes:
                    yield _line("DELETED" if change.deleted else "MODIFIED", change.body)
                await news.wait()
        finally:
            end()


class Answer:
    """What kopf uses of an ``aiohttp.ClientResponse``."""

    def __init__(
        self,
        status: int,
        body: JsonObject | None = None,
        *,
        lines: AsyncIterator[bytes] | None = None,
    ) -> None:
        """Either a whole body or the lines of a watch."""
        self.status = int(status)
        self.headers: dict[str, str] = {}
        self.closed = False
        self.content = self
        self._body = body
        self._lines = lines
        self._reader: asyncio.Task[object] | None = None

    async def __aenter__(self) -> Self:
        """As a response does."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    async def json(self) -> JsonObject | None:
        """The body."""
        return self._body

    async def text(self) -> str:
        """The body as text."""
        return json.dumps(self._body)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """The lines of a watch, each whole; ends where the response is closed.

        Raises:
            aiohttp.ClientConnectionError: the response was closed while a line was waited for.
        """
        assert self._lines is not None
        while not self.closed:
            self._reader = asyncio.ensure_future(anext(self._lines, b""))
            try:
                line = await self._reader
            except asyncio.CancelledError:
                if self.closed:
                    raise aiohttp.ClientConnectionError("closed") from None
                raise
            if not line:
                return
            assert isinstance(line, bytes)
            yield line

    def close(self) -> None:
        """End the watch."""
        self.closed = True
        if self._reader is not None:
            self._reader.cancel()

    def raise_for_status(self) -> None:
        """Raise what aiohttp raises for an error.

        Raises:
            aiohttp.ClientResponseError: the status says so.
        """
        if self.status >= HTTPStatus.BAD_REQUEST:
            none: CIMultiDictProxy[str] = CIMultiDictProxy(CIMultiDict())
            about = aiohttp.RequestInfo(URL(SERVER), "", none, URL(SERVER))
            raise aiohttp.ClientResponseError(about, (), status=self.status)


def _line(event: str, body: JsonObject) -> bytes:
    return json.dumps({"type": event, "object": body}).encode() + b"\n"


def _refusal(status: int, message: str) -> Answer:
    body = {"kind": "Status", "status": "Failure", "code": int(status), "message": message}
    return Answer(status, body)


def _list(kind: Kind, bodies: Sequence[JsonObject], version: int) -> JsonObject:
    return {
        "apiVersion": kind.api_version,
        "kind": f"{kind.kind}List",
        "metadata": {"resourceVersion": str(version), "continue": ""},
        "items": bodies,
    }


def _discovery(kinds: Sequence[Kind]) -> Mapping[str, JsonObject]:
    """The documents from which kopf learns what is served, by path."""
    found: dict[str, JsonObject] = {"/api": {"versions": ["v1"]}, "/api/v1": {"resources": _CORE}}
    groups: list[JsonObject] = []
    for api_version in sorted({kind.api_version for kind in kinds}):
        group, version = api_version.split("/")
        groups.append(
            {
                "name": group,
                "versions": [{"version": version}],
                "preferredVersion": {"version": version},
            }
        )
        found[f"/apis/{api_version}"] = {
            "resources": [
                _resource(kind.plural, kind.kind, namespaced=kind.namespaced)
                for kind in kinds
                if kind.api_version == api_version
            ]
        }
    return {**found, "/apis": {"groups": groups}}


def _resource(plural: str, kind: str, *, namespaced: bool) -> JsonObject:
    return {
        "name": plural,
        "singularName": kind.lower(),
        "kind": kind,
        "namespaced": namespaced,
        "verbs": ["list", "watch", "patch"],
    }


_CORE: Final = [_resource("namespaces", "Namespace", namespaced=False)]
"""kopf waits until it knows this kind, and then does not watch it."""


def _target(kinds: Sequence[Kind], path: str) -> _Target | None:
    """What a path names, if it is mirrored."""
    for kind in kinds:
        root = f"/apis/{kind.api_version}"
        words = path.removeprefix(root).strip("/").split("/") if path.startswith(root) else []
        namespace = ""
        if words[:1] == ["namespaces"] and len(words) > 2:
            _, namespace, *words = words
        if words[:1] == [kind.plural] and len(words) <= 2:
            return _Target(kind=kind, namespace=namespace, name="".join(words[1:]))
    return None
