# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The utilisation sum as a forecaster, to compare with: a rule of the twin.

It claims no spread, so its margin is all or nothing and no threshold changes its answer. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ullage.engines.admission.records import Forecast, Group, Rung, Tenant
from ullage.engines.admission.utilisation import UtilisationSum

PAIR = 2


class SumForecaster:
    """A mixture keeps its objectives when the utilisation sum says so, whatever is in it."""

    def forecast(self, accelerator: str, tenants: Sequence[Tenant]) -> Forecast:
        """Log slowdown of every tenant by the utilisation sum, without spread.

        Args:
            accelerator: Type of the device; the sum does not depend on it.
            tenants: The mixture, each tenant at its own share (percent).

        Returns:
            Mean log slowdown of each tenant in order; every ``sd`` is 0.

        Raises:
            ValueError: there is no tenant, or a share is not positive.
        """
        if not tenants:
            raise ValueError("a forecast needs at least one tenant")
        *present, last = tenants
        found = UtilisationSum().predict(present, last, last.percent)
        return Forecast(
            mean=tuple(math.log(one) for one in found),
            sd=(0.0,) * len(found),
            group=Group.MANY if len(found) > PAIR else Group.KNOWN,
            rung=Rung.UTILISATION_SUM,
        )
