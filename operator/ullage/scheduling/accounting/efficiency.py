# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Efficiency of workloads: the ledger row in their status, and explanations of unused device time.

A row is written only together with other changes of the status. Between two entries it
follows from the counters of the nodes, which anyone may read: commands and metrics count on from
the last entry as the next entry does. Time before all members run is not the user's and is in no
sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import lru_cache
from typing import Final

from ullage.api.devices import GPUMode
from ullage.api.slices import ObservedRank, SliceKey
from ullage.api.usage import ObservedUsage
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.efficiency import MOST_FINDINGS, EfficiencyRecord, FindingRecord
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.status import Placement, WorkloadStatus
from ullage.cluster.records.trace import LastTrace
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.engines.efficiency.ledger import NO_TIME, growth, mark_of, plus
from ullage.engines.efficiency.rules import Finding, JudgedWorkload, findings_of, gain_permille
from ullage.engines.efficiency.step_rules import StepClaim
from ullage.scheduling.accounting.cost_records import money
from ullage.scheduling.accounting.rates import Rate
from ullage.scheduling.accounting.step_evidence import claims_of
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.times import (
    COST_COUNTED_MOST_S,
    EFFICIENCY_PERIOD_S,
    EFFICIENCY_SLACK_S,
    FIRST_MONDAY_S,
    HEARTBEAT_MAX_AGE_S,
)

_SERVES: Final = (Phase.READY, Phase.DEGRADED)
_NO_USAGE: Final = ObservedUsage()
"""Sums of an agent that measures no device time."""


def period_of(now: float) -> float:
    """Begin of the week that holds a moment, seconds since the epoch: Monday 00:00 UTC."""
    return (now - FIRST_MONDAY_S) // EFFICIENCY_PERIOD_S * EFFICIENCY_PERIOD_S + FIRST_MONDAY_S


@dataclass(slots=True)
class UsageReports:
    """Reports of nodes on slices; every node is looked up once.

    Of a node whose agent is silent only the sums are used: its windows may be old.
    """

    nodes: Mapping[str, GPUNodeRecord]
    now: float
    traces: Mapping[tuple[str, str], LastTrace] = field(default_factory=dict)
    _by_node: dict[str, Mapping[SliceKey, ObservedUsage]] = field(default_factory=dict)
    _ranks_by_node: dict[str, Mapping[SliceKey, tuple[ObservedRank, ...]]] = field(
        default_factory=dict
    )

    def of(self, placement: Sequence[Placement]) -> list[ObservedUsage | None]:
        """Counters of each container of a placement; ``None`` = its node does not report it.

        A container has one counter, with the first of its devices.
        """
        return [self._of(part) for part in placement if part.key.index == 0]

    def ranks(self, placement: Sequence[Placement]) -> list[ObservedRank]:
        """Ranks of the containers of a placement; none where any of them reports none."""
        ranks: list[ObservedRank] = []
        for part in placement:
            if part.key.index:
                continue
            by_key = self._ranks_by_node.get(part.node)
            if by_key is None:
                by_key = self._ranks_by_node[part.node] = self._timed(self.nodes.get(part.node))
            if part.key not in by_key:
                return []
            ranks += by_key[part.key]
        return ranks

    def _timed(self, node: GPUNodeRecord | None) -> Mapping[SliceKey, tuple[ObservedRank, ...]]:
        if node is None or self.now - node.heartbeat > HEARTBEAT_MAX_AGE_S:
            return {}
        return {seen.key: seen.ranks for seen in node.observed if seen.ranks}

    def _of(self, part: Placement) -> ObservedUsage | None:
        by_key = self._by_node.get(part.node)
        if by_key is None:
            by_key = self._by_node[part.node] = self._reported(self.nodes.get(part.node))
        return by_key.get(part.key)

    def _reported(self, node: GPUNodeRecord | None) -> Mapping[SliceKey, ObservedUsage]:
        if node is None:
            return {}
        usages = {seen.key: seen.usage or _NO_USAGE for seen in node.observed}
        if self.now - node.heartbeat <= HEARTBEAT_MAX_AGE_S:
            return usages
        return {
            key: replace(usage, recent=None) if usage.recent is not None else usage
            for key, usage in usages.items()
        }


def entered(
    workload: WorkloadRecord, status: WorkloadStatus, reports: UsageReports, rate: Rate, now: float
) -> WorkloadStatus:
    """The status with its row up to now; the same object where the nodes report no device time.

    Args:
        workload: The workload with the last status.
        status: A new status that is going to be written.
        reports: Counters of the nodes.
        rate: Price of the slices of the new status.
        now: Seconds since the epoch.
    """
    before = workload.status.efficiency
    held = reports.of(status.placement)
    known = any(report is not None and report is not _NO_USAGE for report in held)
    if workload.adopted or (before is None and not known):
        return status
    row = counted(workload, reports.of(workload.status.placement), now)
    moment = whole_second(now)
    since, attempt = period_of(moment), status.restarts
    if row.since != since or row.attempt != attempt:
        row = replace(
            row,
            since=since,
            attempt=attempt,
            earlier=plus(row.earlier, row.row),
            row=NO_TIME,
            used_ratio="",
        )
    findings = judged(workload, status, held, claims(workload, status, reports))
    row = with_findings(row, findings, moment)
    return replace(
        status,
        efficiency=replace(
            row,
            mark=mark_of(held) if _counts(workload, status) else None,
            per_device_hour=_per_device_hour(status.placement, rate) or row.per_device_hour,
            estimated=any(report is not None and report.estimated for report in held)
            or row.estimated,
        ),
    )


