# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever number JSON holds, it is read or refused with its field."""

from __future__ import annotations

import math

import pytest

from ullage.api.numbers import MOST, number
from ullage.api.readers import WireError


@pytest.mark.parametrize("value", [10**400, -(10**400), 10**19, 1e300, -1, math.nan, math.inf])
def test_a_number_out_of_bounds_is_refused_with_its_field(value: float) -> None:
    with pytest.raises(
        WireError, match=r"^limitSeconds: .{1,40} must be a number from 0 to 1e\+18"
    ):
        number({"limitSeconds": value}, "limitSeconds")


@pytest.mark.parametrize("value", [0, 2.5, int(MOST)])
def test_a_number_within_bounds_is_read(value: float) -> None:
    assert number({"limitSeconds": value}, "limitSeconds") == value
