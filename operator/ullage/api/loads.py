# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Requests to one replica, as its node measured them. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from ullage.api.codec import Wire
from ullage.api.wire_fields import NEEDED, Counted, between

_Part: TypeAlias = Annotated[int, between(0, 1000)]
_Seconds: TypeAlias = Annotated[int, between(1, 3600), NEEDED]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedLoad(Wire):
    """Requests that one replica answered over the last seconds."""

    seconds: _Seconds
    """Time over which it was measured."""
    requests_milli: Counted = 0
    """Requests per 1,000 seconds; absent = none came."""
    request_micros: Counted = 0
    """Mean time from a request's arrival to its answer, in microseconds."""
    latency_micros: Counted = 0
    """The same at the objective's percentile."""
    late_milli: _Part = 0
    """Requests above the objective, in thousandths."""
