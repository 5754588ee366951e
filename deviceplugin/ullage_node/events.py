# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Events on the user's pod: one per change, never a stream.

kubelet retries a refused container every ten seconds; the same text about the same pod is sent once
in ten minutes. Events are best effort: one that the API server does not accept is dropped and
counted, nothing waits for it.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from ullage.api.labels import API_VERSION, MANAGER_NODE
from ullage_node.api_client import CORE, ApiClient, ApiServerError
from ullage_node.status import timestamp
from ullage_node.times import EVENT_QUIET_S

QUEUE: Final = 256
REMEMBERED: Final = 2048
LONGEST_NOTE: Final = 1000

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSubject:
    """The object that an event is about; a namespace makes it a pod, none the GPUNode."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEvent:
    """One event to send."""

    subject: EventSubject
    reason: str
    """Reason of the event, for example ``SliceRefused``."""
    message: str
    warning: bool = True


class Events:
    """A bounded queue in front of the API server."""

    def __init__(self, client: ApiClient, node: str) -> None:
        self._client = client
        self._node = node
        self._queue: asyncio.Queue[AgentEvent] = asyncio.Queue(QUEUE)
        self._said: OrderedDict[AgentEvent, float] = OrderedDict()
        self.dropped = 0

    def say(self, event: AgentEvent) -> bool:
        """Queue an event unless it was sent recently; true if it was queued."""
        now = time.monotonic()
        if now - self._said.get(event, -EVENT_QUIET_S) < EVENT_QUIET_S:
            return False
        self._said[event] = now
        self._said.move_to_end(event)
        while len(self._said) > REMEMBERED:
            self._said.popitem(last=False)
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            self.dropped += 1
            return False
        return True

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            event = await self._queue.get()
            namespace = event.subject.namespace or "default"
            path = f"{CORE}/namespaces/{namespace}/events"
            try:
                await self._client.create(path, event_body(event, self._node, time.time()))
            except ApiServerError as error:
                self.dropped += 1
                _log.info("event dropped", reason=event.reason, error=str(error))


def event_body(event: AgentEvent, node: str, wall: float) -> Mapping[str, object]:
    """The core/v1 Event."""
    subject = event.subject
    is_pod = bool(subject.namespace)
    involved = {
        "apiVersion": "v1" if is_pod else API_VERSION,
        "kind": "Pod" if is_pod else "GPUNode",
        "name": subject.name,
        "uid": subject.uid,
    }
    moment = timestamp(wall)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "generateName": f"{subject.name[:200]}.",
            "namespace": subject.namespace or "default",
        },
        "involvedObject": involved | ({"namespace": subject.namespace} if is_pod else {}),
        "type": "Warning" if event.warning else "Normal",
        "reason": event.reason,
        "message": event.message[:LONGEST_NOTE],
        "source": {"component": MANAGER_NODE, "host": node},
        "reportingComponent": MANAGER_NODE,
        "reportingInstance": node,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
