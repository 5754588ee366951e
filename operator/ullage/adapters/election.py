# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The rules of the leader election, as pure functions of what was seen and when.

Whether a holder is gone is judged by how long its Lease stood unchanged on this process's own
monotonic clock, never by comparing clocks. Does no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from ullage.ports import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """Clocks of the election, seconds."""

    duration_s: float = 12.0
    """Others take over after the Lease stood unchanged this long."""
    renew_deadline_s: float = 8.0
    """A leader stops writing this long after its last successful renewal."""
    period_s: float = 2.0
    """Time between two looks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseView:
    """What the API holds; ``holder`` is empty when nobody leads."""

    holder: str
    renew_time: str
    transitions: int
    raw: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """The Lease as last seen and since when, on our monotonic clock, it stands so."""

    holder: str
    renew_time: str
    since: float


class Move(StrEnum):
    """What to do about the Lease now."""

    CREATE = "create"
    TAKE = "take"
    RENEW = "renew"
    WAIT = "wait"
    LOST = "lost"


def view_of(raw: JsonObject) -> LeaseView:
    """Read a Lease; absent fields are empty."""
    spec = raw.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    transitions = spec.get("leaseTransitions")
    return LeaseView(
        holder=str(spec.get("holderIdentity") or ""),
        renew_time=str(spec.get("renewTime") or ""),
        transitions=transitions if isinstance(transitions, int) else 0,
        raw=raw,
    )


def observe(before: Watched | None, view: LeaseView | None, now: float) -> Watched | None:
    """Remember since when the Lease stands as it does; a missing one keeps the last sight."""
    if view is None:
        return before
    if before and (before.holder, before.renew_time) == (view.holder, view.renew_time):
        return before
    return Watched(holder=view.holder, renew_time=view.renew_time, since=now)


def decide(
    view: LeaseView | None,
    watched: Watched | None,
    *,
    identity: str,
    leading: bool,
    now: float,
    times: LeaseTimes,
) -> Move:
    """The next move. Pure; times are monotonic seconds."""
    if leading:
        return Move.RENEW if view is not None and view.holder == identity else Move.LOST
    stale = watched is None or now - watched.since >= times.duration_s
    if view is None:
        # Deleted under a living leader: leave it the time in which it may still write.
        free = watched is None or watched.holder in ("", identity)
        return Move.CREATE if free or stale else Move.WAIT
    if view.holder in ("", identity) or stale:
        return Move.TAKE
    return Move.WAIT


def micro_time(seconds: float) -> str:
    """Seconds since the epoch as the API's MicroTime."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
