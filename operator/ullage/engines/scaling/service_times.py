# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Log-normal service times, from their mean and one quantile."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTime:
    """Service time of one replica without waiting: mean, seconds, and spread of the logarithm."""

    mean_s: float
    sigma: float

    @property
    def cv2(self) -> float:
        """Squared coefficient of variation."""
        return math.expm1(self.sigma**2)

    def quantile_s(self, quantile: float) -> float:
        """The service time at a quantile, 0..1, seconds."""
        z = NormalDist().inv_cdf(quantile)
        return self.mean_s * math.exp(z * self.sigma - self.sigma**2 / 2)


def service_time(mean_s: float, at_quantile_s: float, quantile: float) -> ServiceTime:
    """Service times from measurements.

    The quantile is exp(z * sigma - sigma^2 / 2) means; of the two solutions the smaller sigma
    counts, and the widest one where no sigma gives the ratio (derived).

    Args:
        mean_s: Mean, seconds.
        at_quantile_s: Service time at the quantile, seconds; below the mean counts as the mean.
        quantile: Above .5 and below 1.
    """
    z = NormalDist().inv_cdf(quantile)
    room = z * z - 2 * math.log(max(at_quantile_s / mean_s, 1.0))
    return ServiceTime(mean_s=mean_s, sigma=z - math.sqrt(room) if room > 0 else z)
