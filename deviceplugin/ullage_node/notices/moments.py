# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Times as providers write them, in whole seconds since the epoch: a deadline names a notice."""

from __future__ import annotations

from datetime import datetime
from email.utils import parsedate_to_datetime
from math import floor


def rfc3339_moment(value: str) -> float:
    """``2026-01-02T03:04:05Z`` as seconds since the epoch.

    Raises:
        ValueError: it is no such time, or has no zone.
    """
    return _with_zone(datetime.fromisoformat(value))


def http_moment(value: str) -> float:
    """``Mon, 19 Sep 2016 18:29:47 GMT`` as seconds since the epoch.

    Raises:
        ValueError: it is no such time, or has no zone.
    """
    return _with_zone(parsedate_to_datetime(value))


def _with_zone(moment: datetime) -> float:
    if moment.tzinfo is None:
        raise ValueError("a time without a zone")
    return float(floor(moment.timestamp()))
