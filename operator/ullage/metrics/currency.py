# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The label of metrics that tell money: one currency, the one that the prices are in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CURRENCY: Final = "currency"
DEFAULT_CURRENCY: Final = "USD"


def in_currency(amounts: Mapping[str, float], currency: str) -> dict[tuple[str, str], float]:
    """Amounts by another label, by that label and the currency."""
    return {(label, currency): amount for label, amount in amounts.items()}
