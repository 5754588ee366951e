# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Solo references: the median of the same run's windows alone, never of another run or GPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from bench.gpu.schema import Cell

Key = tuple[str, str, int]


def solo_medians(rows: Iterable[tuple[str, str, int, float]]) -> dict[Key, float]:
    """Median time of (run, tenant, percent, ms) rows that ran alone."""
    times: dict[Key, list[float]] = {}
    for run, tenant, percent, ms in rows:
        times.setdefault((run, tenant, percent), []).append(ms)
    return {key: median(found) for key, found in times.items()}


def fill_references(rows: Sequence[dict[str, Cell]]) -> list[dict[str, Cell]]:
    """The rows with references, slowdown and normalised throughput where they are known."""
    solo = solo_medians(
        (str(row["run_id"]), str(row["tenant"]), _percent(row), mean)
        for row in rows
        if row["block"] in ("solo", "time-slicing solo")
        and row["attached"] is True
        and not row["error"]
        and isinstance(mean := row.get("step_ms_mean"), float)
    )
    found = []
    for row in rows:
        full = dict(row)
        run, tenant = str(row["run_id"]), str(row["tenant"])
        full["solo_ref_ms"] = solo.get((run, tenant, _percent(row)))
        full["solo100_ref_ms"] = whole = solo.get((run, tenant, 100))
        mean = row.get("step_ms_mean")
        if whole and isinstance(mean, float) and not row["offered_rps"]:
            full["slowdown"], full["norm_tput"] = mean / whole, whole / mean
        found.append(full)
    return found


def _percent(row: dict[str, Cell]) -> int:
    found = row["share_pct"]
    assert isinstance(found, int)
    return found
