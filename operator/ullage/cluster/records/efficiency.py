# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The ledger row in the status of a workload, with the findings that explain it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from ullage.api.usage import DeviceTime
from ullage.api.wire_fields import (
    IF_KNOWN,
    INT32,
    KEPT,
    NEEDED,
    Count,
    Decimal,
    Flag,
    Listed,
    Moment,
    Schema,
    atomic,
    between,
    cut,
    word,
)
from ullage.api.words import EfficiencyRule
from ullage.engines.efficiency.ledger import NO_TIME, UsageMark

MOST_FINDINGS: Final = 8
"""Findings that one status holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingRecord:
    """One explanation of unused device time."""

    rule: Annotated[EfficiencyRule, word(EfficiencyRule, grows=True), NEEDED]
    """The explanation, in one stable word."""
    since: Moment
    """Since when it holds."""
    gain: Decimal = ""
    """Part of the allocated time that it explains, 0 to 1; gains of several findings overlap."""
    confidence: Decimal = ""
    """Confidence in it, 0 to 1; less where counters are estimates or the workload's own reports."""
    percent: Annotated[int, between(0, 100)] = 0
    """Share of a device that would be enough, in percent."""
    memory_mib: Count = 0
    """Device memory that would be enough, in MiB."""
    message: Annotated[str, cut(512)] = ""
    """Its figures, in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EfficiencyRecord:
    """Device time of the workload: one row for each start in each week.

    Written with other changes of the status only, so it may be older than the nodes' counters; what
    has grown since is entered with the next change.
    """

    since: Moment
    """Begin of the week that `row` is of."""
    attempt: Annotated[Count, INT32] = 0
    """Which start `row` is of: restarts before it."""
    as_of: Moment
    """Until when the sums count."""
    row: Annotated[DeviceTime, KEPT] = NO_TIME
    """Device time of this start in this week."""
    earlier: Annotated[DeviceTime, KEPT] = NO_TIME
    """Device time of earlier starts and weeks."""
    mark: UsageMark | None = None
    """Counters of the nodes at the last entry; absent = the next entry begins anew."""
    used_ratio: Decimal = ""
    """Used part of the allocated time of `row`, 0 to 1."""
    gain: Decimal = ""
    """Part of the allocated time that all findings explain together, 0 to 1."""
    per_device_hour: Decimal = ""
    """Price of an hour of a whole device, in the currency of the prices; absent = unknown."""
    estimated: Annotated[Flag, Schema(default=False)] = False
    """The use of a shared device is known as a whole only: the used time is the most that can be
    the workload's."""
    findings: Annotated[
        tuple[Annotated[FindingRecord, IF_KNOWN], ...],
        Listed(most=MOST_FINDINGS),
        atomic(MOST_FINDINGS),
    ] = ()
    """Why time is not used, the largest gain first."""
