# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Where a job in tiers stands: as its lead tells, and as the job's status keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

from ullage.api.codec import derived
from ullage.api.contract import JsonObject
from ullage.api.wire_fields import NEEDED, Count, Kind, Moment, Name, NeededCount, between

STAGES: Final = (1, 2, 3)
MOST: Final = 2**53
"""Largest figure that is believed: JSON of others holds no larger one exactly."""
MOST_LAG: Final = 2**31 - 1
"""Largest lag that the status holds."""
_Figure: TypeAlias = Annotated[int, between(0, MOST)]
_Stage: TypeAlias = Annotated[int, between(STAGES[0], STAGES[-1]), NEEDED]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadReport:
    """What a lead tells; ``committed`` is ``None`` while its copy holds no step whole."""

    stage: _Stage
    epoch: _Figure = 0
    step: _Figure = 0
    committed: _Figure | None = None
    copied: Annotated[bool, Kind(lambda raw, field: raw.get(field) is True), NEEDED] = True
    """The members that own the state are not the reliable ones: a copy is kept."""
    reliable: _Figure = 0
    transient: _Figure = 0
    lost_steps: _Figure = 0
    """Done again after losses without notice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierRecord:
    """``status.tier``; 0 = nothing to tell, ``last_consistent_step`` ``None`` = no copy yet."""

    stage: _Stage
    ratio: Name
    epoch: NeededCount
    observed_at: Moment
    last_consistent_step: Count | None = None
    backup_lag_steps: Count = 0
    lost_steps: Count = 0


_read_report, _ = derived(LeadReport)


def report_from_wire(raw: JsonObject) -> LeadReport | None:
    """What a lead answered; ``None`` before its first maps.

    Raises:
        WireError: it is no answer of a lead.
    """
    return _read_report(raw) if "stage" in raw else None
