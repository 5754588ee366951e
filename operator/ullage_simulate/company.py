# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Models of an operator that has measured the pairs of a table: one per type.

The exact numbers of the table, nothing fitted: a missing pair is unknown, an infeasible one has
zero speed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import numpy as np

from ullage.engines.admission.model import STEPS, Cells, LearnedModel
from ullage.engines.admission.prior import base, side_of
from ullage.engines.admission.records import ClassProfile, Fingerprint, Group, Rung
from ullage_simulate.founding import class_of
from ullage_simulate.speeds import SpeedTable
from ullage_simulate.trace import TraceJob

STALLED: Final = 1000.0
"""Slowdown of a pair marked infeasible in the table."""
_SURE_SD: Final = 0.03
"""Spread of a log slowdown that was measured (as of a lone tenant)."""


def models_of(
    table: SpeedTable, jobs: Iterable[TraceJob], types: Iterable[str], scope: str
) -> dict[str, LearnedModel]:
    """A model of each type that predicts exactly the table's values of pairs.

    Args:
        table: Speeds alone and side by side.
        jobs: Jobs; only those of one device count.
        types: Types of devices.
        scope: Scope of the classes, as in admission.
    """
    kinds = {f"{scope}/{class_of(job)}": job.kind for job in jobs if job.gang == 1}
    names = sorted(kinds)
    full = {
        name: ClassProfile(workload_class=name, fingerprint=Fingerprint(sm=1.0)) for name in names
    }
    plain = _plain()
    models: dict[str, LearnedModel] = {}
    for on in types:
        residual = np.full((len(names), STEPS, len(names), STEPS), np.nan, np.float32)
        for row, name in enumerate(names):
            for column, other in enumerate(names):
                slowdown = _measured(table, kinds[name], kinds[other], on)
                if slowdown is not None:
                    residual[row, :, column, :] = math.log(slowdown) - plain
        cells = Cells(
            index={name: at for at, name in enumerate(names)},
            mean=residual,
            sd=np.full_like(residual, _SURE_SD),
        )
        rungs = dict.fromkeys(Group, Rung.GP)
        models[on] = LearnedModel(accelerator=on, classes=full, cells=cells, rungs=rungs)
    return models


def _plain() -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Log slowdown of a whole-device tenant beside another, by steps of both shares."""
    sides = [
        side_of(ClassProfile(workload_class="", fingerprint=Fingerprint(sm=1.0)), 100 * at // STEPS)
        for at in range(1, STEPS + 1)
    ]
    return np.array([[base((side, other))[0][0] for other in sides] for side in sides])


def _measured(table: SpeedTable, kind: str, other: str, on: str) -> float | None:
    """Slowdown of a step of a kind beside another; ``None`` = not in the table."""
    if on not in table.beside.get((min(kind, other), max(kind, other)), {}):
        return None
    return min(table.slowdown(kind, other, on), STALLED)
