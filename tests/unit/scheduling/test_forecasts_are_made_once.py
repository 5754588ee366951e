# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A mixture is forecast once, whatever its tenants are called and must keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from ullage.engines.admission.model import LearnedModel
from ullage.engines.admission.records import ClassProfile, Forecast, ShareCurve, Tenant
from ullage.scheduling.prediction.risk import Numbers, Recall, no_forecasts

SLOW = ClassProfile(workload_class="slow", curve=ShareCurve(fixed_s=0.0, scaled_s=1.0))
STEADY = ClassProfile(workload_class="slow", curve=ShareCurve(fixed_s=1.0, scaled_s=0.0))
ONE = Tenant(name="one", percent=50, profile=SLOW)
OTHER = Tenant(name="other", percent=25, utilisation=0.4)


class Counting(LearnedModel):
    """Counts how often it is asked."""

    asked: ClassVar[list[Sequence[Tenant]]] = []

    def forecast(self, tenants: Sequence[Tenant]) -> Forecast:
        """As ever, but counted."""
        self.asked.append(tenants)
        return LearnedModel.forecast(self, tenants)


def _recall() -> Recall:
    Counting.asked.clear()
    return Recall(Counting(accelerator="a"), Numbers(), no_forecasts())


def test_names_and_objectives_share_a_forecast() -> None:
    recall = _recall()
    first = recall.forecast("a", (ONE, OTHER))
    alike = replace(ONE, name="a job", max_slowdown=1.5, profile=replace(SLOW))
    assert recall.forecast("a", (alike, OTHER)) is first
    assert len(Counting.asked) == 1


def test_another_share_utilisation_curve_or_order_is_another_forecast() -> None:
    recall = _recall()
    mixtures = [
        (ONE, OTHER),
        (OTHER, ONE),
        (ONE,),
        (replace(ONE, percent=25), OTHER),
        (ONE, replace(OTHER, utilisation=0.9)),
        (replace(ONE, profile=STEADY), OTHER),
    ]
    for mixture in mixtures * 2:
        assert recall.forecast("a", mixture) == LearnedModel(accelerator="a").forecast(mixture)
    assert len(Counting.asked) == len(mixtures)
