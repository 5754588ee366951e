# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The instance metadata service of Azure.

After "Scheduled Events for Linux VMs" and "Azure Instance Metadata Service": a request without
``Metadata: true``, or without a version that exists, is 400; the list names for each event the
machines it concerns; ``NotBefore`` is an HTTP date while the event is Scheduled and empty once it
is Started; whatever changes in the list raises ``DocumentIncarnation``.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from fakes.metadata.server import MetadataServer

EVENT_VERSIONS = ("2019-01-01", "2019-04-01", "2019-08-01", "2020-07-01")


class FakeAzure(MetadataServer):
    """Says what the test wants said; the machine is ``gpu_3`` of a scale set."""

    def __init__(self, machine: str = "gpu_3") -> None:
        super().__init__()
        self.machine = machine
        self._events: dict[str, dict[str, object]] = {}
        self._incarnation = 1

    def schedule(
        self,
        event: str,
        kind: str,
        not_before: str,
        *,
        machines: Sequence[str] | None = None,
        started: bool = False,
    ) -> None:
        """Put an event into the list, or change it."""
        self._incarnation += 1
        self._events[event] = {
            "EventId": event,
            "EventType": kind,
            "ResourceType": "VirtualMachine",
            "Resources": list(machines) if machines is not None else [self.machine],
            "EventStatus": "Started" if started else "Scheduled",
            "NotBefore": "" if started else not_before,
            "Description": "",
            "EventSource": "Platform",
            "DurationInSeconds": -1,
        }

    def remove(self, event: str) -> None:
        """The event is over, or was called off."""
        self._incarnation += 1
        del self._events[event]

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/metadata/scheduledevents", self._scheduled),
            web.get("/metadata/instance/compute/name", self._name),
        ]

    async def _scheduled(self, request: web.Request) -> web.Response:
        if not _asked(request) or request.query.get("api-version") not in EVENT_VERSIONS:
            return web.json_response({"error": "Bad request"}, status=400)
        if self.garbage is not None:
            return web.Response(text=self.garbage)
        return web.json_response(
            {"DocumentIncarnation": self._incarnation, "Events": list(self._events.values())}
        )

    async def _name(self, request: web.Request) -> web.Response:
        plain = request.query.get("format") == "text"
        if not _asked(request) or not request.query.get("api-version") or not plain:
            return web.json_response({"error": "Bad request"}, status=400)
        return web.Response(text=self.machine)


def _asked(request: web.Request) -> bool:
    return request.headers.get("Metadata", "").lower() == "true"
