# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Stands in for kopf's session with the API server.

Lists and watches are answered out of the mirror, discovery from what is mirrored; a JSON patch of
finalizers, the only thing that kopf writes, goes through the operator's own client, which renews
tokens, and past its fence. Nothing else is answered: kopf has no connection of its own.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlsplit

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from ullage.handlers.mirror import Mirror
from ullage.ports import NAMESPACE, ApiError, JsonObject, JsonPatch, Kind

_PATH: Final = re.compile(
    r"/apis/(?P<api>[^/]+/[^/]+)(/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<plural>[^/]+)(/(?P<name>[^/]+))?"
)
SERVER: Final = "http://mirror.invalid"
"""No name that resolves: what is not answered here goes nowhere."""

Send = Callable[[Kind, str, str, JsonPatch], Coroutine[Any, Any, JsonObject]]
"""Sends a JSON patch: kind, namespace, name, steps."""


class Session:
    """The part of an ``aiohttp.ClientSession`` that kopf uses."""

    def __init__(self, mirror: Mirror, send: Send) -> None:
        """``send`` carries a patch out and raises :class:`ApiError`."""
        self._mirror = mirror
        self._send = send
        self._documents = _discovery(mirror.kinds)
        self._kinds = {(kind.api_version, kind.plural): kind for kind in mirror.kinds}
        self.headers: dict[str, str] = {"User-Agent": "ullage-operator"}
        self.closed = False

    async def request(self, *, method: str, url: str, json: object = None, **_: object) -> Answer:
        """Answer one request; every error is an answer, as from a server."""
        parts, method = urlsplit(url), method.upper()
        if method == "GET" and parts.path in self._documents:
            return Answer(HTTPStatus.OK, self._documents[parts.path])
        path = _PATH.fullmatch(parts.path)
        kind = self._kinds.get((path["api"], path["plural"])) if path is not None else None
        if path is None or kind is None:
            return _refusal(HTTPStatus.NOT_FOUND, f"{parts.path} is not served to kopf")
        if method == "PATCH" and path["name"] and isinstance(json, list):
            return await self._patched(kind, path["namespace"] or "", path["name"], json)
        if method != "GET" or path["name"]:
            return _refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"{method} {parts.path}")
        if "watch" in parse_qs(parts.query):
            return WatchAnswer(self._mirror, kind)
        # no version: a watch shows what was not shown yet
        return Answer(HTTPStatus.OK, {"metadata": {}, "items": self._mirror.listed(kind)})

    async def close(self) -> None:
        """No request is made after this."""
        self.closed = True

    async def _patched(self, *patch: Any) -> Answer:
        try:
            return Answer(HTTPStatus.OK, await self._send(*patch))
        except ApiError as error:
            # kopf would log in again for a 401, but tokens are renewed below; 0 is no answer
            known = error.status not in (0, HTTPStatus.UNAUTHORIZED)
            status = error.status if known else HTTPStatus.SERVICE_UNAVAILABLE
            return _refusal(status, error.message)


class Answer:
    """The part of an ``aiohttp.ClientResponse`` that kopf uses."""

    def __init__(self, status: int, body: JsonObject | None = None) -> None:
        """``body`` is the whole of it."""
        self.status = int(status)
        self.headers: dict[str, str] = {}
        self.closed = False
        self._body = body

    async def __aenter__(self) -> Self:
        """As a response does."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    async def json(self) -> JsonObject | None:
        """The body."""
        return self._body

    def close(self) -> None:
        """Nothing more is read."""
        self.closed = True

    def raise_for_status(self) -> None:
        """Raise what aiohttp raises for an error.

        Raises:
            aiohttp.ClientResponseError: the status says so.
        """
        if self.status >= HTTPStatus.BAD_REQUEST:
            none: CIMultiDictProxy[str] = CIMultiDictProxy(CIMultiDict())
            about = aiohttp.RequestInfo(URL(SERVER), "", none, URL(SERVER))
            raise aiohttp.ClientResponseError(about, (), status=self.status)


class WatchAnswer(Answer):
    """The lines of a watch, each as soon as there is one."""

    def __init__(self, mirror: Mirror, kind: Kind) -> None:
        """Shows what was not shown yet."""
        super().__init__(HTTPStatus.OK)
        self.content = self
        self._mirror = mirror
        self._kind = kind
        self._loop, self._news = asyncio.get_running_loop(), asyncio.Event()
        mirror.watch(kind, self._wake)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """The lines, each whole.

        Raises:
            aiohttp.ClientConnectionError: the response was closed.
        """
        while not self.closed:
            self._news.clear()
            try:
                change = self._mirror.change(self._kind)
            except LookupError:
                yield _line("ERROR", {"kind": "Status", "code": HTTPStatus.GONE})
                return
            if change is not None:
                yield _line("DELETED" if change.deleted else "MODIFIED", change.body)
            else:
                await self._news.wait()
        raise aiohttp.ClientConnectionError("closed")

    def close(self) -> None:
        """End the watch."""
        super().close()
        self._news.set()

    def _wake(self) -> None:
        with suppress(RuntimeError):  # the loop is closed, and this watch with it
            self._loop.call_soon_threadsafe(self._news.set)


def _line(event: str, body: JsonObject) -> bytes:
    return json.dumps({"type": event, "object": body}).encode() + b"\n"


def _refusal(status: int, message: str) -> Answer:
    body = {"kind": "Status", "status": "Failure", "code": int(status), "message": message}
    return Answer(status, body)


def _discovery(kinds: Sequence[Kind]) -> Mapping[str, JsonObject]:
    """Discovery documents for kopf, by path."""
    documents: dict[str, JsonObject] = {"/api": {"versions": ["v1"]}}
    # kopf waits until it knows namespaces, and then does not watch them
    for kind in (NAMESPACE, *kinds):
        path = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.api_version}"
        resource = {
            "name": kind.plural,
            "singularName": kind.kind.lower(),
            "kind": kind.kind,
            "namespaced": kind.namespaced,
            "verbs": ["list", "watch", "patch"],
        }
        resources = documents.get(path, {}).get("resources", [])
        assert isinstance(resources, list)
        documents[path] = {"resources": [*resources, resource]}
    versions = {kind.group: {"version": kind.version} for kind in kinds}
    groups = [
        {"name": group, "versions": [version], "preferredVersion": version}
        for group, version in versions.items()
    ]
    return {**documents, "/apis": {"groups": groups}}
