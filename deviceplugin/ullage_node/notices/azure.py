# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Azure: scheduled events that end the processes of this machine.

Published behaviour: every request names ``Metadata: true``; the list holds the events of all
machines of an availability set or scale set, so an event counts only if it names this one;
``NotBefore`` is an HTTP date and empty once the event has started; a finished or cancelled event
leaves the list. The very first request may take two minutes, which is no fault. Events are read and
never approved: the node may use the time until ``NotBefore``. Source: "Scheduled Events for Linux
VMs".
"""

from __future__ import annotations

from typing import Final

import orjson

from ullage.api.interruptions import Interruption, InterruptionKind, sooner
from ullage.api.readers import JsonObject, WireError, objects, text
from ullage_node.notices.endpoint import AnswerUnreadable, Endpoint, http_moment, ok_or_away

EVENTS: Final = "/metadata/scheduledevents"
EVENTS_VERSION: Final = "2020-07-01"
NAME: Final = "/metadata/instance/compute/name"
NAME_VERSION: Final = "2021-02-01"
ASKED: Final = {"Metadata": "true"}
ENDS: Final = frozenset({"Preempt", "Terminate", "Redeploy", "Reboot"})
"""Types of events that end all processes of the machine. A freeze of seconds is not one."""


class Azure:
    """Client of Azure's instance metadata service."""

    name = "Azure"
    base = "http://169.254.169.254"

    def __init__(self) -> None:
        self._machine = ""

    async def ask(self, endpoint: Endpoint, known: Interruption | None) -> Interruption | None:
        """The first event that ends this machine."""
        if not self._machine:
            where = f"{NAME}?api-version={NAME_VERSION}&format=text"
            self._machine = ok_or_away(await endpoint.get(where, ASKED), NAME).casefold()
        where = f"{EVENTS}?api-version={EVENTS_VERSION}"
        document = ok_or_away(await endpoint.get(where, ASKED), EVENTS)
        interruption: Interruption | None = None
        try:
            content = orjson.loads(document)
            if not isinstance(content, dict):
                raise AnswerUnreadable(f"{EVENTS} is no object")
            for event in objects(content, "Events"):
                interruption = sooner(interruption, self._notice(event, known))
        except WireError as error:
            raise AnswerUnreadable(f"{EVENTS}: {error}") from error
        except ValueError as error:
            raise AnswerUnreadable(f"{EVENTS} is no JSON, or a time in it is none") from error
        return interruption

    def _notice(self, event: JsonObject, known: Interruption | None) -> Interruption | None:
        if text(event, "EventType") not in ENDS or not self._is_ours(event):
            return None
        begins = text(event, "NotBefore", "")
        deadline = http_moment(begins) if begins else known.deadline_s if known else None
        return Interruption(kind=InterruptionKind.TERMINATE, deadline_s=deadline, source=self.name)

    def _is_ours(self, event: JsonObject) -> bool:
        named = event.get("Resources")
        if not isinstance(named, list):
            raise WireError("Resources: expected a list of names")
        return any(isinstance(name, str) and name.casefold() == self._machine for name in named)
