# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Durations of the API, and moments as RFC 3339 texts, both ways, in the years 1 to 9999.

Standard library only. A moment outside is the nearest that can be written, so that writing never
fails and what was written reads back equal.
"""

from __future__ import annotations

from datetime import UTC, datetime
from math import floor
from typing import Final

from ullage.api.readers import WireError, quoted

HEARTBEAT_SECONDS: Final = 60
"""Period of the node agent's heartbeat (chosen); older than three periods means no one listens
there."""
DAY_S: Final = 86_400
HOUR_MS: Final = 3_600_000
REQUEST_KEPT_MOST_S: Final = 30 * DAY_S
"""Longest time for which a finished ProfileRequest is kept (chosen)."""
DECISION_PERIOD_S: Final = float(DAY_S)
"""Time between two decisions on capacity, unless the policy states another (chosen)."""
EARLIEST: Final = -62_135_596_800.0
"""0001-01-01T00:00:00Z, seconds since the epoch."""
LATEST: Final = 253_402_300_799.0
"""9999-12-31T23:59:59Z, seconds since the epoch."""


def writable(moment: float) -> float:
    """The nearest moment that RFC 3339 can write; one that is no number is the epoch."""
    return min(max(moment, EARLIEST), LATEST) if moment == moment else 0.0


def rfc3339(moment: float) -> str:
    """A moment in whole seconds, UTC, as the API stores it: ``2026-01-02T03:04:05Z``.

    Args:
        moment: Seconds since the epoch; any float.
    """
    stamp = datetime.fromtimestamp(floor(writable(moment)), UTC)
    return f"{stamp.year:04d}-{stamp:%m-%dT%H:%M:%SZ}"


def moment_of(value: str, field: str) -> float:
    """Seconds since the epoch of an RFC 3339 time.

    Raises:
        WireError: it is no such time, or has no zone; the text names ``field``.
    """
    try:
        return stated_moment(value)
    except WireError as error:
        raise WireError(f"{field}: {error}") from error


def stated_moment(value: str) -> float:
    """The same without the name of a field.

    Raises:
        WireError: it is no such time, or has no zone.
    """
    try:
        parsed = datetime.fromisoformat(value)
    except ValueError as error:
        raise WireError(f"{quoted(value)} is no RFC 3339 time") from error
    if parsed.tzinfo is None:
        raise WireError(f"{quoted(value)} has no time zone")
    return writable(parsed.timestamp())


def seconds(value: object, field: str) -> float:
    """Seconds since the epoch of an RFC 3339 time; absent is 0.

    Raises:
        WireError: it is no such time, or has no zone.
    """
    if value is None or value == "":
        return 0.0
    if not isinstance(value, str):
        raise WireError(f"{field}: expected a time, got {type(value).__name__}")
    return moment_of(value, field)
