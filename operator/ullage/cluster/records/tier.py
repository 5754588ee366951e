# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Where a job in tiers stands: as its lead tells, and as the job's status keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from ullage.api.contract import JsonObject, WireError, whole
from ullage.api.wire_fields import NEEDED, Count, Moment, Name, NeededCount, between

STAGES: Final = (1, 2, 3)
MOST: Final = 2**53
"""Largest figure that is believed: JSON of others holds no larger one exactly."""
MOST_LAG: Final = 2**31 - 1
"""Largest lag that the status holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadReport:
    """What a lead tells; ``committed`` is ``None`` while its copy holds no step whole."""

    stage: int
    epoch: int
    step: int
    committed: int | None = None
    copied: bool = True
    """The members that own the state are not the reliable ones: a copy is kept."""
    reliable: int = 0
    transient: int = 0
    lost_steps: int = 0
    """Done again after losses without notice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierRecord:
    """``status.tier``; 0 = nothing to tell, ``last_consistent_step`` ``None`` = no copy yet."""

    stage: Annotated[int, between(STAGES[0], STAGES[-1]), NEEDED]
    ratio: Name
    epoch: NeededCount
    observed_at: Moment
    last_consistent_step: Count | None = None
    backup_lag_steps: Count = 0
    lost_steps: Count = 0


def report_from_wire(raw: JsonObject) -> LeadReport | None:
    """What a lead answered; ``None`` before its first maps.

    Raises:
        WireError: it is no answer of a lead.
    """
    if "stage" not in raw:
        return None
    stage = whole(raw, "stage")
    if stage not in STAGES:
        raise WireError(f"stage: {stage} is none of 1 to 3")
    return LeadReport(
        stage=stage,
        epoch=_count(raw, "epoch"),
        step=_count(raw, "step"),
        committed=None if raw.get("committed") is None else _count(raw, "committed"),
        copied=raw.get("copied") is True,
        reliable=_count(raw, "reliable"),
        transient=_count(raw, "transient"),
        lost_steps=_count(raw, "lostSteps"),
    )


def _count(raw: JsonObject, field: str) -> int:
    value = whole(raw, field, 0)
    if not 0 <= value <= MOST:
        raise WireError(f"{field}: {value} is no count")
    return value
