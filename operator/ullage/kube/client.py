# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The API server behind the ``ClusterPort`` seam.

Objects stay raw JSON: typed models cost twenty times the CPU and drop fields they do not know.
Must never read-modify-replace anything but the Lease.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

import aiohttp

from ullage.api.labels import MANAGER_OPERATOR
from ullage.kube.answers import BadLine, TooLarge, WatchStalled, error_from_status
from ullage.kube.credentials import Credentials
from ullage.kube.decoding import decoded
from ullage.kube.transport import Query, Transport, TransportLimits, no_answer
from ullage.ports import POD, JsonObject, JsonPatch, Kind, NotFound, Page, Selector, WatchEvent

APPLY: Final = "application/apply-patch+yaml"
JSON_PATCH: Final = "application/json-patch+json"


LONGEST_LINE: Final = 64 * 2**20
"""Maximum bytes of a line of a watch: the largest object of the API server, six-fold escaped."""
STRICT: Final = ("fieldValidation", "Strict")
"""A misspelt field in a user's template is an error with its path, not silently dropped."""


class K8sCluster:
    """One connection pool to one API server; close it when done."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        limits: TransportLimits | None = None,
        user_agent: str = "ullage-operator",
        seed: int | None = None,
    ) -> None:
        """``user_agent`` becomes the field manager of creates and JSON patches."""
        self._transport = Transport(
            credentials, limits=limits or TransportLimits(), user_agent=user_agent, seed=seed
        )

    @property
    def source(self) -> str:
        """Human-readable source of the credentials."""
        return self._transport.credentials.source

    async def __aenter__(self) -> Self:
        """Start to renew the token."""
        self._transport.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close everything."""
        await self.close()

    async def close(self) -> None:
        """End the token task and close all connections."""
        await self._transport.close()

    # Reading.

    async def list_paged(
        self, kind: Kind, selector: Selector, *, limit: int = 500, resource_version: str = ""
    ) -> AsyncGenerator[Page]:
        """Yield the pages of one consistent list; all carry the same version.

        A page that is too large is requested again in smaller ones.

        Args:
            kind: Kind to list.
            selector: Filters that the server applies.
            limit: Maximum objects per page.
            resource_version: List the state of exactly this version; empty means the newest.

        Raises:
            Gone: the version, or the started list, is too old; start again.
            TooLarge: a single object is too large.
        """
        query, path = _selection(selector), _collection(kind, selector.namespace)
        place: Query = []
        if resource_version:
            place = [("resourceVersion", resource_version), ("resourceVersionMatch", "Exact")]
        while True:
            try:
                answer = await self._transport.read(path, [("limit", str(limit)), *query, *place])
            except TooLarge:
                if limit <= 1:
                    raise
                limit = max(1, limit // 8)
                continue
            meta = _object(answer, "metadata")
            remaining = meta.get("remainingItemCount")
            yield Page(
                items=_items(answer),
                resource_version=str(meta.get("resourceVersion", "")),
                remaining=remaining if isinstance(remaining, int) else None,
            )
            token = str(meta.get("continue") or "")
            if not token:
                return
            place = [("continue", token)]

    async def watch(
        self,
        kind: Kind,
        selector: Selector,
        *,
        resource_version: str,
        timeout_s: int = 45,
        on_open: Callable[[], None] | None = None,
    ) -> AsyncGenerator[WatchEvent]:
        """Yield events after a version until the server ends the stream.

        ``on_open`` is called when the server accepts it, possibly long before the first event.

        Raises:
            WatchStalled: the stream outlived its time limit; reopen it at the last version.
            WatchStalled: the stream outlived its time; open it again where it was.
            BadLine: a line is no event.
            ApiError: the stream could not be opened, broke, or ended with an error.
        """
        query = [
            ("watch", "true"),
            ("resourceVersion", resource_version),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(timeout_s)),
            *_selection(selector),
        ]
        limit = aiohttp.ClientTimeout(
            total=timeout_s + self._transport.limits.watch_grace_s,
            sock_connect=self._transport.limits.connect_s,
        )
        response = await self._transport.open(
            "GET", _collection(kind, selector.namespace), query, limit=limit
        )
        if on_open is not None:
            on_open()
        try:
            async for line in _lines(response):
                yield _event(line)
        finally:
            response.close()

    async def get(self, kind: Kind, name: str, *, namespace: str = "") -> JsonObject:
        """Read one object."""
        return await self._transport.read(_path(kind, namespace, name), [])

    async def served(self, api_version: str) -> frozenset[str]:
        """Plurals that the server offers under ``group/version``; empty when it has none."""
        prefix = "/apis/" if "/" in api_version else "/api/"
        try:
            answer = await self._transport.read(prefix + api_version, [])
        except NotFound:
            return frozenset()
        return frozenset(str(entry.get("name")) for entry in _items(answer, "resources"))

    # Writing. Each of these is sent once.

    async def create(self, kind: Kind, body: JsonObject, *, namespace: str = "") -> JsonObject:
        """Create one object."""
        return await self._transport.write(
            "POST", _path(kind, namespace), _typed(kind, body), query=[STRICT]
        )

    async def rehearse(self, kind: Kind, body: JsonObject, *, namespace: str = "") -> JsonObject:
        """Create one object without storing it: admission and validation evaluate it as usual."""
        query = [STRICT, ("dryRun", "All")]
        return await self._transport.write(
            "POST", _path(kind, namespace), _typed(kind, body), query=query
        )

    async def update(
        self, kind: Kind, name: str, body: JsonObject, *, namespace: str = ""
    ) -> JsonObject:
        """Replace one object; the body has the resource version it was read at."""
        return await self._transport.write("PUT", _path(kind, namespace, name), _typed(kind, body))

    async def apply(
        self,
        kind: Kind,
        name: str,
        body: JsonObject,
        *,
        namespace: str = "",
        subresource: str = "",
        manager: str,
    ) -> JsonObject:
        """Server-side apply of owned fields, with force."""
        return await self._transport.write(
            "PATCH",
            _path(kind, namespace, name, subresource),
            _typed(kind, body),
            query=[("fieldManager", manager), ("force", "true")],
            content_type=APPLY,
        )

    async def json_patch(
        self, kind: Kind, name: str, patch: JsonPatch, *, namespace: str = ""
    ) -> JsonObject:
        """Apply a JSON patch; always sent as a list, else the client would change its type."""
        return await self._transport.write(
            "PATCH",
            _path(kind, namespace, name),
            [dict(step) for step in patch],
            content_type=JSON_PATCH,
        )

    async def scale(
        self, kind: Kind, name: str, replicas: int, *, namespace: str = "", resource_version: str
    ) -> JsonObject:
        """Set the replicas of an object of exactly this version, through its scale subresource."""
        body = {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {
                "name": name,
                "resourceVersion": resource_version,
                **({"namespace": namespace} if namespace else {}),
            },
            "spec": {"replicas": replicas},
        }
        return await self._transport.write(
            "PUT",
            _path(kind, namespace, name, "scale"),
            body,
            query=[("fieldManager", MANAGER_OPERATOR)],
        )

    async def delete(
        self,
        kind: Kind,
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        grace_s: int | None = None,
    ) -> None:
        """Delete one object, only if it still has this uid; dependents go in the background."""
        await self._transport.write(
            "DELETE", _path(kind, namespace, name), _delete_options(uid=uid, grace_s=grace_s)
        )

    async def evict(
        self, name: str, *, namespace: str, uid: str, grace_s: int | None = None
    ) -> None:
        """Evict a pod; ``Throttled`` when a disruption budget refuses."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": _delete_options(uid=uid, grace_s=grace_s),
        }
        await self._transport.write("POST", _path(POD, namespace, name, "eviction"), body)


async def _lines(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
    """Lines of a watch as they arrive; an incomplete last one is dropped.

    A line has one object, and one of a megabyte may be six in JSON: the limits of line readers are
    below that, and would end the watch for ever.
    """
    begun: list[bytes] = []
    size = 0
    while chunk := await _chunk(response):
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            yield b"".join((*begun, line))
            begun, size = [], 0
        begun.append(rest)
        size += len(rest)
        if size > LONGEST_LINE:
            raise BadLine(0, f"watch of {response.url.path}: a line of over {LONGEST_LINE} bytes")


async def _chunk(response: aiohttp.ClientResponse) -> bytes:
    try:
        return await response.content.readany()
    except TimeoutError as error:
        raise WatchStalled(0, f"watch of {response.url.path} outlived its time limit") from error
    except (aiohttp.ClientError, OSError) as error:
        raise no_answer(f"watch of {response.url.path}", error) from error


def _event(line: bytes) -> WatchEvent:
    try:
        raw = decoded(line)
        kind, body = raw["type"], raw["object"]
    except (ValueError, KeyError) as error:
        raise BadLine(0, f"a watch line of {len(line)} bytes is no event: {error}") from error
    if not isinstance(kind, str) or not isinstance(body, dict):
        raise BadLine(0, f"a watch line of {len(line)} bytes has the wrong types")
    if kind == "ERROR":
        raise error_from_status(body)
    return WatchEvent(type=kind, object=body)


def _collection(kind: Kind, namespace: str) -> str:
    root = f"/apis/{kind.group}" if kind.group else "/api"
    place = f"/namespaces/{quote(namespace, safe='')}" if kind.namespaced and namespace else ""
    return f"{root}/{kind.version}{place}/{kind.plural}"


def _path(kind: Kind, namespace: str, name: str = "", subresource: str = "") -> str:
    if kind.namespaced and not namespace:
        raise ValueError(f"{kind.plural} are namespaced: name the namespace")
    path = _collection(kind, namespace)
    for part in (name, subresource):
        path += f"/{quote(part, safe='')}" if part else ""
    return path


def _selection(selector: Selector) -> Query:
    pairs = (("labelSelector", selector.labels), ("fieldSelector", selector.fields))
    return [(key, value) for key, value in pairs if value]


def _typed(kind: Kind, body: JsonObject) -> dict[str, object]:
    return {"apiVersion": kind.api_version, "kind": kind.kind, **body}


def _delete_options(*, uid: str, grace_s: int | None = None) -> dict[str, object]:
    body: dict[str, object] = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
    }
    if uid:
        body["preconditions"] = {"uid": uid}
    if grace_s is not None:
        body["gracePeriodSeconds"] = grace_s
    return body


def _object(raw: JsonObject, field: str) -> Mapping[str, object]:
    value = raw.get(field)
    return value if isinstance(value, dict) else {}


def _items(raw: JsonObject, field: str = "items") -> list[JsonObject]:
    value = raw.get(field)
    return value if isinstance(value, list) else []
