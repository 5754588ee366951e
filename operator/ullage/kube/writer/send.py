# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""From one action to one (rarely two) requests: fenced, preconditioned, and skipped without effect.

Errors are passed through unchanged; the writer evaluates them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, assert_never

from ullage.api.readers import section
from ullage.cluster.codecs.objects import controller_of
from ullage.cluster.records.object_ref import ObjectRef
from ullage.kube.errors import name_conflict
from ullage.kube.events import EventRecorder
from ullage.kube.requests import ApiRequest, ApiVerb, ObjectKey, RequestBuilder, key_of
from ullage.kube.writer.cache import ApplyGate, StatusGate, digest
from ullage.ports import NODE, ClusterPort, Conflict, JsonObject, NotFound
from ullage.scheduling.lifecycle.taints import taint_patch
from ullage.scheduling.model.plan import Action, Emit, SetStatus, TaintNode, TellPod

SENT: Final = "ok"
UNCHANGED: Final = "unchanged"


def is_leaving(held: JsonObject) -> bool:
    """True if the object is being deleted."""
    return bool(section(held, "metadata").get("deletionTimestamp"))


class Sender:
    """Sends requests through the port."""

    def __init__(
        self,
        cluster: ClusterPort,
        requests: RequestBuilder,
        events: EventRecorder,
        *,
        monotonic: Callable[[], float],
        guard: Callable[[], None],
        remembered_bytes: int,
    ) -> None:
        """``guard`` is called before every request and raises if none may be sent.

        ``remembered_bytes`` bounds the cache of the last applies, of specs and statuses each.
        """
        self._cluster = cluster
        self._requests = requests
        self._events = events
        self._guard = guard
        self._specs: ApplyGate[ObjectKey] = ApplyGate(remembered_bytes)
        self._statuses = StatusGate(remembered_bytes)
        self._monotonic = monotonic

    async def send(self, action: Action) -> str:
        """Execute one action; true if a request was sent.

        Raises:
            ApiError: the API refused it or did not answer, or nothing may be sent.
        """
        if isinstance(action, Emit):
            await self._events.send(action)
            return SENT
        if isinstance(action, SetStatus):
            return await self._status(action)
        if isinstance(action, TaintNode):
            return await self._taint(action)
        request = self._requests.request(action)
        for first in self._requests.before(action):
            await self._make_once(first)
        if request.verb is ApiVerb.APPLY:
            return await self._apply(action, request)
        await self._perform(request)
        return SENT

    def forget(self, action: Action) -> None:
        """Forget the object's last apply: it may no longer be in force."""
        self._specs.forget(key_of(action))
        if isinstance(action, SetStatus):
            self._statuses.forget(action.owner.uid)

    async def _taint(self, action: TaintNode) -> str:
        """Update taints, which have many writers: read the list, write it for this version only."""
        name = action.node.name
        self._guard()
        held = await self._cluster.get(NODE, name)
        if section(held, "metadata").get("uid") != action.node.uid:
            raise Conflict(409, f"Node {name} is another one by now", "Conflict")
        patch = taint_patch(held, action.value)
        if patch is None:
            return UNCHANGED
        self._guard()
        await self._cluster.json_patch(NODE, name, patch)
        return SENT

    async def _status(self, action: SetStatus) -> str:
        if isinstance(action, TellPod):
            await self._send_apply(self._requests.request(action))
            return SENT
        uid = action.owner.uid
        base = self._statuses.base(uid, action.resource_version)
        request = self._requests.request(action, base)
        content = digest(request.body)
        if self._statuses.unchanged(uid, action.resource_version, content):
            return UNCHANGED
        answer = await self._send_apply(request)
        self._statuses.applied(uid, base, content, answer)
        return SENT

    async def _apply(self, action: Action, request: ApiRequest) -> str:
        key = key_of(action)
        content = digest(request.body)
        seen = self._requests.seen(request)
        if self._specs.unchanged(key, content, seen, self._monotonic()):
            return UNCHANGED
        if request.owner is not None and not request.uid:
            request = await self._claim(request, request.owner)
        answer = await self._send_apply(request)
        self._specs.applied(key, content, answer, self._monotonic())
        return SENT

    async def _send_apply(self, request: ApiRequest) -> JsonObject:
        self._guard()
        return await self._cluster.apply(
            request.kind,
            request.name,
            request.body,
            namespace=request.namespace,
            subresource=request.subresource,
            manager=request.manager,
        )

    async def _claim(self, request: ApiRequest, owner: ObjectRef) -> ApiRequest:
        """Read before applying to a name that is not ours in the watch.

        An apply with force would silently take over an object of another owner.
        """
        self._guard()
        try:
            held = await self._cluster.get(request.kind, request.name, namespace=request.namespace)
        except NotFound:
            return request
        self._check_holder(request, owner, held)
        return request

    async def _perform(self, request: ApiRequest) -> None:
        self._guard()
        match request.verb:
            case ApiVerb.CREATE:
                await self._create(request)
            case ApiVerb.PATCH:
                await self._cluster.json_patch(
                    request.kind, request.name, request.patch, namespace=request.namespace
                )
            case ApiVerb.DELETE:
                await self._cluster.delete(
                    request.kind,
                    request.name,
                    namespace=request.namespace,
                    uid=request.uid,
                    grace_s=request.grace_s,
                )
            case ApiVerb.SCALE:
                await self._cluster.scale(
                    request.kind,
                    request.name,
                    request.replicas,
                    namespace=request.namespace,
                    resource_version=request.resource_version,
                )
            case ApiVerb.EVICT:
                await self._cluster.evict(
                    request.name,
                    namespace=request.namespace,
                    uid=request.uid,
                    grace_s=request.grace_s,
                )
            case ApiVerb.APPLY:
                raise ValueError("what is applied goes by _apply")
            case _:
                assert_never(request.verb)

    async def _make_once(self, request: ApiRequest) -> None:
        """Create an object with a name of its own, unless it exists."""
        self._guard()
        try:
            await self._cluster.create(request.kind, request.body, namespace=request.namespace)
        except Conflict as error:
            if error.reason != "AlreadyExists":
                raise

    async def _create(self, request: ApiRequest) -> None:
        try:
            await self._cluster.create(request.kind, request.body, namespace=request.namespace)
        except Conflict as error:
            if error.reason != "AlreadyExists" or request.owner is None:
                raise
            self._guard()
            held = await self._cluster.get(request.kind, request.name, namespace=request.namespace)
            self._check_holder(request, request.owner, held)

    def _check_holder(self, request: ApiRequest, owner: ObjectRef, held: JsonObject) -> None:
        """Accept an object of the same owner; refuse or wait for any other.

        Raises:
            Conflict: it is being deleted, or belongs to an earlier owner with the same name.
            Refused: it belongs to another owner.
        """
        holder = controller_of(section(held, "metadata"))
        named = holder is not None and holder.names(owner.kind, owner.name)
        mine = named and holder is not None and holder.uid == owner.uid
        if is_leaving(held) or (named and not mine):
            raise Conflict(
                409,
                f"{request.kind.kind} {request.namespace}/{request.name} of an earlier owner is "
                "still there",
                "AlreadyExists",
            )
        if not mine:
            held_by = holder.described if holder is not None else "no workload of ours"
            raise name_conflict(request.kind, request.namespace, request.name, held_by)
