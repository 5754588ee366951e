# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The safety margin of a mixture of tenants, and its calibrated threshold.

One number per mixture: the smallest distance of any objective from its forecast, in units of the
forecast's spread, compared with the threshold calibrated for such mixtures. Pure arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ullage.engines.admission.calibration import EDGES, Band, Threshold, band_of
from ullage.engines.admission.limits import WHOLE_PERCENT
from ullage.engines.admission.records import Forecast, Group, Tenant

SLACK_TOLERANCE: Final = 1e-6
"""Log slowdowns closer than this to an objective meet it."""
ALONE_Z: Final = 1.645
"""Margin of a lone tenant: the normal 95 % quantile, since no co-location row can calibrate the
cost of its own share (derived)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """A mixture, its forecast, its margin and the required one.

    ``z`` is ``inf`` where no tenant has an objective; ``binding`` is then -1, else the index of the
    tenant with the smallest margin. ``threshold`` is ``None`` where none applies.
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
        """True when the mixture has the required margin."""
        return self.z >= self.required

    @property
    def missing(self) -> float:
        """Log slowdown by which the binding tenant misses its margin; 0 where it passes.

        Without a certified margin, the excess of the forecast itself.
        """
        if self.passes or self.binding < 0:
            return 0.0
        asked = self.required if math.isfinite(self.required) else 0.0
        return max(0.0, self.reach(asked) - math.log(self.allowed))

    def reach(self, z: float) -> float:
        """Log slowdown of the binding tenant, ``z`` spreads above its mean."""
        return self.forecast.mean[self.binding] + z * self.forecast.sd[self.binding]

    @property
    def allowed(self) -> float:
        """Objective of the binding tenant; ``inf`` where no tenant has one."""
        slo = self.tenants[self.binding].max_slowdown if self.binding >= 0 else None
        return math.inf if slo is None else slo


def margin(
    tenants: Sequence[Tenant],
    forecast: Forecast,
    thresholds: Mapping[tuple[Group, Band], Threshold],
) -> Margin:
    """Compare a forecast with all objectives and the threshold of its group and band.

    A mixture that passes with all objectives capped at the edge of a tighter band passes as it is,
    since a tenant that meets the tighter objective meets the looser one. So a tighter objective
    never admits more, and rows of a tighter band count where the own band has few (derived).

    Args:
        tenants: The mixture.
        forecast: Mean and sd of log slowdown, for every tenant in order.
        thresholds: Smallest margin by group and band, in units of sd.

    Raises:
        ValueError: the forecast is not a finite mean and spread for each tenant.
    """
    means, spreads = forecast.mean, forecast.sd
    if not len(tenants) == len(means) == len(spreads):
        raise ValueError(f"a forecast of {len(means)} tenants for {len(tenants)}")
    for tenant, mean, sd in zip(tenants, means, spreads, strict=True):
        if not (-math.inf < mean < math.inf and 0 <= sd < math.inf):
            raise ValueError(f"forecast of {tenant.name} is no number: mean {mean:g}, sd {sd:g}")
    tightest = min(
        [tenant.max_slowdown for tenant in tenants if tenant.max_slowdown is not None],
        default=math.inf,
    )
    if math.isinf(tightest):
        return _margin(tenants, forecast, math.inf, required=-math.inf)
    band = band_of(tightest)
    if len(tenants) == 1:
        # alone on the whole device the slowdown is 1, by definition
        required = ALONE_Z if tenants[0].percent < WHOLE_PERCENT else -math.inf
        return _margin(tenants, forecast, math.inf, required=required, band=band)
    outcome = _calibrated(tenants, forecast, math.inf, band, thresholds)
    if outcome.passes:
        return outcome
    for edge, tighter in reversed(EDGES):
        if edge < tightest and ((forecast.group, tighter) in thresholds or min(spreads) == 0):
            # without a threshold only a certain forecast passes
            stricter = _calibrated(tenants, forecast, edge, tighter, thresholds)
            if stricter.passes:
                return stricter
    return outcome


def _calibrated(
    tenants: Sequence[Tenant],
    forecast: Forecast,
    cap: float,
    band: Band,
    thresholds: Mapping[tuple[Group, Band], Threshold],
) -> Margin:
    threshold = thresholds.get((forecast.group, band))
    required = threshold.value if threshold is not None else math.inf
    return _margin(tenants, forecast, cap, required=required, band=band, threshold=threshold)


def _margin(
    tenants: Sequence[Tenant],
    forecast: Forecast,
    cap: float,
    *,
    required: float,
    band: Band | None = None,
    threshold: Threshold | None = None,
) -> Margin:
    margins: list[float] = []
    binding = -1
    for tenant, mean, sd in zip(tenants, forecast.mean, forecast.sd, strict=True):
        slo, distance = tenant.max_slowdown, math.inf
        if slo is not None:
            slack = math.log(min(slo, cap)) - mean
            certain = math.inf if slack >= -SLACK_TOLERANCE else -math.inf
            distance = slack / sd if sd else certain
            if binding < 0 or distance < margins[binding]:
                binding = len(margins)
        margins.append(distance)
    return Margin(
        tenants=tuple(tenants),
        forecast=forecast,
        margins=tuple(margins),
        z=margins[binding] if binding >= 0 else math.inf,
        binding=binding,
        required=required,
        threshold=threshold,
        band=band,
    )


def nearest(failed: Sequence[tuple[int, Margin]]) -> tuple[int, Margin]:
    """The share (percent) with the closest miss; ties: larger margin, then smaller share."""
    return min(failed, key=lambda pair: (pair[1].missing, -pair[1].z, pair[0]))
