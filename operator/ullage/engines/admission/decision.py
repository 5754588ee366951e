# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The admission decision for a newcomer to a device: its share, and its cost to others.

The risk of breaking an objective, then worth, for shares that the hard limits have left. Pure and
deterministic: same inputs, same bytes. It must never fit, wait or read the clock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ullage.api.reasons import Reason
from ullage.engines.admission.filters import check_query, impossible_objective
from ullage.engines.admission.margin import Margin, margin, nearest
from ullage.engines.admission.query import AdmissionQuery
from ullage.engines.admission.records import Tenant
from ullage.engines.admission.verdict import (
    Basis,
    Verdict,
    Weighed,
    admitted_text,
    outlooks,
    refused,
)

TOLERANCE: Final = 1e-9
"""Values closer than this are equal; then the smaller share wins."""


@dataclass(frozen=True, slots=True)
class _Option:
    """A share with its forecast."""

    percent: int
    margin: Margin
    value: float
    combined: float


def predict(query: AdmissionQuery, basis: Basis) -> Verdict:
    """Decide whether a newcomer may join a device, and at which share.

    Args:
        query: The newcomer, the residents and the shares that the hard limits have left.
        basis: Forecaster, thresholds and settings.

    Raises:
        ValueError: a figure of the inputs or of the forecast is impossible; the text names it.
    """
    check_query(query)
    draft = Verdict(newcomer=query.newcomer.name, percent=0, reason=None, text="")
    impossible = impossible_objective(query.newcomer)
    if impossible is not None:
        return replace(
            draft, reason=impossible.reason, text=impossible.text, binding=impossible.binding
        )
    options = [_option(query, percent, basis) for percent in query.shares]
    safe = [option for option in options if option.margin.passes]
    if not safe:
        return refused(draft, nearest([(option.percent, option.margin) for option in options]))
    return _worthwhile(draft, query, basis, safe)


def _option(query: AdmissionQuery, percent: int, basis: Basis) -> _Option:
    tenants = query.mixture(percent)
    outcome = _margin(query.accelerator, tenants, basis)
    speeds = [math.exp(-max(mean, 0.0)) for mean in outcome.forecast.mean]
    value = math.fsum(tenant.weight * speed for tenant, speed in zip(tenants, speeds, strict=True))
    return _Option(percent, outcome, value, math.fsum(speeds))


def _margin(accelerator: str, tenants: Sequence[Tenant], basis: Basis) -> Margin:
    forecast = basis.forecaster.forecast(accelerator, tenants)
    return margin(tenants, forecast, basis.thresholds)


def _worthwhile(
    draft: Verdict, query: AdmissionQuery, basis: Basis, safe: Sequence[_Option]
) -> Verdict:
    """Refuse shares that are not worth it, then weigh the others, the most promising first."""
    present = 0.0
    floor = basis.settings.min_combined_percent / 100 if query.residents else 0.0
    if query.residents:
        forecast = basis.forecaster.forecast(query.accelerator, query.residents)
        present = math.fsum(
            tenant.weight * math.exp(-max(mean, 0.0))
            for tenant, mean in zip(query.residents, forecast.mean, strict=True)
        )
    worth = [
        option
        for option in safe
        if option.value > present + TOLERANCE and option.combined >= floor - TOLERANCE
    ]
    if not worth:
        best = max(safe, key=lambda option: (option.value, -option.percent))
        text = (
            f"at {best.percent} % the tenants together would reach {best.combined:.0%} of a "
            f"device, at least {floor:.0%} is asked"
            if best.combined < floor - TOLERANCE
            else f"at {best.percent} % the tenants together would reach {best.value:.2f}, not "
            f"more than {present:.2f} without {query.newcomer.name}"
        )
        described = outlooks(draft, best.margin)
        return replace(described, reason=Reason.NOT_WORTH_SHARING, text=text)
    weighed = [(_weighed(option, query.newcomer, basis, present), option) for option in worth]
    weighed.sort(key=lambda pair: (-round(pair[0].net / TOLERANCE), pair[0].percent))
    return _granted(draft, weighed[0][1], [option for option, _ in weighed])


def _weighed(option: _Option, newcomer: Tenant, basis: Basis, present: float) -> Weighed:
    risk = 0.5 * math.erfc(option.margin.z / math.sqrt(2))
    risk *= basis.settings.eviction_weight * newcomer.weight
    gain = option.value - present
    return Weighed(percent=option.percent, value=option.value, gain=gain, eviction_risk=risk)


def _granted(draft: Verdict, option: _Option, weighed: Sequence[Weighed]) -> Verdict:
    described = outlooks(draft, option.margin)
    return replace(
        described,
        percent=option.percent,
        text=admitted_text(described, option.percent),
        chosen=weighed[0],
        runner_up=weighed[1] if len(weighed) > 1 else None,
    )
