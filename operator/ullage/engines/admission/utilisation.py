# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The protocol of predictors, and the baseline: the sum of utilisations.

The baseline needs one number per workload, so it works without measurements; a better predictor has
to beat it. Pure arithmetic; it must never use the identity of a tenant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ullage.engines.admission.limits import WHOLE_PERCENT
from ullage.engines.admission.records import Tenant


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


class UtilisationSum:
    """Utilisation sum, with shares as ceilings.

    ``s_i = max(1, u_i / p_i) * max(1, sum_j min(p_j, u_j))``: the first factor is the slowdown by a
    tenant's own ceiling, the second that of all tenants when demands exceed the device. Source: the
    prior of the admission engine with neither memory-bound nor launch-bound part.
    """

    name = "utilisation-sum"

    def predict(
        self, tenants: Sequence[Tenant], newcomer: Tenant, percent: int
    ) -> tuple[float, ...]:
        """Slowdowns by the formula of the class, see :meth:`Predictor.predict`.

        Raises:
            ValueError: a share is not positive, or a utilisation is negative.
        """
        demands = [(tenant.utilisation, tenant.percent / WHOLE_PERCENT) for tenant in tenants]
        demands.append((newcomer.utilisation, percent / WHOLE_PERCENT))
        crowd = 0.0
        for use, share in demands:
            if share <= 0 or use < 0:
                raise ValueError(f"share {share:g} and utilisation {use:g} must be positive")
            crowd += min(share, use)
        crowd = max(1.0, crowd)
        return tuple(max(1.0, use / share) * crowd for use, share in demands)
