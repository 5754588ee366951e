# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

import pytest

from ullage.api.interruptions import Interruption, InterruptionKind
from ullage.api.times import EARLIEST, LATEST, moment_of, rfc3339


@pytest.mark.parametrize(
    ("moment", "written"),
    [
        (0.0, "1970-01-01T00:00:00Z"),
        (1767323045.9, "2026-01-02T03:04:05Z"),
        (EARLIEST, "0001-01-01T00:00:00Z"),
        (LATEST, "9999-12-31T23:59:59Z"),
        (1e12, "9999-12-31T23:59:59Z"),
        (-1e300, "0001-01-01T00:00:00Z"),
        (math.inf, "9999-12-31T23:59:59Z"),
        (-math.inf, "0001-01-01T00:00:00Z"),
        (math.nan, "1970-01-01T00:00:00Z"),
    ],
)
def test_any_number_is_a_moment_that_the_api_stores(moment: float, written: str) -> None:
    assert rfc3339(moment) == written
    assert rfc3339(moment_of(written, "at")) == written


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_what_was_read_can_be_written_and_reads_back_equal(text: str) -> None:
    moment = moment_of(text, "at")
    assert moment_of(rfc3339(moment), "at") == moment


def test_a_notice_beyond_the_calendar_is_written() -> None:
    notice = Interruption(kind=InterruptionKind.TERMINATE, deadline_s=1e15)
    assert Interruption.from_wire(notice.to_wire()).deadline_s == LATEST
