# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""State of a job in tiers: as its coordinator reports it, and as the job's status keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

from ullage.api.codec import derived
from ullage.api.readers import JsonObject
from ullage.api.wire_fields import INT32, NEEDED, Count, Kind, Moment, NeededCount, Word, between

STAGES: Final = (1, 2, 3)
MOST: Final = 2**53
"""Largest figure that is believed: JSON of others holds no larger one exactly."""
MOST_LAG: Final = 2**31 - 1
"""Largest lag that the status holds."""
_Figure: TypeAlias = Annotated[int, between(0, MOST)]
_Stage: TypeAlias = Annotated[int, between(STAGES[0], STAGES[-1]), NEEDED]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorReport:
    """Report of a coordinator; ``committed`` is ``None`` while its copy holds no step whole."""

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
    """Progress of a job in tiers, as its coordinator reports."""

    stage: _Stage
    """1: reliable members own the state; 2: transient ones do, and push; 3: reliable ones do not
    compute any more."""
    ratio: Annotated[Word, NEEDED]
    """Transient to reliable members that run, such as 7:1."""
    observed_at: Moment
    """When the coordinator reported it; progress alone is reported once a minute."""
    epoch: NeededCount
    """Grows with every change of who owns what."""
    last_consistent_step: Count | None = None
    """Last step that the copy holds whole; absent while it holds none."""
    backup_lag_steps: Annotated[Count, INT32] = 0
    """Steps that the job was ahead of the copy then."""
    lost_steps: Count = 0
    """Steps that were done again after losses without notice, of this coordinator."""


_REPORT: Final = derived(CoordinatorReport)


def report_from_wire(raw: JsonObject) -> CoordinatorReport | None:
    """The report in a coordinator's answer; ``None`` before its first maps.

    Raises:
        WireError: it is no answer of a coordinator.
    """
    return _REPORT.read(raw) if "stage" in raw else None
