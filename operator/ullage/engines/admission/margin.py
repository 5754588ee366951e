# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""How safely a mixture keeps everybody's objective, and whether that is safe enough.

One number per mixture: the smallest distance of any objective from its forecast, in units of the
forecast's own spread, beside the threshold calibrated for such mixtures. Pure arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ullage.engines.admission.calibration import Band, Threshold, band_of
from ullage.engines.admission.records import Forecast, Group, Tenant

SLACK_TOLERANCE: Final = 1e-6
"""Log slowdowns closer than this to an objective meet it."""
ALONE_Z: Final = 1.645
"""Margin of a tenant that is alone: the normal 95 % quantile, since no co-location row can
calibrate what its own share costs it (derived)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """A mixture, its forecast, and its safety beside what is asked.

    ``z`` is ``inf`` where nobody has an objective; ``binding`` is then -1, else the index of the
    tenant with the least margin. ``threshold`` is ``None`` where none applies.
    """

    tenants: tuple[Tenant, ...]
    forecast: Forecast
    margins: tuple[float, ...]
    z: float
    binding: int
    required: float
    threshold: Threshold | None
    band: Band | None

    @property
    def passes(self) -> bool:
        """Whether the mixture is as safe as is asked."""
        return self.z >= self.required

    @property
    def missing(self) -> float:
        """Log slowdown by which the binding tenant is short of its margin; 0 where it passes.

        Without any certified margin, what the forecast itself lacks.
        """
        if self.passes or self.binding < 0:
            return 0.0
        asked = self.required if math.isfinite(self.required) else 0.0
        return max(0.0, self.reach(asked) - math.log(self.allowed))

    def reach(self, z: float) -> float:
        """Log slowdown of the binding tenant, so many spreads above its mean."""
        return self.forecast.mean[self.binding] + z * self.forecast.sd[self.binding]

    @property
    def allowed(self) -> float:
        """Objective of the binding tenant; ``inf`` where nobody has one."""
        slo = self.tenants[self.binding].max_slowdown if self.binding >= 0 else None
        return math.inf if slo is None else slo


def margin(
    tenants: Sequence[Tenant],
    forecast: Forecast,
    thresholds: Mapping[tuple[Group, Band], Threshold],
) -> Margin:
    """Set a forecast beside everybody's objective and the threshold of its group and band.

    Raises:
        ValueError: the forecast is not one finite mean and spread for each tenant.
    """
    means, spreads = forecast.mean, forecast.sd
    if not len(tenants) == len(means) == len(spreads):
        raise ValueError(f"a forecast of {len(means)} tenants for {len(tenants)}")
    margins = []
    binding, least, tightest = -1, math.inf, math.inf
    for index, (one, mean, sd) in enumerate(zip(tenants, means, spreads, strict=True)):
        if not (math.isfinite(mean) and math.isfinite(sd) and sd >= 0):
            raise ValueError(f"forecast of {one.name} is no number: mean {mean:g}, sd {sd:g}")
        if one.max_slowdown is None:
            margins.append(math.inf)
            continue
        z = _distance(math.log(one.max_slowdown) - mean, sd)
        margins.append(z)
        tightest = min(tightest, one.max_slowdown)
        if binding < 0 or z < least:
            binding, least = index, z
    band, threshold, required = None, None, -math.inf
    if binding >= 0:
        band = band_of(tightest)
        if len(tenants) == 1:
            required = ALONE_Z
        else:
            threshold = thresholds.get((forecast.group, band))
            required = threshold.value if threshold is not None else math.inf
    return Margin(
        tenants=tuple(tenants),
        forecast=forecast,
        margins=tuple(margins),
        z=least,
        binding=binding,
        required=required,
        threshold=threshold,
        band=band,
    )


def _distance(slack: float, sd: float) -> float:
    if sd == 0:
        return math.inf if slack >= -SLACK_TOLERANCE else -math.inf
    return slack / sd


def nearest(found: Sequence[tuple[int, Margin]]) -> tuple[int, Margin]:
    """Of several shares that fail, the one that misses by least; ties: larger margin, less."""
    return min(found, key=lambda pair: (pair[1].missing, -pair[1].z, pair[0]))
