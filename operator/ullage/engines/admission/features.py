# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Measurements of classes alone, as standardised numbers that a kernel can compare.

Only figures measured for at least half of the classes are used; gaps are filled with the mean,
which is neutral.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from ullage.engines.admission.prior import check_fingerprint
from ullage.engines.admission.records import ClassProfile, Fingerprint

Floats = NDArray[np.float64]

_LOGS = {"launches_per_s", "pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s", "peak_memory_mib"}


def class_features(profiles: Sequence[ClassProfile]) -> Floats:
    """One row per class: log time alone, log batch, the fingerprint, and its family.

    Raises:
        ValueError: a measured value is negative or not finite.
    """
    # declarations of a class with rows would influence other classes, so they do not count
    profiles = [
        replace(profile, fingerprint=Fingerprint(), curve=None)
        if profile.declared and profile.rows
        else profile
        for profile in profiles
    ]
    measured = [not profile.declared for profile in profiles]
    times = [_log(profile.curve.seconds(1.0)) if profile.curve else None for profile in profiles]
    batches = [_log(profile.batch) if profile.batch else None for profile in profiles]
    columns = [_column(times, measured), _column(batches, measured)]
    for profile in profiles:
        check_fingerprint(profile.workload_class, profile.fingerprint)
    for field in fields(Fingerprint):
        values = [getattr(profile.fingerprint, field.name) for profile in profiles]
        if field.name in _LOGS:
            values = [None if value is None else math.log1p(value) for value in values]
        columns.append(_column(values, measured))
    shared = {profile.family for profile in profiles if profile.family and not profile.declared}
    columns += [
        _column([float(profile.family == family) for profile in profiles], measured)
        for family in sorted(shared)
    ]
    kept = [column for column in columns if column is not None]
    return np.stack(kept, axis=1) if kept else np.zeros((len(profiles), 0))


def _log(value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"a time or a batch must be a positive number, not {value:g}")
    return math.log(value)


def _column(values: Sequence[float | None], measured: Sequence[bool]) -> Floats | None:
    """Standardised; ``None`` where it is mostly unmeasured or the same for all.

    Declared values use the scale of the measured ones and never change it; without any measured
    value, the declared ones set the scale.
    """
    if not any(measured):
        measured = [True] * len(values)
    counted = [value for value, counts in zip(values, measured, strict=True) if counts]
    present = np.array([value for value in counted if value is not None], float)
    if 2 * len(present) < len(counted) or not len(present) or float(np.ptp(present)) == 0.0:
        return None
    mean, spread = float(present.mean()), float(present.std())
    return np.array([0.0 if value is None else (value - mean) / spread for value in values])
