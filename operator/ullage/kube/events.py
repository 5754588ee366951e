# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Events on the user's own objects: one per change, aggregated by (object, reason).

An Event is the human-readable form of a condition; it must never be the only place of any
information, and a lost one does no harm. The cache is bounded: an evicted entry costs one API read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

from ullage.api.times import rfc3339
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.values.bounded import Memo
from ullage.kube.requests import KINDS
from ullage.ports import EVENT, ClusterPort, Conflict, JsonObject, NotFound
from ullage.scheduling.model.plan import Emit

MESSAGE_LIMIT: Final = 1024
"""Maximum characters of an Event's message in the API."""
COMPONENT: Final = "ullage-operator"
_FALLBACK_NAMESPACE: Final = "default"
"""Namespace of Events on cluster-scoped objects."""

EventKey = tuple[str, str]


def event_name(target: ObjectRef, reason: str) -> str:
    """Name of the one Event for an object and a reason; the same after a restart."""
    digest = hashlib.sha256(f"{target.uid}/{reason}".encode()).hexdigest()[:16]
    return f"{target.name[:200]}.{digest}"


def _message(text: str) -> str:
    return text if len(text) <= MESSAGE_LIMIT else text[: MESSAGE_LIMIT - 1] + "…"


def event_body(action: Emit, now: float, instance: str) -> dict[str, object]:
    """A first Event for an object and a reason."""
    target = action.target
    moment = rfc3339(now)
    reference = {
        "apiVersion": KINDS[target.kind].api_version,
        "kind": target.kind,
        "name": target.name,
        "uid": target.uid,
    }
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": event_name(target, action.reason),
            "namespace": target.namespace or _FALLBACK_NAMESPACE,
        },
        "involvedObject": reference | ({"namespace": target.namespace} if target.namespace else {}),
        "type": "Warning" if action.warning else "Normal",
        "reason": action.reason.value,
        "message": _message(action.text),
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": instance,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }


class EventRecorder:
    """Sends Events; caches the last one of each object."""

    def __init__(
        self,
        cluster: ClusterPort,
        *,
        now: Callable[[], float],
        guard: Callable[[], None],
        instance: str = COMPONENT,
        remembered_bytes: int = 8 * 2**20,
    ) -> None:
        """``guard`` is called before every request and raises if none may be sent."""
        self._cluster = cluster
        self._now = now
        self._guard = guard
        self._instance = instance
        self._said: Memo[str, int] = Memo(remembered_bytes)
        self._counts: Memo[EventKey, int] = Memo(remembered_bytes)

    def is_news(self, action: Emit) -> bool:
        """True if this differs from the last Event of the object; records it."""
        digest = hash((action.reason.value, action.text))
        if self._said.get(action.target.uid) == digest:
            return False
        self._said.put(action.target.uid, digest)
        return True

    async def send(self, action: Emit) -> None:
        """Create the Event, or increase its count.

        Raises:
            ApiError: the API refused it, or did not answer.
        """
        key = (action.target.uid, action.reason.value)
        count = self._counts.get(key)
        if count is not None:
            try:
                return await self._again(action, count + 1)
            except NotFound:
                self._counts.forget(key)
        body = event_body(action, self._now(), self._instance)
        namespace = action.target.namespace or _FALLBACK_NAMESPACE
        self._guard()
        try:
            await self._cluster.create(EVENT, body, namespace=namespace)
        except Conflict as error:
            if error.reason != "AlreadyExists":
                raise
            self._guard()
            name = event_name(action.target, action.reason)
            known = await self._cluster.get(EVENT, name, namespace=namespace)
            return await self._again(action, _count_of(known) + 1)
        self._counts.put(key, 1)
        return None

    async def _again(self, action: Emit, count: int) -> None:
        patch: list[dict[str, object]] = [
            {"op": "add", "path": "/count", "value": count},
            {"op": "add", "path": "/lastTimestamp", "value": rfc3339(self._now())},
            {"op": "add", "path": "/message", "value": _message(action.text)},
        ]
        self._guard()
        await self._cluster.json_patch(
            EVENT,
            event_name(action.target, action.reason),
            patch,
            namespace=action.target.namespace or _FALLBACK_NAMESPACE,
        )
        self._counts.put((action.target.uid, action.reason.value), count)


def _count_of(event: JsonObject) -> int:
    count = event.get("count")
    return count if isinstance(count, int) else 1
