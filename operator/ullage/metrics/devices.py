# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of choosing an accelerator: how right speeds were, and how good the choices are.

Families are made at scrape time from figures that are handed in. Labels are types of devices and
sources of speeds, never a job or a class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import GaugeMetricFamily, Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFigures:
    """Figures of choices.

    Attributes:
        errors: Mean of |predicted - measured| / measured by (accelerator, source of the speed).
        regrets: Mean of what running jobs pay for a step over the least they could, by the
            accelerator that they hold.
    """

    errors: Mapping[tuple[str, str], float] = field(default_factory=dict)
    regrets: Mapping[str, float] = field(default_factory=dict)


def device_metrics(figures: DeviceFigures) -> Iterator[Metric]:
    """The families."""
    errors = GaugeMetricFamily(
        "ullage_device_prediction_abs_error_ratio",
        "Mean relative error of speeds that were estimated or declared for a type, against the"
        " first measurement there; recent classes.",
        labels=["accelerator", "source"],
    )
    for labels, value in sorted(figures.errors.items()):
        errors.add_metric(list(labels), value)
    yield errors
    regrets = GaugeMetricFamily(
        "ullage_device_choice_regret_ratio",
        "What running jobs with spec.cost pay for a step (or how long it takes, where time is"
        " their aim) on the type they hold, over the best type that was measured; 1 = the best.",
        labels=["accelerator"],
    )
    for kind, value in sorted(figures.regrets.items()):
        regrets.add_metric([kind], value)
    yield regrets
