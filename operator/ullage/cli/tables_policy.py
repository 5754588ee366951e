# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Renders the division of the cluster's time and its use. Pure: records in, renderables out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ullage.api.reasons import ConditionType
from ullage.api.schedulingpolicy import Tenant
from ullage.cli.tables import BAD, GOOD, QUIET, age, facts, table_of
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import AllocationRecord, TenantUsage
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.engines.allocation.round_records import MEMORY_ROUNDS
from ullage.scheduling.inventory.tenant_bindings import tenant_of
from ullage.scheduling.inventory.tenant_quotas import usages_of
from ullage.scheduling.learning.device_prices import prices_of
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.timeslicing.round_records import current, owed_s, promised, received_s

FIFO = (
    "The objective is FIFO: by priority, then by age, until done. Time is not divided; set"
    " spec.objective of the SchedulingPolicy `default` to let jobs take turns."
)


def policy(snapshot: Snapshot, now: float, quota_held: Snapshot | None = None) -> RenderableType:
    """The objective in force, and promise against received time by job and accelerator type.

    Args:
        snapshot: Policy, jobs and prices.
        now: Seconds since the epoch.
        quota_held: Workloads, pods and nodes of the cluster; ``None`` = the user may not list them.
    """
    binding, prices = snapshot.policy, prices_of(snapshot)
    head = _head(binding, now, quota_held)
    parts: list[RenderableType] = [head]
    if binding.objective == "FIFO":
        return Group(*parts, Text(FIFO))
    jobs = [
        workload
        for workload in snapshot.workloads.values()
        if workload.kind is WorkloadKind.TRAINING_JOB and workload.status.allocation is not None
    ]
    jobs.sort(key=lambda job: (tenant_of(binding, job), job.ref.namespace, job.ref.name))
    live = [job for job in jobs if not Phase(job.status.phase or Phase.PENDING).terminal]
    if not live:
        parts.append(Text("no job takes turns now", style=QUIET))
        return Group(*parts)
    if prices:
        each = ", ".join(f"{kind} {price:.2f}" for kind, price in sorted(prices.items()))
        head.add_row("prices", f"{each} (one device for an hour)")
        total = sum(
            _per_hour(workload, kind, prices) for workload in live for kind in _promise(workload)
        )
        head.add_row("promised", f"{total:.2f} an hour, all jobs together")
    parts.append(_turns(live, binding, prices, now))
    return Group(*parts)


def _quotas(binding: PolicyRecord, held: Snapshot | None, now: float) -> Iterator[str]:
    """A line for each tenant with quota; with its usage where known."""
    recorded = binding.quota_status
    usages = usages_of(held) if held is not None else recorded.usage if recorded is not None else ()
    known = {(usage.tenant, usage.accelerator): usage for usage in usages}
    for tenant in binding.tenants:
        if tenant.quota:
            yield _quota(tenant, known)
    if held is None and any(tenant.quota for tenant in binding.tenants):
        yield (
            f"what tenants hold is that of {age(now - recorded.time)} ago, as the status tells it"
            if recorded is not None
            else "the operator has not told yet what tenants hold"
        )


def _quota(tenant: Tenant, known: Mapping[tuple[str, str], TenantUsage]) -> str:
    """Quota of a tenant, and its usage, in percent of devices."""
    kinds = ", ".join(
        f"{quota.nominal_quota} % of {quota.accelerator}"
        + _held(known.get((tenant.name, quota.accelerator)))
        for quota in tenant.quota
    )
    if not tenant.cohort:
        return f"{tenant.name}: {kinds}"
    reclaim = tenant.reclaim_within_cohort.value
    return f"{tenant.name}: {kinds}; cohort {tenant.cohort}, reclaimWithinCohort {reclaim}"


def _held(usage: TenantUsage | None) -> str:
    if usage is None:
        return ""
    of_it = f", {usage.borrowed} % of it borrowed" if usage.borrowed else ""
    return f" (holds {usage.used} %{of_it}, can get {usage.available} %)"


