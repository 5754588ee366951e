# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The currency label of metrics of cost: one currency, that of the prices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CURRENCY: Final = "currency"
DEFAULT_CURRENCY: Final = "USD"


def in_currency(amounts: Mapping[str, float], currency: str) -> dict[tuple[str, str], float]:
    """Amounts by another label, by that label and the currency."""
    return {(label, currency): amount for label, amount in amounts.items()}
