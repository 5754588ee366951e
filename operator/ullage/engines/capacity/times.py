# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Durations of hazards and prices, each with its reason."""

from __future__ import annotations

from typing import Final

HAZARD_HALF_LIFE_H: Final = 48.0
"""Half-life of observations. A measured compromise of calibration and ranking."""
HAZARD_PRIOR_H: Final = 10.0
"""Weight of the prior in pool-hours. Chosen."""
BULK_LOSS_H: Final = 0.25
"""A loss within this time of the last one, with nothing gained in between, belongs to the same
event: bulk losses take some minutes. Measured on 4 and 16 nodes of one zone."""
MONTH_H: Final = 730.0
PRICE_FRESH_S: Final = 6 * 3600.0
"""Age of a quote after which a price is stale. Chosen."""
