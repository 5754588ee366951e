# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``kubectl ullage efficiency``: device time that was held and not used, why, and what helps.

Pure: records in, renderables and JSON out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from ullage.api.times import HOUR_MS
from ullage.cli.tables import QUIET, facts, table_of
from ullage.cluster.records.efficiency import FindingRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.efficiency.ranking import FleetSummary, cost_of, summary
from ullage.process.collector import uncollected
from ullage.scheduling.accounting.efficiency import price_of
from ullage.scheduling.accounting.fleet import WorkloadEfficiency, efficiencies, ranked_row
from ullage.scheduling.accounting.remedies import Remedy, remedy

NOTHING: Final = (
    "no device time is known yet: nodes measure it while work runs, and findings need half an hour"
)


class FleetEfficiency:
    """Efficiency of the workloads of a snapshot, the most wasted time first."""

    def __init__(self, snapshot: Snapshot, workloads: Iterable[WorkloadRecord], now: float) -> None:
        self.snapshot = snapshot
        self.now = now
        with uncollected():
            entries = list(efficiencies(snapshot, workloads, now))
            self.summary: FleetSummary = summary(
                ranked_row(snapshot, entry, entry.time) for entry in entries
            )
        self.entries = sorted(
            entries,
            key=lambda entry: (
                -entry.time.wasted_ms,
                entry.workload.ref.namespace,
                entry.workload.ref.name,
            ),
        )

    def remedies(self, entry: WorkloadEfficiency) -> list[tuple[FindingRecord, Remedy]]:
        """Findings of a workload, each with what helps."""
        return [
            (finding, remedy(self.snapshot, entry.workload, finding))
            for finding in entry.record.findings
        ]


def table(fleet: FleetEfficiency, top: int) -> RenderableType:
    """Sums, the largest opportunities, and the workloads with findings that waste most.

    Args:
        fleet: The workloads.
        top: Number of opportunities and of workloads.
    """
    total = fleet.summary
    if not total.rows:
        return Text(NOTHING, style=QUIET)
    time = total.time
    sums = facts(
        {
            "device hours": _hours(time.allocated_ms),
            "used": f"{_hours(time.used_ms)} ({_part(time.used_ms, time.allocated_ms)})",
            "wasted": f"{_hours(time.wasted_ms)} ({_part(time.wasted_ms, time.allocated_ms)}),"
            f" {_hours(total.gain_ms)} of it explained",
            "cost of it": "" if total.cost is None else _money(total.cost),
            "withheld": _hours(time.withheld_ms) if time.withheld_ms else "",
            "unmeasured": _hours(time.unmeasured_ms) if time.unmeasured_ms else "",
        }
    )
    parts: list[RenderableType] = [sums]
    if total.opportunities:
        shown = table_of(
            "FINDING", "NAMESPACE", "TENANT", "ACCELERATOR",
            numbers=("WORKLOADS", "HOURS", "COST"), more=("FOR EXAMPLE",),
        )  # fmt: skip
        for entry in total.opportunities[:top]:
            shown.add_row(
                entry.rule.value,
                *entry.group,
                str(entry.rows),
                _hours(entry.gain_ms),
                _money(entry.cost),
                entry.example,
            )
        parts += [Text(""), shown]
    judged = [entry for entry in fleet.entries if entry.record.findings]
    for workload in judged[:top]:
        parts += [Text(""), *_lines(fleet, workload)]
    if len(judged) > top:
        parts.append(Text(f"and {len(judged) - top} more with findings", style=QUIET))
    if total.unpriced:
        parts.append(Text(f"{total.unpriced} workloads have no price and are in no cost"))
    return Group(*parts)


