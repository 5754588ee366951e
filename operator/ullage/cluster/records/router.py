# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The routers of a service's requests, and their reported load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

from ullage.api.codec import derived
from ullage.api.readers import JsonObject
from ullage.api.wire_fields import NEEDED, Counted, between
from ullage.cluster.times import ROUTER_TIME_MOST_S

_Seconds: TypeAlias = Annotated[int, between(0, ROUTER_TIME_MOST_S), NEEDED]


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterPod:
    """A pod that claims to route requests of a service; it is untrusted.

    ``fault`` is the reason why its container does not run; empty if it runs or starts.
    """

    uid: str
    namespace: str
    service: str
    """Name of the service, in the pod's own namespace."""
    address: str = ""
    leaving: bool = False
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterReport:
    """Load that one router reports."""

    arrived: Annotated[Counted, NEEDED]
    """Requests since its start."""
    requests_milli: Counted = 0
    """Requests per 1,000 seconds, over the last 15 seconds."""
    waiting: Counted = 0
    """Requests that wait for a replica."""
    idle_seconds: _Seconds
    """Time since a request arrived or ran."""
    wake_millis: Counted = 0
    """Time from the last wake's first held request to a ready replica; 0 = none was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterLoad:
    """Load of a service by all of its routers.

    Attributes:
        heard: Number of routers that answered recently.
        heard_at: Time of the oldest of these answers, seconds since the epoch.
        requests_per_s: Requests that arrive.
        waiting: Requests that wait for a replica.
        idle_s: Time since a request arrived or ran, or since a router's start, as of ``heard_at``.
        asked_s: The same for requests only; ``None`` = none arrived since their start.
        wake_s: Time from the last wake's first held request to a ready replica; 0 = none.
        missing: Number of current routers without a recent answer.
        silent: One of them has not answered for so long that requests may wait there unseen.
    """

    heard: int
    heard_at: float
    requests_per_s: float = 0.0
    waiting: int = 0
    idle_s: float = 0.0
    asked_s: float | None = None
    wake_s: float = 0.0
    missing: int = 0
    silent: bool = False


_REPORT: Final = derived(RouterReport)


def router_report(raw: JsonObject) -> RouterReport:
    """The report in a router's answer.

    Raises:
        WireError: it is not an answer of a router.
    """
    return _REPORT.read(raw)
