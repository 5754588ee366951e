# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Verdicts in words: who binds, by how much, and what stands beside it.

Words and rounding only; it must never change what was decided.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from ullage.api.reasons import Reason
from ullage.engines.admission.margin import Margin
from ullage.engines.admission.utilisation import UtilisationSum
from ullage.engines.admission.verdict import Outlook, Verdict

UPPER_Z: Final = 1.2816
"""One-sided 90 % bound of a normal."""
POINTS: Final = 100


def outlooks(draft: Verdict, found: Margin) -> Verdict:
    """A verdict with every figure of the mixture it is about.

    Args:
        draft: The verdict to complete.
        found: Margins of the mixture, the newcomer last.
    """
    *present, newcomer = found.tenants
    sums = UtilisationSum().predict(present, newcomer, newcomer.percent)
    forecast, threshold = found.forecast, found.threshold
    rows = zip(found.tenants, forecast.mean, forecast.sd, found.margins, sums, strict=True)
    return replace(
        draft,
        tenants=tuple(
            Outlook(
                name=one.name,
                percent=one.percent,
                mean=mean,
                sd=sd,
                predicted=math.exp(mean),
                upper=math.exp(mean + UPPER_Z * sd),
                allowed=one.max_slowdown,
                z=z,
                utilisation_sum=total,
            )
            for one, mean, sd, z, total in rows
        ),
        binding=found.tenants[found.binding].name if found.binding >= 0 else "",
        z=found.z,
        required=found.required,
        rows=threshold.rows if threshold else 0,
        rows_needed=threshold.needed if threshold else 0,
        group=forecast.group,
        band=found.band,
        rung=forecast.rung,
    )


def refused(draft: Verdict, nearest: tuple[int, Margin]) -> Verdict:
    """A verdict that names the tenant that binds, and what it lacks.

    Args:
        draft: The verdict to complete.
        nearest: The share (percent) that came nearest to passing, and its margins.
    """
    percent, margin = nearest
    told = outlooks(draft, margin)
    name, allowed = told.binding, margin.allowed
    predicted = math.exp(margin.reach(0.0))
    if math.isfinite(margin.required):
        points = POINTS * (math.exp(margin.reach(margin.required)) - allowed)
        beside = (
            ""
            if predicted > allowed
            else f" ({math.exp(margin.reach(margin.required)):.2f}x with its margin)"
        )
        text = (
            f"{name} predicted {predicted:.2f}x{beside} > {allowed:.2f}x at {percent} %; "
            f"needs {math.ceil(points - 1e-6)} points more"
        )
        reason = Reason.PREDICTED_SLO_BREACH
    elif predicted > allowed:
        points = POINTS * (predicted - allowed)
        text = (
            f"{name} predicted {predicted:.2f}x > {allowed:.2f}x at {percent} %; "
            f"needs {math.ceil(points - 1e-6)} points more"
        )
        reason = Reason.PREDICTED_SLO_BREACH
    else:
        points = 0.0
        text = (
            f"{name} predicted {predicted:.2f}x <= {allowed:.2f}x at {percent} %, but no margin "
            f"is certified for {told.group} and objectives {told.band}: {_rows(margin)}"
        )
        reason = Reason.NEED_PROFILE
    return replace(told, reason=reason, text=text, missing_points=max(0.0, points))


def _rows(found: Margin) -> str:
    threshold = found.threshold
    if threshold is None:
        return "no rows"
    if threshold.needed:
        return f"rows {threshold.rows} of {threshold.needed}"
    return f"none of {threshold.rows} rows' margins keeps the risk budget"


def admitted_text(verdict: Verdict, percent: int) -> str:
    """One line for the newcomer: share, forecast, margin, and the baseline beside.

    Args:
        verdict: Of the mixture, the newcomer last.
        percent: Share of the newcomer, percent of the device.
    """
    own = verdict.tenants[-1]
    text = f"{percent} %: {own.name} predicted {own.predicted:.2f}x (upper {own.upper:.2f}x)"
    if verdict.binding:
        text += f", {verdict.binding} binds: z {verdict.z:.2f} >= {verdict.required:.2f}"
    return f"{text}, {verdict.group} by {verdict.rung}; utilisation sum {own.utilisation_sum:.2f}x"
