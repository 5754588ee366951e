# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A container that sees one hardware step of multiprocessors more than decided has escaped."""

from __future__ import annotations

import pytest

from ullage_node.devices.nvidia.proof import SM_STEP, ShareEvidence, judge_share, sms_of
from ullage_node.model.devices import AttachState

TOTAL = 132


@pytest.mark.parametrize("percent", [1, 10, 25, 50, 99])
def test_what_was_decided_is_enforced_and_one_step_more_is_not(percent: int) -> None:
    decided = sms_of(TOTAL, percent)

    def judged(seen: int) -> AttachState:
        return judge_share(
            ShareEvidence(
                clients=(7,),
                unlisted=(),
                unlisted_seconds=0.0,
                orphaned=False,
                list_problem="",
                departure="",
                unread=(),
                memory_mib=1,
                cap_mib=2,
                sm_seen=seen,
                sm_allowed=decided,
            )
        ).state

    assert judged(decided) is AttachState.ENFORCED
    assert judged(decided + SM_STEP) is AttachState.UNENFORCED
    assert judged(decided + 1) is AttachState.UNENFORCED


def test_a_share_never_gets_more_steps_than_it_pays_for() -> None:
    for percent in range(1, 101):
        sms = sms_of(TOTAL, percent)
        assert sms % SM_STEP == 0
        assert SM_STEP <= sms <= max(SM_STEP, TOTAL * percent / 100)
