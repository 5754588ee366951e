# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""How safely a mixture keeps everyone's objective, and whether that is safe enough.

One number per mixture: the smallest distance of any objective from its forecast, in units of the
forecast's own spread, beside the threshold calibrated for such mixtures. Pure arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ullage.engines.admission.calibration import EDGES, Band, Threshold, band_of
from ullage.engines.admission.records import Forecast, Group, Tenant

WHOLE_PERCENT: Final = 100
SLACK_TOLERANCE: Final = 1e-6
"""Log slowdowns closer than this to an objective meet it."""
ALONE_Z: Final = 1.645
"""Margin of a tenant that is alone: the normal 95 % quantile, since no co-location row can
calibrate what its own share costs it (derived)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """A mixture, its forecast, and its safety beside what is asked.

    ``z`` is ``inf`` where no one has an objective; ``binding`` is then -1, else the index of the
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
        """Log slowdown of the binding tenant, a number of spreads above its mean."""
        return self.forecast.mean[self.binding] + z * self.forecast.sd[self.binding]

    @property
    def allowed(self) -> float:
        """Objective of the binding tenant; ``inf`` where no one has one."""
        slo = self.tenants[self.binding].max_slowdown if self.binding >= 0 else None
        return math.inf if slo is None else slo


def margin(
    tenants: Sequence[Tenant],
    forecast: Forecast,
    thresholds: Mapping[tuple[Group, Band], Threshold],
) -> Margin:
    """Set a forecast beside everyone's objective and the threshold of its group and band.

    What passes as if no one's objective were looser than a tighter band's edge passes as it is,
    since a tenant that keeps the tighter objective keeps the looser one: a tighter objective never
    opens a door, and few rows are enough where rows of a tighter band exist (derived).

    Args:
        tenants: The mixture.
        forecast: Mean and sd of log slowdown, one of each for every tenant in order.
        thresholds: Least margin by group and band, in units of sd.

    Raises:
        ValueError: the forecast is not one finite mean and spread for each tenant.
    """
    means, spreads = forecast.mean, forecast.sd
    if not len(tenants) == len(means) == len(spreads):
        raise ValueError(f"a forecast of {len(means)} tenants for {len(tenants)}")
    for one, mean, sd in zip(tenants, means, spreads, strict=True):
        if not (-math.inf < mean < math.inf and 0 <= sd < math.inf):
            raise ValueError(f"forecast of {one.name} is no number: mean {mean:g}, sd {sd:g}")
    tightest = min(
        [tenant.max_slowdown for tenant in tenants if tenant.max_slowdown is not None],
        default=math.inf,
    )
    if math.isinf(tightest):
        return _margin(tenants, forecast, math.inf, required=-math.inf)
    own = band_of(tightest)
    if len(tenants) == 1:
        # alone on the whole device a slowdown is 1 by its definition: nothing to be sure of
        required = ALONE_Z if tenants[0].percent < WHOLE_PERCENT else -math.inf
        return _margin(tenants, forecast, math.inf, required=required, band=own)
    found = _calibrated(tenants, forecast, math.inf, own, thresholds)
    if found.passes:
        return found
    for edge, band in reversed(EDGES):
        if edge < tightest and ((forecast.group, band) in thresholds or min(spreads) == 0):
            # without a threshold nothing passes but what is certain
            stricter = _calibrated(tenants, forecast, edge, band, thresholds)
            if stricter.passes:
                return stricter
    return found


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
    for one, mean, sd in zip(tenants, forecast.mean, forecast.sd, strict=True):
        slo, distance = one.max_slowdown, math.inf
        if slo is not None:
            distance = _distance(math.log(min(slo, cap)) - mean, sd)
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


def _distance(slack: float, sd: float) -> float:
    if sd == 0:
        return math.inf if slack >= -SLACK_TOLERANCE else -math.inf
    return slack / sd


def nearest(found: Sequence[tuple[int, Margin]]) -> tuple[int, Margin]:
    """Of several shares that fail, the one that misses by least; ties: larger margin, less."""
    return min(found, key=lambda pair: (pair[1].missing, -pair[1].z, pair[0]))
