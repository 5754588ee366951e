# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Percentiles in human-readable form, and as fractions for formulas.

One value must have one spelling both ways, else rows of the same percentile would be separate.
"""

from __future__ import annotations

from ullage.api.readers import WireError


def percentile_of(quantile: float) -> str:
    """A quantile in human-readable form: ``0.999`` -> ``99.9``."""
    return f"{quantile * 100:.8g}"


def quantile_of(percentile: str) -> float:
    """A percentile as a fraction.

    Raises:
        WireError: it is not a percentile.
    """
    try:
        value = float(percentile) / 100
    except ValueError as error:
        raise WireError(f"percentile: {percentile!r} is no number") from error
    if not 0 < value < 1:
        raise WireError(f"percentile: {percentile!r} must lie between 0 and 100")
    return float(f"{value:.6g}")
