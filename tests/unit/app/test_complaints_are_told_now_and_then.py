# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from structlog.testing import capture_logs

from fakes.clock import FakeClock
from ullage.app.complaints import Complaints
from ullage.app.times import COMPLAINT_QUIET_S


def test_each_stream_is_told_now_and_then_with_how_many_were_not() -> None:
    clock = FakeClock()
    complaints = Complaints(clock)
    with capture_logs() as lines:
        for _ in range(50):
            complaints("pods", "tenant/a", "spec: expected an object")
        complaints("nodes", "b", "status: expected an object")
        clock.advance(COMPLAINT_QUIET_S)
        complaints("pods", "tenant/c", "spec: expected an object")
    assert [(line["stream"], line["object"], line["untold"]) for line in lines] == [
        ("pods", "tenant/a", 0),
        ("nodes", "b", 0),
        ("pods", "tenant/c", 49),
    ]
