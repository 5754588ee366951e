# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Opportunities of a fleet: findings of many rows by rule and group, the most device time first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from ullage.api.times import HOUR_MS
from ullage.api.usage import DeviceTime
from ullage.api.words import EfficiencyRule
from ullage.engines.efficiency.ledger import total_of


class RowFinding(NamedTuple):
    """A finding of a row: its rule, and the part of the row's time that it explains."""

    rule: EfficiencyRule
    gain_permille: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedRow:
    """One row of the ledger.

    Attributes:
        name: The workload, as shown to people.
        group: Who answers for it: namespace, tenant and accelerator.
        time: Its device time.
        per_device_hour: Price of an hour of a whole device; ``None`` = unknown.
        findings: Its findings.
        gain_permille: Part of its time that all of them explain together.
    """

    name: str
    group: tuple[str, str, str]
    time: DeviceTime
    per_device_hour: Decimal | None = None
    findings: tuple[RowFinding, ...] = ()
    gain_permille: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Opportunity:
    """Device time of one group that findings of one rule explain.

    Attributes:
        rule: The rule.
        group: Namespace, tenant and accelerator.
        rows: Number of rows.
        gain_ms: Device time that it explains in them, milliseconds.
        cost: Its price; ``None`` = a price is missing.
        example: The row with the largest gain.
    """

    rule: EfficiencyRule
    group: tuple[str, str, str]
    rows: int
    gain_ms: int
    cost: Decimal | None
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSummary:
    """Sums over rows, and their opportunities, the largest first.

    Attributes:
        time: Device time.
        gain_ms: Device time that findings explain, each moment once.
        cost: Price of the wasted time of the rows with a price; ``None`` = none has one.
        unpriced: Rows without a price.
        rows: Number of rows.
        opportunities: By rule and group. Two of them may explain the same time: their gains do
            not add up.
    """

    time: DeviceTime
    gain_ms: int
    cost: Decimal | None
    unpriced: int
    rows: int
    opportunities: tuple[Opportunity, ...]


def cost_of(time_ms: int, per_device_hour: Decimal | None) -> Decimal | None:
    """Price of device time; ``None`` = unknown."""
    return None if per_device_hour is None else per_device_hour * time_ms / HOUR_MS


def summary(rows: Iterable[RankedRow]) -> FleetSummary:
    """Add up rows and rank their opportunities.

    A row counts by its own device time alone, so no row changes the gain of another.
    """
    times: list[DeviceTime] = []
    gain_ms = unpriced = 0
    cost: Decimal | None = None
    parts: dict[tuple[EfficiencyRule, tuple[str, str, str]], list[tuple[int, RankedRow]]]
    parts = defaultdict(list)
    for row in rows:
        times.append(row.time)
        gain_ms += _part_ms(row, row.gain_permille)
        wasted = cost_of(row.time.wasted_ms, row.per_device_hour)
        if wasted is None:
            unpriced += 1
        else:
            cost = (cost or Decimal(0)) + wasted
        for finding in row.findings:
            parts[finding.rule, row.group].append((_part_ms(row, finding.gain_permille), row))
    opportunities = [_opportunity(rule, group, held) for (rule, group), held in parts.items()]
    opportunities.sort(key=lambda entry: (-entry.gain_ms, entry.rule, entry.group))
    return FleetSummary(
        time=total_of(times),
        gain_ms=gain_ms,
        cost=cost,
        unpriced=unpriced,
        rows=len(times),
        opportunities=tuple(opportunities),
    )


def _part_ms(row: RankedRow, gain_permille: int) -> int:
    """Explained time of a row; what is explained was never used."""
    return min(row.time.wasted_ms, row.time.allocated_ms * gain_permille // 1000)


def _opportunity(
    rule: EfficiencyRule, group: tuple[str, str, str], held: list[tuple[int, RankedRow]]
) -> Opportunity:
    costs = [cost_of(gain_ms, row.per_device_hour) for gain_ms, row in held]
    known = [cost for cost in costs if cost is not None]
    return Opportunity(
        rule=rule,
        group=group,
        rows=len(held),
        gain_ms=sum(gain_ms for gain_ms, _ in held),
        cost=sum(known, Decimal(0)) if len(known) == len(held) else None,
        example=min(held, key=lambda part: (-part[0], part[1].name))[1].name,
    )
