# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from ullage.api.xids import XIDS, Cause, xid_of


@pytest.mark.parametrize(
    ("number", "cause"),
    [
        (13, Cause.APPLICATION),
        (31, Cause.APPLICATION),
        (43, Cause.APPLICATION),
        (45, Cause.UNCLEAR),
        (63, Cause.DEVICE),
        (64, Cause.DEVICE),
        (74, Cause.LINK),
        (79, Cause.DEVICE),
        (94, Cause.CONTAINED),
        (95, Cause.UNCONTAINED),
    ],
)
def test_every_number_says_whose_it_is(number: int, cause: Cause) -> None:
    assert xid_of(number).cause is cause


def test_faults_of_programs_leave_the_device_healthy_and_all_others_do_not() -> None:
    healthy = {number for number, row in XIDS.items() if not row.cause.unhealthy}
    assert healthy == {13, 31, 43, 45, 68, 94, 109}


@pytest.mark.parametrize("number", [0, 119, 2**31 - 1])
def test_a_number_that_is_not_listed_is_the_devices_and_charged_to_no_one(number: int) -> None:
    row = xid_of(number)
    assert row.cause is Cause.DEVICE
    assert row.cause.unhealthy
    assert row.unconfirmed
