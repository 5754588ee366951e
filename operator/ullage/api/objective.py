# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A latency objective, as a user writes it and as a node reads it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final

from ullage.api.base import PERCENTILE_PATTERN
from ullage.api.observations import LatencyObjective
from ullage.api.readers import WireError, quoted
from ullage.api.spec import SAYS_NOTHING, Scalar, Spec, SpecReader, Whole, patterned


def _percentile(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise WireError(f"expected a string, got {type(value).__name__}")
    stated = str(value) if isinstance(value, str) or abs(value) < 100 else "100"
    if not re.fullmatch(PERCENTILE_PATTERN, stated) or float(stated) <= 0:
        raise WireError(f"{quoted(stated)} is no percentile: write a number above 0 and below 100")
    return stated


_PERCENTILE: Final = Scalar(
    read=_percentile,
    write=lambda stated: int(stated) if stated.isdecimal() else stated,
    schema={
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": PERCENTILE_PATTERN,
        "maxLength": 6,
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySLO(Spec):
    """Objective for the latency of requests."""

    latency_ms: Annotated[int, Whole(1, 3_600_000, wide=True)]
    """Longest latency in milliseconds at the percentile."""
    percentile: Annotated[str, _PERCENTILE] = "99"
    """Part of the requests, in percent, that must be within the latency: 99 or "99.9"."""
    metric: Annotated[
        str,
        patterned(r"^[a-zA-Z_:][a-zA-Z0-9_:]*$", "name of a metric", max_length=200),
        SAYS_NOTHING,
    ] = ""
    """Prometheus histogram of the pod that measures it, in seconds; absent = the one of the
    runtime library, ullage_request_seconds. `ttft`, the time to first token, and `itl`, the
    inter-token latency, stand for the histograms of vLLM and SGLang."""
    window_seconds: Annotated[int, Whole(1, 300, wide=True)] = 5
    """Length of the window that the guard judges."""

    def objective(self) -> LatencyObjective:
        """The same as nodes read it."""
        return LatencyObjective(
            latency_ms=self.latency_ms,
            percentile=self.percentile,
            metric=self.metric,
            window_seconds=self.window_seconds,
        )


read_latency_slo: Final = SpecReader(LatencySLO, "slo")
