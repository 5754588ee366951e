# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What binds a job that made room for another: for a while it starts with no more than it was left.

Without that it would take back, at its very restart, what it was restarted for. No one is ever
restarted to grow again; what runs out here only stops binding the next start.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.cluster.records.spec_fields import Share
from ullage.cluster.records.status import MadeRoom

HOLD_S: Final = 600.0
"""How long what was agreed binds, and how long a job runs at least before it may be asked for room
(again): at most one such restart of a job in this time (not measured)."""


def active_share_limit(job: WorkloadRecord, now: float, present: Container[str]) -> MadeRoom | None:
    """What a job was left when it made room, while that binds it.

    Args:
        job: the one that made room.
        now: seconds since the epoch.
        present: uids of the workloads there are; room for someone who is gone is no one's.
    """
    made = job.status.made_room
    if made is None or now >= made.time + HOLD_S or made.beneficiary_uid not in present:
        return None
    return made


def bounded(share: Share, made: MadeRoom | None) -> Share:
    """The share that may be asked for, never below its least."""
    if made is None or made.percent >= share.max_percent:
        return share
    return Share(min_percent=share.min_percent, max_percent=max(share.min_percent, made.percent))
