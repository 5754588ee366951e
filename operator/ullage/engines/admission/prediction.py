# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The question every predictor answers: how slow does each tenant become, if this one joins?

Pure values; knows nothing of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ullage.engines.admission.records import Forecast, Tenant


class Predictor(Protocol):
    """Predicts slowdowns against running alone on the whole device."""

    name: str

    def predict(
        self, tenants: Sequence[Tenant], newcomer: Tenant, percent: int
    ) -> tuple[float, ...]:
        """Slowdown of each tenant in order, and of the newcomer last; >= 1.

        Args:
            tenants: Residents, each at its own share.
            newcomer: The tenant that joins.
            percent: Its share, percent of the device.
        """
        ...


class Forecaster(Protocol):
    """Predicts slowdowns with their uncertainty, on one type of accelerator.

    Asked on the decision path: table look-ups only, no factorisation, no I/O.
    """

    def forecast(self, accelerator: str, tenants: Sequence[Tenant]) -> Forecast:
        """Log slowdown of every tenant of a mixture, each at its own share.

        Args:
            accelerator: Type of the device.
            tenants: The mixture, each tenant at its own share (percent).

        Raises:
            ValueError: there is no tenant, or a share is not positive.
        """
        ...
