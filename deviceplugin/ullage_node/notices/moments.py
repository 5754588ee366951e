# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Times as providers write them, in whole seconds since the epoch: a deadline names a notice."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from math import floor

from ullage.api.contract import moment_of


def rfc3339_moment(value: str) -> float:
    """``2026-01-02T03:04:05Z`` as seconds since the epoch.

    Raises:
        ValueError: it is no such time, or has no zone.
    """
    return float(floor(moment_of(value, "time")))


def http_moment(value: str) -> float:
    """``Mon, 19 Sep 2016 18:29:47 GMT`` as seconds since the epoch.

    Raises:
        ValueError: it is no such time, or has no zone.
    """
    try:
        moment = parsedate_to_datetime(value)
    except (TypeError, IndexError, OverflowError) as error:
        raise ValueError("no time") from error
    return float(floor(moment_of(moment.isoformat(), "time")))
