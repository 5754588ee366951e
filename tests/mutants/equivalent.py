# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Drawn mutants that change nothing that anyone could see, each with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EQUIVALENT: Final[Mapping[tuple[str, str, str], str]] = {
    (
        "operator/ullage/scheduling/timeslicing/round_records.py",
        "ran_s = max(0.0, now - max(record.since, began)) if kind else 0.0",
        "0.0 -> (1.0)",
    ): "a second without a type is worth nothing",
    (
        "operator/ullage/engines/allocation/model.py",
        "return dict(zip(self.types, row.tolist(), strict=True))",
        "True -> (False)",
    ): "a row has a cell of each type",
    (
        "operator/ullage/engines/admission/learning.py",
        "repr((replace(one, rows=0), ids[one.workload_class])).encode() + features.tobytes()",
        "0 -> (1)",
    ): "a digest leaves the count of rows out; any constant does",
    (
        "operator/ullage/engines/admission/queue_map.py",
        "if busy <= 1 - quantile:",
        "busy <= 1 - quantile -> (busy < 1 - quantile)",
    ): "just there the wait at the quantile is 0",
    (
        "operator/ullage/engines/allocation/policies/finish_time.py",
        "if found is None or reached < best:",
        "reached < best -> (reached <= best)",
    ): "of two points of the same ratio either is an answer",
    (
        "operator/ullage/engines/allocation/policies/makespan.py",
        "alone = float((left / shape.rate.max(axis=1)).max())",
        "left / shape.rate.max(axis=1) -> (left * shape.rate.max(axis=1))",
    ): "a unit of time: the answer is divided by it again",
}
"""By file, the line, and what stands instead of what."""
