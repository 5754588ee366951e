# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A copy that no one pushed to for long is made whole before state moves, whatever the rhythm."""

from __future__ import annotations

import threading

import pytest

from fakes.toy_group import ToyJob, ToyMember, expected
from ullage.engines.tiers.stages import TierStage
from ullage_run.frames import Ending

STEPS = 120


def still(*_: object) -> None:
    """A member that nothing happens to."""


@pytest.mark.parametrize("every_steps", [1, 3])
def test_a_newcomer_owns_after_reliable_members_did_for_long(every_steps: int) -> None:
    """Transient owners die, the reliable one owns without a copy, then someone comes."""
    struck, joined = threading.Event(), threading.Event()

    def strike(one: ToyMember, step: int, now: str) -> None:
        if one.name == "s1" and step == 20 and now == "before" and not struck.is_set():
            struck.set()
            one.die()
        if one.name == "r0" and step == 60 and now == "after" and not joined.is_set():
            joined.set()
            job.member("s2", until=STEPS, hook=still)

    with ToyJob(members=2, pinned=TierStage.BACKED, every_steps=every_steps) as job:
        job.member("r0", until=STEPS, reliable=True, hook=strike)
        job.member("s1", until=STEPS, hook=strike)
        assert job.finish() == expected(STEPS)
        assert job.ending is Ending.FINISHED
        stages = [one["stage"] for _, one in job.events if "stage" in one]
        assert struck.is_set()
        assert stages[:2] == [2, 1]


def test_a_notice_costs_nothing_though_pushes_are_rare() -> None:
    gone = threading.Event()

    def leave(one: ToyMember, step: int, now: str) -> None:
        owns = one.group.shards and not one.reliable
        if owns and step >= 20 and now == "after" and not gone.is_set():
            gone.set()
            one.leave()

    with ToyJob(members=3, pinned=TierStage.BACKED, every_steps=3) as job:
        job.member("r0", until=STEPS, reliable=True, hook=leave)
        job.member("s1", until=STEPS, hook=leave)
        job.member("s2", until=STEPS, hook=leave)
        assert job.finish() == expected(STEPS)
        assert gone.is_set()
        assert job.seen("Recovered") == []
