# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A latency objective, as a user writes it and as a node reads it."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, StrictInt, StrictStr, WithJsonSchema

from ullage.api.base import PERCENTILE_PATTERN, Model


def _a_percentile(value: int | str) -> int | str:
    if not re.match(PERCENTILE_PATTERN, str(value)) or float(value) <= 0:
        raise ValueError(f"{value!r} is no percentile: write a number above 0 and below 100")
    return value


Percentile = Annotated[
    StrictInt | StrictStr,
    AfterValidator(_a_percentile),
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": PERCENTILE_PATTERN,
            "maxLength": 6,
        }
    ),
]


class LatencySLO(Model):
    """How fast requests shall be answered."""

    latency_ms: Annotated[int, Field(ge=1, le=3600000)]
    """Longest latency in milliseconds at the percentile."""
    percentile: Percentile = 99
    """Part of the requests, in percent, that must be within the latency: 99 or "99.9"."""
    metric: Annotated[str, Field(max_length=200, pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]*$")] | None = (
        None
    )
    """Prometheus histogram of the pod that measures it, in seconds; absent = the one of the
    runtime library, ullage_request_seconds. `ttft`, the time to first token, and `itl`, the
    inter-token latency, stand for the histograms of vLLM and SGLang."""
    window_seconds: Annotated[int, Field(ge=1, le=300)] = 5
    """Length of the window that the guard judges."""
