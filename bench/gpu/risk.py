# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Admission on left-out rows: how many are let in, how many of those break an objective.

The threshold of a pair comes from the other pairs. Violations and false rejections stand side by
side, always.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from bench.clopper_pearson import risk_bound
from bench.gpu.splits import FOLDS, Told
from ullage.engines.admission.calibration import Scored, band_of, fixed_sequence
from ullage.engines.admission.records import Group

OBJECTIVES: Final = (1.2, 1.5, 2.0)
EPS: Final = 0.05
CONFIDENCE: Final = 0.80
LEAST_SD: Final = 1e-6


def windows(told: Sequence[Told], objective: float) -> list[tuple[tuple[str, ...], Scored]]:
    """One scored co-location per window that has both its rows, with its pair."""
    by_window: dict[str, list[Told]] = {}
    for one in told:
        by_window.setdefault(one.row.window, []).append(one)
    limit, found = math.log(objective), []
    for name in sorted(by_window):
        both = by_window[name]
        if len(both) < 2:
            continue
        z = min((limit - one.mean) / max(LEAST_SD, one.sd) for one in both)
        violated = any(one.row.slowdown > objective for one in both)
        group, band = Group(max(one.group for one in both)), band_of(objective)
        pair = both[0].row.pair
        scored = Scored(z=z, violated=violated, group=group, band=band, pair=pair, trial=pair)
        found.append((pair, scored))
    return found


def table(told: Sequence[Told]) -> list[dict[str, object]]:
    """Rows of the selective-risk table, by objective and rule."""
    out = []
    for objective in OBJECTIVES:
        scored = windows(told, objective)
        pairs = sorted({pair for pair, _ in scored})
        fold = {pair: number % FOLDS for number, pair in enumerate(pairs)}
        for rule in ("point", "certified"):
            admitted = []
            for number in range(FOLDS):
                others = [one for pair, one in scored if fold[pair] != number]
                least = 0.0
                if rule == "certified":
                    least = fixed_sequence(others, eps=EPS, confidence=CONFIDENCE).value
                admitted += [one for pair, one in scored if fold[pair] == number and one.z >= least]
            out.append(_line(objective, rule, admitted, [one for _, one in scored]))
    return out


def _line(
    objective: float, rule: str, admitted: Sequence[Scored], everything: Sequence[Scored]
) -> dict[str, object]:
    violations = sum(one.violated for one in admitted)
    feasible = sum(not one.violated for one in everything)
    kept, count = len(admitted) - violations, len(admitted)
    return {
        "objective": objective,
        "rule": rule,
        "windows": len(everything),
        "feasible": feasible,
        "admitted": count,
        "violations": violations,
        "violated_percent": round(100 * violations / count, 2) if count else None,
        "violated_ci95": [
            round(100 * (1 - risk_bound(kept, count, 0.975)), 2),
            round(100 * risk_bound(violations, count, 0.975), 2),
        ] if count else None,
        "recall_percent": round(100 * kept / feasible, 2) if feasible else None,
        "false_rejections": feasible - kept,
    }  # fmt: skip
