# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The rules of the leader election, as pure functions of observations and their times.

The expiry of a Lease is measured by the time for which it was unchanged on this process's own
monotonic clock, never by comparing clocks. Does no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from ullage.ports import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """Time limits of the election, seconds."""

    duration_s: float = 12.0
    """Others take over after the Lease was unchanged for this long."""
    renew_deadline_s: float = 8.0
    """A leader stops writing this long after its last successful renewal."""
    period_s: float = 2.0
    """Time between two attempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseView:
    """The Lease in the API; ``holder`` is empty without a leader."""

    holder: str
    transitions: int
    version: str
    raw: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedLease:
    """The last observed version of the Lease, or its absence, and the time since when."""

    version: str
    since: float


class LeaseMove(StrEnum):
    """Next action on the Lease."""

    CREATE = "create"
    TAKE = "take"
    RENEW = "renew"
    WAIT = "wait"
    LOST = "lost"


def view_of(raw: JsonObject) -> LeaseView:
    """Read a Lease; absent fields are empty."""
    spec, metadata = _section(raw, "spec"), _section(raw, "metadata")
    transitions = spec.get("leaseTransitions")
    return LeaseView(
        holder=str(spec.get("holderIdentity") or ""),
        transitions=transitions if isinstance(transitions, int) else 0,
        version=str(metadata.get("resourceVersion") or ""),
        raw=raw,
    )


def observe(
    before: WatchedLease | None, view: LeaseView | None, *, highest_epoch: int, now: float
) -> WatchedLease:
    """Record since when, on our clock, the Lease is unchanged, or missing.

    A new epoch in use while it is missing proves that it existed in between.
    """
    version = view.version if view else f"missing after epoch {highest_epoch}"
    return (
        before if before and before.version == version else WatchedLease(version=version, since=now)
    )


def decide(
    view: LeaseView | None,
    watched: WatchedLease,
    *,
    identity: str,
    former: str = "",
    is_leader: bool,
    fresh: bool,
    now: float,
    times: LeaseTimes,
) -> LeaseMove:
    """The next move. Pure; times are monotonic seconds.

    ``fresh`` = no replica can have led yet. Otherwise a missing Lease was deleted, perhaps during a
    leadership, and is created only when that leader can no longer write. ``former`` is the identity
    of this process's last leadership, once none of its requests can be in flight: its Lease counts
    as released.
    """
    if is_leader:
        return LeaseMove.RENEW if view is not None and view.holder == identity else LeaseMove.LOST
    stale = now - watched.since >= times.duration_s
    if view is None:
        return LeaseMove.CREATE if fresh or stale else LeaseMove.WAIT
    return LeaseMove.TAKE if stale or view.holder in ("", identity, former) else LeaseMove.WAIT


def micro_time(seconds: float) -> str:
    """Seconds since the epoch as the API's MicroTime."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _section(raw: JsonObject, field: str) -> JsonObject:
    value = raw.get(field)
    return value if isinstance(value, dict) else {}
