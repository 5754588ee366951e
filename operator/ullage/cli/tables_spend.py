# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Renders the pools chosen for a job, for `kubectl ullage why`."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ullage.api.explanations.all import REASONS
from ullage.api.times import rfc3339
from ullage.cluster.records.spend import Offer, SpendRecord


def spend(record: SpendRecord) -> RenderableType:
    """The decision of pools: chosen, next best, why, and when it is looked at again."""
    decision = record.decision
    if decision is None:
        return Text("its pools were not decided yet")
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    committed = " until the end" if decision.committed else ""
    rows = {
        "capacity": f"{decision.mode}{committed}",
        "reason": decision.reason.value,
        "": decision.message,
        "pools": offer(decision.chosen),
        "next best": offer(decision.runner_up) if decision.runner_up is not None else "",
        "to save": _expected(record),
        "since": rfc3339(decision.since) if decision.since else "",
        "looked at again": rfc3339(record.next_decision) if record.next_decision else "",
        "what helps": REASONS[decision.reason].what_to_do,
        "inputs": f"{decision.inputs_hash}, epoch {decision.epoch}",
    }
    for name, value in rows.items():
        if value:
            table.add_row(name, value)
    return Group(Text("where it may run", style="bold"), table)


def _expected(record: SpendRecord) -> str:
    said = record.expected_savings
    return f"{said} $ over the rest of the work, against on-demand" if said else ""


def offer(one: Offer) -> str:
    """An allocation in a line."""
    if not one.pools:
        return "none for now"
    said = " + ".join(f"{share.replicas} x {share.pool}" for share in one.pools)
    figures = [f"{one.per_hour} $/h"] if one.per_hour else []
    if one.cost_per_work:
        figures.append(f"{one.cost_per_work} $ per hour of work")
    return f"{said} ({', '.join(figures)})" if figures else said
