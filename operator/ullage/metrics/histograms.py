# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The operator's histograms: prometheus_client's, in no registry.

They count for the lifetime of the process and are exported with the figures of a scrape.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from prometheus_client import Histogram

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_ADMISSION: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
_WAITS: Final = (1.0, 10.0, 60.0, 300.0, 1800.0, 7200.0, 28800.0, 86400.0)
_SLOWDOWN: Final = (1.05, 1.1, 1.2, 1.3, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0, 4.0, 6.0)
_slowdowns = partial(Histogram, labelnames=["accelerator"], buckets=_SLOWDOWN, registry=None)


def decision_seconds() -> Histogram:
    """Durations of decision cycles."""
    return Histogram(
        "ullage_decision_seconds",
        "Duration of decision cycles.",
        buckets=_SECONDS,
        registry=None,
    )


def division_seconds() -> Histogram:
    """Durations of the solver of turns."""
    return Histogram(
        "ullage_policy_solve_seconds",
        "Duration of dividing the cluster's time by the objective.",
        buckets=_SECONDS,
        registry=None,
    )


def admission_seconds() -> Histogram:
    """Durations of decisions per workload."""
    return Histogram(
        "ullage_admission_seconds",
        "Time of a decision cycle, shared by the workloads that it decided.",
        buckets=_ADMISSION,
        registry=None,
    )


def wait_seconds() -> Histogram:
    """Waits of admitted workloads, by tenant and by the last reason to wait."""
    return Histogram(
        "ullage_workload_wait_seconds",
        "Time from creation, or from the end of the last placement, until admission; reason is"
        " what bound last, Placed where nothing did.",
        labelnames=["tenant", "reason"],
        buckets=_WAITS,
        registry=None,
    )


def predicted_slowdown() -> Histogram:
    """By type of device, over the windows observed in the meantime."""
    return _slowdowns(
        "ullage_predicted_slowdown_ratio",
        "Slowdown that was predicted for the windows that were observed then.",
    )


def observed_slowdown() -> Histogram:
    """Of observed windows, by type of device."""
    return _slowdowns("ullage_observed_slowdown_ratio", "Slowdown of observed windows.")