def explained(fleet: FleetEfficiency) -> RenderableType:
    """One workload: its device time, findings, evidence and what helps."""
    if not fleet.entries:
        return Text(NOTHING, style=QUIET)
    parts: list[RenderableType] = []
    for entry in fleet.entries:
        time = entry.time
        estimated = " (at most: it shares its device)" if entry.record.estimated else ""
        parts.append(
            facts(
                {
                    "device hours": _hours(time.allocated_ms),
                    "used": f"{_hours(time.used_ms)}"
                    f" ({_part(time.used_ms, time.allocated_ms)}){estimated}",
                    "wasted": _hours(time.wasted_ms),
                    "cost of it": _money(cost_of(time.wasted_ms, price_of(entry.record)))
                    if entry.record.per_device_hour
                    else "",
                    "withheld by Ullage": _hours(time.withheld_ms) if time.withheld_ms else "",
                    "unmeasured": _hours(time.unmeasured_ms) if time.unmeasured_ms else "",
                }
            )
        )
        if entry.record.findings:
            parts += _lines(fleet, entry)
        else:
            parts.append(Text("no finding", style=QUIET))
    return Group(*parts)


def _lines(fleet: FleetEfficiency, entry: WorkloadEfficiency) -> list[RenderableType]:
    ref = entry.workload.ref
    name = f"{ref.kind} {ref.namespace}/{ref.name}: {_hours(entry.time.wasted_ms)} hours wasted"
    lines: list[RenderableType] = [Text(name, style="bold")]
    for finding, help_ in fleet.remedies(entry):
        gain = f" {float(finding.gain):.0%} of the time" if finding.gain else ""
        lines.append(
            Text(
                f"  {finding.rule.value}:{gain} (confidence {finding.confidence or '?'})"
                f" - {finding.message}"
            )
        )
        lines.append(Text(f"    {help_.text}"))
        if help_.command:
            lines.append(Text(f"    {help_.command}", style="cyan", overflow="fold"))
    return lines


def to_json(fleet: FleetEfficiency, top: int) -> str:
    """Output for scripts; device time is in milliseconds, money is decimal text."""
    total = fleet.summary
    body = {
        "asOf": int(fleet.now),
        "total": total.time.to_wire()
        | {
            "wastedMs": total.time.wasted_ms,
            "explainedMs": total.gain_ms,
            "wastedCost": _text(total.cost),
            "workloads": total.rows,
            "unpriced": total.unpriced,
        },
        "opportunities": [
            {
                "rule": entry.rule.value,
                "namespace": entry.group[0],
                "tenant": entry.group[1],
                "accelerator": entry.group[2],
                "workloads": entry.rows,
                "gainMs": entry.gain_ms,
                "cost": _text(entry.cost),
                "example": entry.example,
            }
            for entry in total.opportunities[:top]
        ],
        "workloads": [_workload(fleet, entry) for entry in fleet.entries],
    }
    return json.dumps(body, indent=2, allow_nan=False) + "\n"


def _workload(fleet: FleetEfficiency, entry: WorkloadEfficiency) -> dict[str, object]:
    ref, time = entry.workload.ref, entry.time
    findings: Sequence[dict[str, object]] = [
        {
            "rule": finding.rule.value,
            "gain": float(finding.gain or 0),
            "confidence": float(finding.confidence or 0),
            "evidence": finding.message,
            "remedy": help_.text,
            "command": help_.command,
        }
        for finding, help_ in fleet.remedies(entry)
    ]
    return {
        "kind": ref.kind,
        "namespace": ref.namespace,
        "name": ref.name,
        "accelerator": entry.accelerator,
        "estimated": entry.record.estimated,
        "wastedMs": time.wasted_ms,
        "wastedCost": _text(cost_of(time.wasted_ms, price_of(entry.record))),
        "findings": findings,
    } | time.to_wire()


def _hours(time_ms: int) -> str:
    return f"{time_ms / HOUR_MS:.2f}"


def _part(time_ms: int, of_ms: int) -> str:
    return f"{time_ms / of_ms:.0%}" if of_ms else "-"


def _money(value: Decimal | None) -> str:
    return "?" if value is None else f"{value:.2f}"


def _text(value: Decimal | None) -> str | None:
    return None if value is None else f"{value:.6f}"
