# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rules of charges: what work costs, and what losses took."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Mutant

ACCOUNTING: Final = "operator/ullage/scheduling/accounting"
UNIT: Final = "tests/unit/scheduling"

COSTS: Final = (f"{UNIT}/test_what_work_costs.py",)
LOSSES: Final = (f"{UNIT}/test_what_losses_cost.py",)

MUTANTS: Final = (
    Mutant(
        "a slice pays its part of the device",
        f"{ACCOUNTING}/rates.py",
        "paid += (device.per_hour or 0.0) * part",
        "paid += device.per_hour or 0.0",
        COSTS,
    ),
    Mutant(
        "shares beyond the whole divide one price",
        f"{ACCOUNTING}/rates.py",
        "return max(1.0, percents / 100)",
        "return 1.0",
        COSTS,
    ),
    Mutant(
        "a price that is missing is not nothing",
        f"{ACCOUNTING}/rates.py",
        "per_hour=paid if paid_known else None,",
        "per_hour=paid,",
        COSTS,
    ),
    Mutant(
        "a clock that jumps is not paid for",
        f"{ACCOUNTING}/cost_records.py",
        "return max(0.0, min(COST_COUNTED_MOST_S, now - account.as_of))",
        "return max(0.0, now - account.as_of)",
        COSTS,
    ),
    Mutant(
        "steps that losses took do not count",
        f"{ACCOUNTING}/cost_records.py",
        "return account.earlier_steps + steps - account.lost_steps",
        "return account.earlier_steps + steps",
        LOSSES,
    ),
)
