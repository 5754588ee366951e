# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What is measured of a class alone, as standardised numbers that a kernel can compare.

Only what was measured for at least half of the classes takes part; a gap is filled with the mean,
which says nothing either way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from ullage.engines.admission.prior import check_fingerprint
from ullage.engines.admission.records import ClassProfile, Fingerprint

Floats = NDArray[np.float64]

_LOGS = {"launches_per_s", "pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s", "peak_memory_mib"}


def class_features(profiles: Sequence[ClassProfile]) -> Floats:
    """One row a class: log time alone, log batch, the fingerprint, and its family.

    Raises:
        ValueError: a measured value is negative or not finite.
    """
    columns = [
        _column([_log(one.curve.seconds(1.0)) if one.curve else None for one in profiles]),
        _column([_log(one.batch) if one.batch else None for one in profiles]),
    ]
    for one in profiles:
        check_fingerprint(one.klass, one.fingerprint)
    for field in fields(Fingerprint):
        values = [getattr(one.fingerprint, field.name) for one in profiles]
        if field.name in _LOGS:
            values = [None if value is None else math.log1p(value) for value in values]
        columns.append(_column(values))
    shared = {one.family for one in profiles if one.family}
    columns += [
        _column([float(one.family == family) for one in profiles]) for family in sorted(shared)
    ]
    kept = [column for column in columns if column is not None]
    return np.stack(kept, axis=1) if kept else np.zeros((len(profiles), 0))


def _log(value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"a time or a batch must be a positive number, not {value:g}")
    return math.log(value)


def _column(values: Sequence[float | None]) -> Floats | None:
    """Standardised; ``None`` where it is mostly unmeasured or the same for all."""
    known = np.array([value for value in values if value is not None], float)
    if 2 * len(known) < len(values) or not len(known) or float(np.ptp(known)) == 0.0:
        return None
    mean, spread = float(known.mean()), float(known.std())
    return np.array([0.0 if value is None else (value - mean) / spread for value in values])