def _head(binding: PolicyRecord, now: float, quota_held: Snapshot | None) -> Table:
    table = facts()
    table.add_row("objective", binding.objective)
    table.add_row("round", f"{binding.round_seconds} s")
    if binding.tenants:
        parts = (
            f"{tenant.name} {tenant.weight}{' (oldest first)' if tenant.fifo else ''}"
            for tenant in binding.tenants
        )
        table.add_row("tenants", ", ".join(parts))
    for line in _quotas(binding, quota_held, now):
        table.add_row("quota", line)
    solve = binding.last_solve
    if solve is not None:
        ago = age(now - solve.time)
        value = f", objective {solve.objective_value}" if solve.objective_value else ""
        style = GOOD if solve.result == "Optimal" else BAD
        table.add_row(
            "divided", Text(f"{solve.result}, {ago} ago, {solve.jobs} jobs{value}", style=style)
        )
        scarce = ", ".join(f"{kind} ({float(price):.3g})" for kind, price in solve.prices)
        table.add_row("scarce", scarce or "no type: one device more would change nothing")
        if solve.dropped:
            table.add_row("deadlines", Text(f"{solve.dropped} are not kept", style=BAD))
    for condition in binding.conditions:
        if condition.type == ConditionType.DEGRADED and condition.status == "True":
            table.add_row("degraded", Text(f"{condition.reason}: {condition.message}", style=BAD))
    return table


def _promise(job: WorkloadRecord) -> dict[str, float]:
    return promised(job.status.allocation)


def _per_hour(job: WorkloadRecord, kind: str, prices: Mapping[str, float]) -> float:
    """Hourly cost of a job's promised time on a type, at the present price."""
    share = job.gpu.share
    each = job.gpu.count if share is None else share.max_percent / 100
    return _promise(job).get(kind, 0.0) * job.replicas * each * prices.get(kind, 0.0)


def _turns(
    jobs: Iterable[WorkloadRecord], binding: PolicyRecord, prices: Mapping[str, float], now: float
) -> Table:
    numbers = ("PROMISED", "RECEIVED", "SECONDS", "OWED", *(("PER HOUR",) if prices else ()))
    table = table_of("JOB", "TENANT", "WEIGHT", "TYPE", numbers=numbers, more=("NOW", "SPEEDS"))
    most_s = MEMORY_ROUNDS * binding.round_seconds
    for job in jobs:
        books = job.status.allocation
        if books is None:
            continue
        first = True
        for kind, row in _rows(job, books, now, most_s):
            who = (
                f"{job.ref.namespace}/{job.ref.name}",
                tenant_of(binding, job) or "-",
                str(job.weight),
            )
            cost = (f"{_per_hour(job, kind, prices):.2f}",) if prices else ()
            cells = (*row[:4], *cost, *row[4:])
            table.add_row(*(who if first else ("", "", "")), kind, *cells)
            first = False
        if books.dropped is not None:
            cause = Text(f"deadline is not kept: {books.dropped.cause}", style=BAD)
            table.add_row("", "", "", "", *("" for _ in numbers), cause)
    return table


def _rows(
    job: WorkloadRecord, books: AllocationRecord, now: float, most_s: float
) -> list[tuple[str, tuple[RenderableType, ...]]]:
    """A line for every type that is promised to the job or was received."""
    promise, had = promised(books), received_s(books, now)
    owed = owed_s(books, now, most_s)
    holds, since = current(books)
    alive_s = max(1.0, now - job.created)
    rows: list[tuple[str, tuple[RenderableType, ...]]] = []
    for kind in sorted(promise.keys() | had.keys()) or ["-"]:
        seconds = had.get(kind, 0.0)
        lacks = owed.get(kind, 0.0) if kind in promise else 0.0
        state: RenderableType = ""
        if kind == holds:
            partner = next((f", beside {pair.partner}" for pair in books.pairs if pair.since), "")
            state = Text(f"its turn for {age(now - since)}{partner}", style=GOOD)
        elif not holds and kind in promise:
            state = Text("waits", style=QUIET)
        rows.append(
            (
                kind,
                (
                    f"{promise.get(kind, 0.0):.1%}",
                    f"{seconds / alive_s:.1%}",
                    f"{seconds:.0f}",
                    Text(f"{lacks:+.0f}", style=BAD if lacks > 0 else ""),
                    state,
                    books.source or "-",
                ),
            )
        )
    return rows
