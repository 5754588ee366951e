# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A slow rank that a job was reported to have, as decisions and the status see it.

It is made from many looks at the figures of ranks, so that it changes seldom.
"""

from __future__ import annotations

from dataclasses import dataclass

from ullage.engines.stragglers.detector import SlowCause


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerRecord:
    """The slowest rank of a job.

    Attributes:
        rank: Its number.
        pod: Name of the pod that it runs in.
        pod_uid: uid of that pod.
        node: Node of that pod.
        cause: The cause that was reported.
        ratio_percent: Its own part of a step over that of the others when it was reported.
        since: Begin of the time in which it was slow without a pause, seconds since the epoch.
    """

    rank: int
    pod: str
    pod_uid: str
    node: str
    cause: SlowCause
    ratio_percent: int
    since: float
