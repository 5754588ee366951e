# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""From reports to rows: one row per tenant per window, with what makes it unusable spelled out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench.gpu.catalogue import WORKLOADS
from bench.gpu.device import SPOILS, Facts, Gauge
from bench.gpu.orders import Hello, Report
from bench.gpu.plan import Member, Window
from bench.gpu.schema import Cell

LEAST_ITERATIONS: Final = 5
P99_ITERATIONS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What all rows of a window share."""

    options_run: str
    facts: Facts
    mode: str
    seed: int
    window: Window
    gauge: Gauge


def quantile(ordered: Sequence[float], q: float) -> float:
    """Of sorted values: the smallest that at least the fraction q does not exceed."""
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]


def times(durations_ms: Sequence[float]) -> dict[str, Cell]:
    """Mean and quantiles, ms; no 99th percentile of fewer than 100 iterations."""
    if not durations_ms:
        return {"iters": 0}
    ordered = sorted(durations_ms)
    return {
        "iters": len(ordered),
        "step_ms_mean": math.fsum(ordered) / len(ordered),
        "step_ms_p50": quantile(ordered, 0.5),
        "step_ms_p90": quantile(ordered, 0.9),
        "step_ms_p99": quantile(ordered, 0.99) if len(ordered) >= P99_ITERATIONS else None,
        "step_ms_max": ordered[-1],
    }


def row_of(
    context: Context,
    place: int,
    member: Member,
    report: Report | str,
    hello: Hello | None,
    attached: bool,
) -> dict[str, Cell]:
    """The row of one member."""
    window, spec = context.window, WORKLOADS[member.tenant]
    done = report if isinstance(report, Report) else None
    row: dict[str, Cell] = {
        **_of_window(context),
        "tenant": member.tenant,
        "kind": spec.kind,
        "family": spec.family,
        "batch": spec.batch,
        "precision": spec.precision,
        "cuda_graph": spec.graph,
        "share_pct": member.percent,
        "sm_count_seen": hello.sm_count if hello is not None else None,
        "mem_used_mb": done.memory_mib if done else None,
        "priority": member.priority,
        "offered_rps": member.rate or None,
        "t_start_ns": done.t_start_ns if done else None,
        "cpu_util": done.cpu_util if done else None,
        "launches": done.launches if done else None,
        "graph_launches": done.graph_launches if done else None,
        **times(done.durations_ms if done else ()),
        **_of_device(context.gauge),
        "attached": attached,
        "order": window.id,
    }
    if done and done.durations_ms:
        row["throughput"] = len(done.durations_ms) * spec.batch / window.measured_s
    row["error"] = _error(row, report, hello, frozen=window.freeze and place > 0)
    return row


def _of_window(context: Context) -> dict[str, Cell]:
    window, facts = context.window, context.facts
    return {
        "run_id": context.options_run,
        "gpu_uuid": facts.gpu_uuid,
        "gpu_name": facts.gpu_name,
        "driver": facts.driver,
        "cuda": facts.cuda,
        "mps_mode": context.mode,
        "window_id": window.id,
        "block": window.block,
        "seed": context.seed,
        "dur_s": window.measured_s,
        "tenants": ";".join(f"{one.tenant}@{one.percent}" for one in window.members),
    }


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _of_device(gauge: Gauge) -> dict[str, Cell]:
    return {
        **gauge.counters,
        "sm_clock": _mean(gauge.sm_clock),
        "mem_clock": _mean(gauge.mem_clock),
        "power_w": _mean(gauge.power_w),
        "temp": _mean(gauge.temp),
        "throttle_mask": gauge.throttle_mask,
    }


def _error(row: dict[str, Cell], report: Report | str, hello: Hello | None, *, frozen: bool) -> str:
    """Why a row is not used; empty = it may be."""
    if isinstance(report, str):
        return report
    if hello is not None and hello.error:
        return hello.error
    if report.error:
        return report.error
    if frozen:
        return "frozen on purpose"
    mask = row["throttle_mask"]
    if isinstance(mask, int) and mask & SPOILS:
        return f"throttled: {mask:#x}"
    iterations = row["iters"]
    if isinstance(iterations, int) and iterations < LEAST_ITERATIONS:
        return f"{iterations} iterations, {LEAST_ITERATIONS} are needed"
    return ""
