# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Google Compute Engine: preemption notices of this machine.

Published behaviour: every request names ``Metadata-Flavor: Google``, and so does every answer;
``instance/preempted`` is FALSE or TRUE; with ``wait_for_change`` the server delays the answer until
the value differs from the one of ``last_etag`` or ``timeout_sec`` have passed; 503 means: retry. A
preempted machine has up to 30 seconds. Sources: "About VM metadata", "Query VM metadata", "Spot
VMs".
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import floor
from typing import Final
from urllib.parse import quote

from ullage.api.interruptions import Interruption, InterruptionKind
from ullage_node.notices.endpoint import AnswerUnreadable, Endpoint, ok_or_away
from ullage_node.times import GCE_WAIT_S

PREEMPTED: Final = "/computeMetadata/v1/instance/preempted"
FLAVOR: Final = {"Metadata-Flavor": "Google"}
GRACE_SECONDS: Final = 30.0
"""Time between notice and preemption."""


class GCE:
    """Client of Compute Engine's metadata server; notified of a change at once."""

    name = "GCE"
    base = "http://169.254.169.254"

    def __init__(self, wall: Callable[[], float] = time.time, wait_s: int = GCE_WAIT_S) -> None:
        self._wall = wall
        self._wait_s = wait_s
        self._etag = ""

    async def ask(self, endpoint: Endpoint, known: Interruption | None) -> Interruption | None:
        """The notice in force; waits for a change once the current value is known."""
        path, wait_s, etag = PREEMPTED, 0, self._etag
        if etag:
            wait_s = self._wait_s
            path += f"?wait_for_change=true&timeout_sec={wait_s}&last_etag={quote(etag)}"
        self._etag = ""  # after any failure, the next request reads the current value
        answer = await endpoint.get(path, FLAVOR, wait_s=float(wait_s))
        value = ok_or_away(answer, PREEMPTED)
        if answer.headers.get("Metadata-Flavor") != "Google":
            raise AnswerUnreadable(f"{PREEMPTED}: what answers is no metadata server of Google")
        if value not in ("TRUE", "FALSE"):
            raise AnswerUnreadable(f"{PREEMPTED} is neither TRUE nor FALSE")
        self._etag = answer.headers.get("ETag", "")
        if value == "FALSE":
            return None
        if known is not None and known.kind is InterruptionKind.TERMINATE:
            return known
        return Interruption(
            kind=InterruptionKind.TERMINATE,
            deadline_s=float(floor(self._wall() + GRACE_SECONDS)),
            source=self.name,
        )
