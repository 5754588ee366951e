# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Makes the few API-server calls that a node agent needs, with plain aiohttp.

A full client would cost a fifth of the agent's memory. Service-account token and authority come
from files; the token is read again every minute because it is rotated. Every call has a deadline,
every refusal becomes an :class:`ApiServerError`, and nothing is retried here.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, cast

import aiohttp
import orjson
from yarl import URL

from ullage.api.labels import API_VERSION, MANAGER_NODE
from ullage.api.readers import JsonObject, objects, section
from ullage.process.token_access import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS
from ullage_node.settings import ApiSettings
from ullage_node.times import TOKEN_REREAD_S, WATCH_S

WATCH_GUARD: Final = aiohttp.ClientTimeout(total=55, sock_connect=5)
READ_GUARD: Final = aiohttp.ClientTimeout(total=30, sock_connect=5)
WRITE_GUARD: Final = aiohttp.ClientTimeout(total=5, sock_connect=3)
PAGE: Final = 500
UNAUTHORIZED: Final = 401
LINE_BYTES: Final = 4 * 1024 * 1024
"""Longest watch line; etcd's own limit for an object is lower."""
GPU_NODES: Final = f"/apis/{API_VERSION}/gpunodes"
CORE: Final = "/api/v1"
REVIEWS: Final = {
    TOKEN_REVIEWS: ("authentication.k8s.io", "TokenReview"),
    SUBJECT_ACCESS_REVIEWS: ("authorization.k8s.io", "SubjectAccessReview"),
}


class ApiServerError(Exception):
    """The API server refused or did not answer; ``status`` is the HTTP code, 0 = no answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}" if status else message)
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectEvent:
    """One line of a watch: ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectList:
    """A complete list and the version to watch from."""

    items: tuple[JsonObject, ...]
    version: str


