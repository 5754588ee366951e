# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of step traces; no request and no job is a label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ullage.process.metric_families import counter


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFigures:
    """ProfileRequests that ended while this replica led, and the time that they took."""

    requests: Mapping[str, int] = counter(
        "ullage_trace_requests",
        "ProfileRequests that ended, by the reason of their condition Complete.",
        "result",
    )
    seconds: Mapping[str, float] = counter(
        "ullage_trace_seconds", "Time that ProfileRequests spent in each phase.", "stage"
    )
    rejected: Mapping[str, int] = counter(
        "ullage_trace_rejected", "Ranks without a usable trace.", "reason"
    )
    failures: int = counter(
        "ullage_trace_failures", "ProfileRequests that ended because deciding about them failed."
    )
