# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Progress of a job in tiers, as its coordinator reports it and as the job's status keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ullage.api.contract import JsonObject, WireError, text, whole
from ullage.api.readers import bounded, count_of
from ullage.cluster.values.quantity import rfc3339, seconds

STAGES: Final = (1, 2, 3)
MOST: Final = 2**53
"""Largest figure that is believed: JSON of others holds no larger one exactly."""
MOST_LAG: Final = 2**31 - 1
"""Largest lag that the status holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadReport:
    """Report of a coordinator; ``committed`` is ``None`` while its copy holds no complete step."""

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

    stage: int
    ratio: str
    epoch: int
    observed_at: float
    last_consistent_step: int | None = None
    backup_lag_steps: int = 0
    lost_steps: int = 0


def report_from_wire(raw: JsonObject) -> LeadReport | None:
    """Reads a coordinator's answer; ``None`` before its first maps.

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


def tier_to_wire(tier: TierRecord) -> dict[str, object]:
    """Encodes it for the API."""
    body: dict[str, object] = {
        "stage": tier.stage,
        "ratio": tier.ratio,
        "epoch": tier.epoch,
        "observedAt": rfc3339(tier.observed_at),
    }
    if tier.last_consistent_step is not None:
        body["lastConsistentStep"] = tier.last_consistent_step
    counts = {"backupLagSteps": tier.backup_lag_steps, "lostSteps": tier.lost_steps}
    return body | {name: value for name, value in counts.items() if value}


def tier_from_wire(raw: JsonObject) -> TierRecord:
    """Decodes what was written.

    Raises:
        WireError: a field has the wrong type.
    """
    step = raw.get("lastConsistentStep")
    return TierRecord(
        stage=bounded(raw, "stage", STAGES[0], STAGES[-1]),
        ratio=text(raw, "ratio"),
        epoch=count_of(raw, "epoch", None),
        observed_at=seconds(raw.get("observedAt"), "observedAt"),
        last_consistent_step=None if step is None else count_of(raw, "lastConsistentStep"),
        backup_lag_steps=count_of(raw, "backupLagSteps"),
        lost_steps=count_of(raw, "lostSteps"),
    )


def _count(raw: JsonObject, field: str) -> int:
    value = whole(raw, field, 0)
    if not 0 <= value <= MOST:
        raise WireError(f"{field}: {value} is no count")
    return value