def counted(
    workload: WorkloadRecord,
    reports: Sequence[ObservedUsage | None],
    now: float,
    findings: Sequence[Finding] | None = None,
) -> EfficiencyRecord:
    """The row as of a moment, from the last entry and what has grown since.

    Args:
        workload: The workload with its stored status.
        reports: Counters of the containers of its placement.
        now: Seconds since the epoch.
        findings: Its findings now; ``None`` = those of the last entry stay.
    """
    status, moment = workload.status, whole_second(now)
    before = status.efficiency or EfficiencyRecord(
        since=period_of(moment), attempt=status.restarts, as_of=moment
    )
    if findings is None:
        gain, records = before.gain, before.findings
    else:
        gain, records = _explained(before, findings, moment)
    if before.mark is None:
        return replace(before, as_of=moment, gain=gain, findings=records)
    passed_s = max(0.0, min(COST_COUNTED_MOST_S, moment - before.as_of))
    devices = sum(part.percent for part in status.placement) / 100
    grown = growth(
        before.mark,
        reports,
        held_ms=devices * passed_s * 1000,
        slack_ms=devices * EFFICIENCY_SLACK_S * 1000,
    )
    row = plus(before.row, grown)
    ratio = ratio_text(row.used_ms / row.allocated_ms) if row.allocated_ms else ""
    return replace(before, as_of=moment, row=row, used_ratio=ratio, gain=gain, findings=records)


def judged(
    workload: WorkloadRecord,
    status: WorkloadStatus,
    reports: Iterable[ObservedUsage | None],
    claims: tuple[StepClaim, ...] = (),
) -> tuple[Finding, ...]:
    """Explanations of a workload's unused device time; none while it may not be judged.

    Args:
        workload: The workload.
        status: Its status, with the placement that the reports are of.
        reports: Counters of its containers.
        claims: What its ranks and its last trace say of its steps.
    """
    known = [report for report in reports if report is not None]
    if not _counts(workload, status) or len(known) < _containers(status):
        return ()
    return findings_of(
        JudgedWorkload(
            percent=min(part.percent for part in status.placement),
            memory_mib=min(part.memory_mib for part in status.placement),
            is_job=workload.kind is WorkloadKind.TRAINING_JOB,
            fixed_share=has_fixed_share(workload),
            whole_device=workload.gpu.mode is GPUMode.EXCLUSIVE,
            members=tuple(known),
            claims=claims,
        )
    )


def claims(
    workload: WorkloadRecord, status: WorkloadStatus, reports: UsageReports
) -> tuple[StepClaim, ...]:
    """What the ranks and the last trace of a workload say of its steps."""
    return claims_of(workload, status, reports.ranks(status.placement), reports.traces, reports.now)


def with_findings(
    row: EfficiencyRecord, findings: Sequence[Finding], now: float
) -> EfficiencyRecord:
    """The row with these findings; one that stays keeps its time."""
    gain, records = _explained(row, findings, whole_second(now))
    return replace(row, gain=gain, findings=records)


def has_fixed_share(workload: WorkloadRecord) -> bool:
    """True when a smaller share may not replace its own: a lane or an objective needs it."""
    gpu, objectives = workload.gpu, (workload.max_slowdown, workload.min_throughput, workload.slo)
    return (
        gpu.lane is not None
        or gpu.count > 1
        or workload.scaling is not None
        or any(objective is not None for objective in objectives)
    )


def _containers(status: WorkloadStatus) -> int:
    return sum(part.key.index == 0 for part in status.placement) or 1


def _counts(workload: WorkloadRecord, status: WorkloadStatus) -> bool:
    """True while time counts: all members run, and no stop was requested."""
    if not status.placement or workload.deleting:
        return False
    return status.phase in (_SERVES if not workload.is_gang else (Phase.RUNNING,))


def _per_device_hour(placement: Sequence[Placement], rate: Rate) -> str:
    devices = sum(part.percent for part in placement) / 100
    if not devices or rate.per_hour is None or not rate.per_hour:
        return ""
    return money(rate.per_hour / devices)


def _explained(
    row: EfficiencyRecord, findings: Sequence[Finding], moment: float
) -> tuple[str, tuple[FindingRecord, ...]]:
    """Gain of all findings, and each of them, as the row holds them."""
    if not findings:
        return "", ()
    return _permille_text(gain_permille(findings)), _recorded(findings, row.findings, moment)


def _recorded(
    findings: Sequence[Finding], before: Sequence[FindingRecord], moment: float
) -> tuple[FindingRecord, ...]:
    """Findings for the status; one that stays keeps its time."""
    since = {record.rule: record.since for record in before}
    return tuple(
        FindingRecord(
            rule=finding.rule,
            since=since.get(finding.rule, moment),
            gain=_permille_text(finding.gain_permille),
            confidence=ratio_text(finding.confidence),
            percent=finding.percent,
            memory_mib=finding.memory_mib,
            message=finding.evidence,
        )
        for finding in findings[:MOST_FINDINGS]
    )


def ratio_text(value: float) -> str:
    """A part as decimal text of three digits."""
    return f"{min(1.0, value):.3f}"


@lru_cache(maxsize=1001)
def _permille_text(permille: int) -> str:
    return ratio_text(permille / 1000)


def price_of(record: EfficiencyRecord) -> Decimal | None:
    """Price of an hour of a whole device; ``None`` = unknown."""
    return _price(record.per_device_hour) if record.per_device_hour else None


@lru_cache(maxsize=1024)  # a cluster has few prices, and many workloads
def _price(text: str) -> Decimal:
    return Decimal(text)
