# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Which share and accelerator may be asked for: of the spec, of an agreement, or as was chosen."""

from __future__ import annotations

import pytest

from builders import NOW, a_job
from ullage.api.gpurequest import Share
from ullage.cluster.records.status import MadeRoom
from ullage.scheduling.inventory.held_shares import active_share_limit, bounded, share_asked
from ullage.scheduling.times import AGREEMENT_HOLD_S

MADE = MadeRoom(
    time=NOW,
    percent=40,
    node="node-1",
    gpu="gpu-0",
    beneficiary="ns/guest",
    beneficiary_uid="uid-guest",
)


@pytest.mark.parametrize(
    ("now", "binds"),
    [(NOW, True), (NOW + AGREEMENT_HOLD_S - 1, True), (NOW + AGREEMENT_HOLD_S, False)],
)
def test_room_that_was_made_binds_for_a_while(now: float, binds: bool) -> None:
    job = a_job().fractional(30, 80).status(made_room=MADE).build()
    present = {MADE.beneficiary_uid}
    assert (active_share_limit(job, now, present) == MADE) is binds
    asked = share_asked(job, now, present)
    assert asked == Share(min_percent=30, max_percent=40 if binds else 80)


def test_room_for_someone_who_is_gone_is_no_ones() -> None:
    job = a_job().fractional(30, 80).status(made_room=MADE).build()
    assert active_share_limit(job, NOW, set()) is None
    assert active_share_limit(a_job().build(), NOW, {MADE.beneficiary_uid}) is None


@pytest.mark.parametrize(("least", "most"), [(30, 40), (40, 40), (50, 50)])
def test_no_agreement_leaves_less_than_the_least_share(least: int, most: int) -> None:
    found = bounded(Share(min_percent=least, max_percent=80), MADE)
    assert (found.min_percent, found.max_percent) == (least, most)
