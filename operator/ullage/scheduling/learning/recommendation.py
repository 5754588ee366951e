# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Recommended accelerators in a job's status, rewritten only when they change.

Speeds change with every window; an equivalent list keeps the last record.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ullage.api.reasons import Reason, Standing
from ullage.cluster.records.status import MOST_RECOMMENDED, Recommended, WorkloadStatus
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.devicechoice.choose import HYSTERESIS
from ullage.engines.devicechoice.explain import summary
from ullage.engines.devicechoice.offers import ChoiceAim, Priced
from ullage.scheduling.learning.recommend import Advice, Advisor
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.plan import Emit

MIB: Final = 2**20
MOST_TYPES: Final = 8
"""Number of types written; the other rows are other numbers of devices."""
MOST_COST: Final = 1e9
_ENDED: Final = frozenset({Phase.SUCCEEDED.value, Phase.FAILED.value})


def advised(advisor: Advisor, workload: WorkloadRecord, status: WorkloadStatus) -> WorkloadStatus:
    """The status with the recommended accelerators of the job.

    Jobs without ``spec.cost`` have none, and those that ended keep theirs.
    """
    if workload.cost is None:
        if not status.recommendation and not status.recommendation_basis:
            return status
        return replace(status, recommendation=(), recommendation_basis="")
    if status.phase in _ENDED:
        return status
    basis = advisor.basis(workload)
    if basis == status.recommendation_basis or advisor.left <= 0:
        return status
    advisor.spend(workload)
    rows = rows_of(advisor.advice(workload))
    if status.recommendation and _same(status.recommendation, rows):
        rows = status.recommendation
    return replace(status, recommendation=rows, recommendation_basis=basis)


def advice_news(
    advisor: Advisor, workload: WorkloadRecord, status: WorkloadStatus, epoch: int
) -> Emit | None:
    """An Event when another accelerator becomes first, or none is left."""
    before, after = workload.status.recommendation, status.recommendation
    if before is after or not after or _first(before) == _first(after):
        return None
    table = advisor.advice(workload).table
    return Emit(
        target=workload.ref,
        warning=table.outcome is Reason.NO_FEASIBLE_ACCELERATOR,
        epoch=epoch,
        reason=table.outcome,
        text=summary(table),
    )


def _first(rows: tuple[Recommended, ...]) -> tuple[str, Reason] | None:
    return (rows[0].accelerator, rows[0].reason) if rows else None


def rows_of(advice: Advice) -> tuple[Recommended, ...]:
    """The table as a status record: the best of each type, then other numbers of devices.

    The best type comes first, infeasible ones last.
    """
    table, first = advice.table, advice.first
    aim = table.aim or (
        ChoiceAim.COST if first is not None and first.cost is not None else ChoiceAim.TIME
    )
    rows = sorted(table.rows, key=lambda row: row is not first)[:MOST_TYPES]
    rows += advice.numbers
    return tuple(_row(row, first, aim, advice) for row in rows[:MOST_RECOMMENDED])


def _row(row: Priced, first: Priced | None, aim: ChoiceAim, advice: Advice) -> Recommended:
    total, need = row.total, row.memory.need_bytes
    sure = advice.confidence_of(row)
    reason = row.infeasible or row.hold
    if reason is None:
        reason = Reason.RECOMMENDED if row is first else Reason.FEASIBLE
    return Recommended(
        accelerator=row.offer.accelerator,
        devices=row.offer.gpus,
        reason=reason,
        total_s=None if total is None else round(total.value_s),
        low_s=None if total is None else round(total.low_s),
        high_s=None if total is None else round(total.high_s),
        cost=_money(row.cost),
        source="" if row.source is None else row.source.value,
        confidence="" if sure is None else f"{sure:.2f}",
        need_mib=None if need is None else round(need / MIB),
        message=_message(row, first, aim, advice),
    )


def _money(cost: float | None) -> str:
    if cost is None or cost >= MOST_COST:
        return ""
    return f"{cost:.2f}" if cost >= 1 else f"{cost:.4f}"


def _message(row: Priced, first: Priced | None, aim: ChoiceAim, advice: Advice) -> str:
    """The obstacle of an offer, or its comparison with the first one."""
    if row.offer.gpus == advice.members * advice.devices_each:
        return row.text or _compared(row, first, aim)
    compared = "" if row.infeasible is not None else _compared(row, first, aim)
    text = "; ".join(part for part in (compared, row.text) if part)
    return f"by estimate {text}" if text else "an estimate"


def _compared(row: Priced, first: Priced | None, aim: ChoiceAim) -> str:
    """Comparison of an offer with the first one."""
    word = "costs" if aim is ChoiceAim.COST else "takes"
    if first is None or row is first:
        return f"{word} least of the types that can be had"
    than = first.offer.accelerator
    if row.offer.gpus != first.offer.gpus:
        than = f"{first.offer.gpus} x {than}"
    times = row.value(aim) / first.value(aim) if first.value(aim) > 0 else float("inf")
    if not times < float("inf"):
        return ""
    thing = "as much" if aim is ChoiceAim.COST else "as long"
    return f"{word} {times:.2f} times {thing} as {than}"


def _same(before: tuple[Recommended, ...], after: tuple[Recommended, ...]) -> bool:
    """True when two lists are equivalent: equal verdicts, close times, the same row first."""
    old = {(row.accelerator, row.devices): row for row in before}
    if old.keys() != {(row.accelerator, row.devices) for row in after}:
        return False
    for row in after:
        row_before = old[row.accelerator, row.devices]
        ranked = Standing.RANKED in row.reason.standing & row_before.reason.standing
        if (row.reason is not row_before.reason and not ranked) or row.source != row_before.source:
            return False
        if row.need_mib != row_before.need_mib:
            return False
        if not (
            _close(row.total_s, row_before.total_s)
            and _close(_number(row.cost), _number(row_before.cost))
        ):
            return False
    return _head(before) == _head(after)


def _head(rows: tuple[Recommended, ...]) -> tuple[str, int]:
    return rows[0].accelerator, rows[0].devices


def _number(text: str) -> float | None:
    return float(text) if text else None


def _close(before: float | None, after: float | None) -> bool:
    if before is None or after is None:
        return before is after
    return abs(before - after) <= HYSTERESIS * max(before, after)
