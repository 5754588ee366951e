# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What happens to the bench's job, what came of it, the rig's sizes.

Values without behaviour; they must never depend on which arm runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from bench.spot_trace import Kind, Pace
from bench.tiers_member import SHARDS, STATE_BYTES
from ullage.engines.tiers.flush import Link
from ullage.engines.tiers.records import TierSettings

WAY: Final = 200e6 / 8
"""Bytes per second into and out of the reliable machine."""
LINK: Final = Link(
    state_bytes=STATE_BYTES,
    dirty_bytes_per_step=STATE_BYTES,
    host_bytes_per_s=WAY,
    state_store_bytes_per_s=WAY,
)
SETTINGS: Final = TierSettings(owner_part=0.6, shards=SHARDS, blocks=SHARDS)
"""Two of two and two of three members own: about half."""
NOTICE_S: Final = 30.0
PATIENCE_S: Final = 60.0
RELIABLE: Final = "r0"
SPOTS: Final = ("s1", "s2", "s3")

REPLAY: Final = Pace(length_s=270.0, gap_s=30.0, notice_s=20.0, away_s=4.0)
"""Of a public trace: hours of it, in minutes; a machine is gone 20 s after its notice."""

Copy = Literal["none", "keeper", "files"]
What = Literal["owner", "all", "notice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happens to the job, seconds after its first step began."""

    at_s: float
    what: What


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a run did.

    Attributes:
        losses: The model's loss after each step.
        step_s: Of steps that nothing disturbed.
        wall_s: From the first step to the last.
        lost_steps: Finished steps done again, by event.
        recovery_s: From a loss to the first new step, by event.
        told: Kinds of the losses of a replayed trace, in their order.
        lost_to: Finished steps done again, by the kind of the loss before.
        overdue: Members still there when the time of their notice was over.
    """

    losses: dict[int, float] = field(default_factory=dict)
    step_s: list[float] = field(default_factory=list)
    wall_s: float = 0.0
    lost_steps: list[int] = field(default_factory=list)
    recovery_s: list[float] = field(default_factory=list)
    told: list[Kind] = field(default_factory=list)
    lost_to: dict[Kind, list[int]] = field(default_factory=dict)
    overdue: int = 0
