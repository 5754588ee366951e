# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""HTTP in front of the verbs: paths, content types, who may, faults, counting."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

import orjson
import yaml
from aiohttp import web

from fakes.apiserver import subresources
from fakes.apiserver.access import Access
from fakes.apiserver.errors import Refusal
from fakes.apiserver.faults import Faults
from fakes.apiserver.reading import Lists, discovery
from fakes.apiserver.resources import Resource
from fakes.apiserver.selectors import selection
from fakes.apiserver.store import Store
from fakes.apiserver.verbs import Target, Verbs
from fakes.apiserver.watching import Cut, Watches, WatchQuery

WRITES = frozenset({"create", "update", "patch", "apply", "delete"})
_APPLY = "application/apply-patch+yaml"
_PATCHES = {"application/json-patch+json": "json", "application/merge-patch+json": "merge"}
_REVIEWS = ("selfsubjectaccessreviews", "selfsubjectreviews")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request, as far as its path and method say it."""

    verb: str
    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def resource(self) -> str:
        return f"{self.plural}/{self.subresource}" if self.subresource else self.plural

    @property
    def access_verb(self) -> str:
        return "patch" if self.verb == "apply" else self.verb


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One answered request."""

    ask: Ask
    status: int
    content_type: str
    query: dict[str, str]
    user_agent: str


@dataclass(kw_only=True)
class Core:
    """Everything one server consists of."""

    resources: tuple[Resource, ...]
    store: Store
    verbs: Verbs
    lists: Lists
    watches: Watches
    access: Access
    faults: Faults
    writes: Counter[tuple[str, str, str, int]] = field(default_factory=Counter)
    seen: deque[Seen] = field(default_factory=lambda: deque(maxlen=50_000))


def ask_of(request: web.Request) -> Ask | None:
    """Read the path, or None when it names no resource."""
    parts = [part for part in request.path.split("/") if part]
    if parts[:1] == ["api"] and len(parts) >= 3:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[:1] == ["apis"] and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) >= 3 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    return Ask(
        verb=_verb(request, bool(name)),
        group=group,
        version=version,
        plural=rest[0],
        namespace=namespace,
        name=name,
        subresource="/".join(rest[2:]),
    )


def _verb(request: web.Request, named: bool) -> str:
    match request.method:
        case "GET" if named:
            return "get"
        case "GET":
            return "watch" if request.query.get("watch") in ("true", "1") else "list"
        case "POST":
            return "create"
        case "PUT":
            return "update"
        case "PATCH":
            return "apply" if request.content_type == _APPLY else "patch"
        case "DELETE":
            return "delete" if named else "deletecollection"
        case other:
            raise Refusal(405, f"{other} is not supported")