class ApiClient:
    """One connection pool to one API server; use it as an async context manager."""

    def __init__(self, settings: ApiSettings, environment: Mapping[str, str]) -> None:
        self._settings = settings
        self._base = URL(settings.server or _in_cluster(environment))
        self._session: aiohttp.ClientSession | None = None
        self._token = ""
        self._token_at = -TOKEN_REREAD_S

    async def __aenter__(self) -> Self:
        """Open the pool.

        Raises:
            ApiError: the authority's file cannot be read.
        """
        context = self._trust() if self._base.scheme == "https" else None
        connector = aiohttp.TCPConnector(ssl=context) if context else aiohttp.TCPConnector()
        self._session = aiohttp.ClientSession(connector=connector, read_bufsize=LINE_BYTES)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the pool and every stream."""
        if self._session is not None:
            await self._session.close()

    def _trust(self) -> ssl.SSLContext:
        file = self._settings.ca_file
        try:
            return ssl.create_default_context(cafile=str(file))
        except OSError as error:
            message = f"certificate authority {file} cannot be read: {error.strerror or error}"
            raise ApiServerError(0, message) from error

    async def get(self, path: str, timeout_seconds: float) -> JsonObject:
        """Read one object.

        Raises:
            ApiError: refused, or no answer within the time.
        """
        guard = aiohttp.ClientTimeout(total=timeout_seconds)
        return await self._call("GET", path, guard)

    async def list_all(self, path: str, fields: str) -> ObjectList:
        """Read every object that a field selector names, page by page.

        Raises:
            ApiError: refused, or no answer.
        """
        items: list[JsonObject] = []
        query = {"fieldSelector": fields, "limit": str(PAGE)}
        while True:
            page = await self._call("GET", path, READ_GUARD, query=query)
            items += objects(page, "items")
            metadata = section(page, "metadata")
            if not metadata.get("continue"):
                version = str(metadata.get("resourceVersion", ""))
                return ObjectList(items=tuple(items), version=version)
            query["continue"] = str(metadata["continue"])

    async def watch(self, path: str, fields: str, version: str) -> AsyncIterator[ObjectEvent]:
        """Follow changes from a version on, until the server ends the stream.

        Raises:
            ApiError: refused, broken off, or (410) the version is too old.
        """
        query = {
            "watch": "true",
            "fieldSelector": fields,
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
        }
        try:
            async with self._request("GET", path, WATCH_GUARD, query=query) as response:
                await self._raise_for(response)
                while line := await response.content.readline():
                    yield _event(line)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise ApiServerError(0, f"watch of {path}: {error or type(error).__name__}") from error

    async def apply_status(self, name: str, body: JsonObject) -> None:
        """Server-side apply of a GPUNode's status as its only writer.

        Raises:
            ApiError: refused (404: no such object), or no answer.
        """
        await self._call(
            "PATCH",
            f"{GPU_NODES}/{name}/status",
            WRITE_GUARD,
            query={"fieldManager": MANAGER_NODE, "force": "true"},
            body=body,
            content_type="application/apply-patch+yaml",
        )

    async def create(self, path: str, body: JsonObject) -> JsonObject:
        """Create one object, and return what the server made of it.

        Raises:
            ApiError: refused, or no answer.
        """
        return await self._call("POST", path, WRITE_GUARD, body=body)

    async def review(self, plural: str, spec: Mapping[str, object]) -> JsonObject:
        """Request a review: the user of a token (``tokenreviews``), or the rights of a user.

        Raises:
            ApiError: refused, or no answer.
        """
        group, kind = REVIEWS[plural]
        body = {"apiVersion": f"{group}/v1", "kind": kind, "spec": dict(spec)}
        return await self.create(f"/apis/{group}/v1/{plural}", body)

    async def _call(
        self,
        verb: str,
        path: str,
        guard: aiohttp.ClientTimeout,
        *,
        query: Mapping[str, str] | None = None,
        body: JsonObject | None = None,
        content_type: str = "application/json",
    ) -> JsonObject:
        headers = {"Content-Type": content_type} if body is not None else {}
        data = orjson.dumps(body) if body is not None else None
        # the server abandons a write when we do: a late one would undo the next
        asked = {**(query or {}), **({"timeout": f"{guard.total:g}s"} if body is not None else {})}
        try:
            async with self._request(
                verb, path, guard, query=asked, headers=headers, data=data
            ) as response:
                await self._raise_for(response)
                return _object(await response.read())
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise ApiServerError(0, f"{verb} {path}: {error or type(error).__name__}") from error

    def _request(
        self,
        verb: str,
        path: str,
        guard: aiohttp.ClientTimeout,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        data: bytes | None = None,
    ) -> aiohttp.client._RequestContextManager:
        if self._session is None:
            raise RuntimeError("the client is not open")
        secrets = {"Authorization": f"Bearer {token}"} if (token := self._bearer()) else {}
        return self._session.request(
            verb,
            self._base.joinpath(path.lstrip("/")),
            params=query,
            headers={"Accept": "application/json", **secrets, **(headers or {})},
            data=data,
            timeout=guard,
        )

    def _bearer(self) -> str:
        """The token; a file that cannot be read for a moment leaves the last one in use."""
        if time.monotonic() - self._token_at >= TOKEN_REREAD_S:
            try:
                self._token = self._settings.token_file.read_text().strip()
                self._token_at = time.monotonic()
            except OSError:
                return self._token
        return self._token

    async def _raise_for(self, response: aiohttp.ClientResponse) -> None:
        if response.status < 400:
            return
        if response.status == UNAUTHORIZED:
            self._token_at = -TOKEN_REREAD_S  # rotated: read it again at the next call
        text = (await response.read())[:2000]
        try:
            message = str(_object(text).get("message", ""))
        except ValueError:
            message = text.decode(errors="replace")
        raise ApiServerError(response.status, message or str(response.reason))


def _event(line: bytes) -> ObjectEvent:
    raw = _object(line)
    body = section(raw, "object")
    if raw.get("type") == "ERROR":
        code = body.get("code")
        raise ApiServerError(code if isinstance(code, int) else 500, str(body.get("message", "")))
    return ObjectEvent(type=str(raw.get("type", "")), object=body)


def _object(data: bytes) -> JsonObject:
    document = orjson.loads(data)
    if not isinstance(document, dict):
        raise ValueError("expected a JSON object")
    return cast(JsonObject, document)


def _in_cluster(environment: Mapping[str, str]) -> str:
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ApiServerError(
            0,
            "no API server: not in a cluster (KUBERNETES_SERVICE_HOST is not set); "
            "set ULLAGE_NODE_API_SERVER",
        )
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