def _name_in(body: Any) -> str:
    """Name of the object that a create brings."""
    metadata = body.get("metadata") if isinstance(body, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""


class Endpoint:
    """Answers every request of one server."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._by_path = {(r.kind.group, r.kind.version, r.plural): r for r in core.resources}

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Outermost: refusals become Status answers, status 0 cuts the connection."""
        assert isinstance(request, web.BaseRequest)
        ask: Ask | None = None
        try:
            ask = ask_of(request)  # type: ignore[arg-type]
            response = await self._answer(request, ask)
        except Refusal as refusal:
            response = self._refused(request, refusal)
        if ask is not None:
            self._count(request, ask, response.status)
        return response

    async def _answer(self, request: web.BaseRequest, ask: Ask | None) -> web.StreamResponse:
        core = self._core
        if core.faults.slow_first_byte_s:
            await asyncio.sleep(core.faults.slow_first_byte_s)
        user = core.access.user(request.headers.get("Authorization", ""))
        if ask is None:
            found = discovery(request.path, core.resources)
            if found is None:
                raise Refusal(404, "404 page not found")
            return web.json_response(found)
        body = await self._body(request, ask)
        name = ask.name or _name_in(body)
        core.faults.strike(ask.verb, ask.plural, ask.subresource, name, after=False)
        if ask.plural in _REVIEWS:
            return web.json_response(self._review(ask, user, body), status=201)
        resource = self._by_path.get((ask.group, ask.version, ask.plural))
        if resource is None:
            raise Refusal(404, "the server could not find the requested resource")
        core.access.check(user, ask.access_verb, ask.group, ask.resource, ask.namespace, ask.name)
        if ask.verb == "watch":
            return await self._watch(request, ask, resource)
        return self._do(request, ask, resource, user, body)

    def _do(
        self, request: web.BaseRequest, ask: Ask, resource: Resource, user: str, body: Any
    ) -> web.Response:
        if request.query.get("dryRun") and (ask.verb != "create" or ask.subresource):
            raise Refusal(400, "dryRun is offered for new objects alone")
        if ask.verb == "list":
            raw, status = self._core.lists.answer(resource, ask.namespace, request.query), 200
        elif ask.verb == "get":
            raw, status = self._get(ask, resource), 200
        else:
            raw, status = self._write(request, ask, resource, user, body)
        self._core.faults.strike(ask.verb, ask.plural, ask.subresource, ask.name, after=True)
        return web.Response(body=raw, status=status, content_type="application/json")

    def _get(self, ask: Ask, resource: Resource) -> bytes:
        target = _target(ask, resource)
        stored = self._core.verbs.live(target)
        if ask.subresource == "scale":
            return orjson.dumps(subresources.scale_of(target, stored))
        return stored.raw

    def _write(
        self, request: web.BaseRequest, ask: Ask, resource: Resource, user: str, body: Any
    ) -> tuple[bytes, int]:
        verbs = self._core.verbs
        agent = request.headers.get("User-Agent", "unknown").partition("/")[0]
        manager = request.query.get("fieldManager") or ("" if ask.verb == "apply" else agent)
        target = _target(ask, resource)
        if ask.subresource and ask.subresource != "status":
            return self._subresource(request, ask, target, body, manager)
        match ask.verb:
            case "create" if not ask.name:
                strict = request.query.get("fieldValidation") == "Strict"
                if request.query.get("dryRun"):
                    rehearsed = verbs.rehearse(resource, ask.namespace, body, strict=strict)
                    return orjson.dumps(rehearsed), 201
                made = verbs.create(resource, ask.namespace, body, manager, strict=strict)
                return made.raw, 201
            case "update":
                return verbs.update(target, body, manager).raw, 200
            case "patch":
                merge = _patch_kind(request) == "merge"
                return verbs.patch(target, body, manager, merge=merge).raw, 200
            case "apply":
                there = self._core.store.get(resource, target.key) is not None
                if not there:
                    self._core.access.check(
                        user, "create", ask.group, ask.resource, ask.namespace, ask.name
                    )
                force = request.query.get("force") == "true"
                return verbs.apply(target, body, manager, force=force).raw, 200 if there else 201
            case "delete":
                return verbs.delete(target, body or {}).raw, 200
        raise Refusal(405, f"{ask.verb} is not supported here")

    def _subresource(
        self, request: web.BaseRequest, ask: Ask, target: Target, body: Any, manager: str
    ) -> tuple[bytes, int]:
        core = self._core
        match (ask.subresource, ask.verb):
            case ("eviction", "create"):
                return orjson.dumps(subresources.evict(core.verbs, core.faults, target, body)), 201
            case ("binding", "create"):
                return orjson.dumps(subresources.bind(core.verbs, target, body)), 201
            case ("scale", "update" | "patch") if target.resource.scale:
                kind = _patch_kind(request) if ask.verb == "patch" else ""
                scale = subresources.change_scale(core.verbs, target, body, manager, patch=kind)
                return orjson.dumps(scale), 200
        raise Refusal(404, "the server could not find the requested resource")

    def _review(self, ask: Ask, user: str, body: Any) -> dict[str, Any]:
        if ask.plural == "selfsubjectreviews":
            return subresources.self_subject_review(user)
        return subresources.self_access_review(self._core.access, body)

    async def _watch(
        self, request: web.BaseRequest, ask: Ask, resource: Resource
    ) -> web.StreamResponse:
        core, query = self._core, request.query
        gone = Refusal(410, "too old resource version: injected")
        if core.faults.gone_storm > 0:
            core.faults.gone_storm -= 1
            if core.faults.gone_over_http:
                raise gone
            core.faults.watch_errors.insert(0, 410)
        wanted = WatchQuery(
            resource=resource,
            namespace=ask.namespace,
            selected=selection(query.get("labelSelector", ""), query.get("fieldSelector", "")),
            version=query.get("resourceVersion", ""),
            bookmarks=query.get("allowWatchBookmarks") in ("true", "1"),
            timeout_s=float(query.get("timeoutSeconds") or 1800),
        )
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            try:
                async with contextlib.aclosing(core.watches.stream(wanted)) as lines:
                    async for chunk in lines:
                        await response.write(chunk)
                await response.write_eof()
            except Cut:
                if request.transport is not None:
                    request.transport.close()
        return response

    async def _body(self, request: web.BaseRequest, ask: Ask) -> Any:
        raw = await request.read()
        if not raw:
            return {}
        if ask.verb == "patch":
            _patch_kind(request)
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            if ask.verb == "apply":
                return yaml.safe_load(raw)
            raise Refusal(400, f"the body is no JSON: {error}") from error

    def _refused(self, request: web.BaseRequest, refusal: Refusal) -> web.StreamResponse:
        if refusal.status == 0:
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=500)
        headers = {}
        if refusal.retry_after_s:
            headers["Retry-After"] = str(int(refusal.retry_after_s))
        return web.json_response(refusal.body(), status=refusal.status, headers=headers)

    def _count(self, request: web.BaseRequest, ask: Ask, status: int) -> None:
        core = self._core
        if ask.verb in WRITES and ask.plural not in _REVIEWS:
            core.writes[ask.verb, ask.plural, ask.subresource, status] += 1
        core.seen.append(
            Seen(
                ask=ask,
                status=status,
                content_type=request.content_type,
                query=dict(request.query),
                user_agent=request.headers.get("User-Agent", ""),
            )
        )


def _target(ask: Ask, resource: Resource) -> Target:
    if resource.kind.namespaced and not ask.namespace and ask.verb not in ("list", "watch"):
        raise Refusal(404, "the server could not find the requested resource")
    return Target(
        resource=resource,
        namespace=ask.namespace if resource.kind.namespaced else "",
        name=ask.name,
        subresource=ask.subresource,
    )


def _patch_kind(request: web.BaseRequest) -> str:
    kind = _PATCHES.get(request.content_type)
    if kind is None:
        raise Refusal(415, f"the body was in an unknown format: {request.content_type}")
    return kind
