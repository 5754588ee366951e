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
        "inputs = repr((replace(profile, rows=0), ids[profile.workload_class])).encode()",
        "0 -> (1)",
    ): "a digest leaves the count of rows out; any constant does",
    (
        "operator/ullage/engines/admission/queue_map.py",
        "if busy <= 1 - quantile:",
        "busy <= 1 - quantile -> (busy < 1 - quantile)",
    ): "just there the wait at the quantile is 0",
    (
        "operator/ullage/engines/allocation/policies/finish_time.py",
        "if solution is None or reached < best:",
        "reached < best -> (reached <= best)",
    ): "of two points of the same ratio either is an answer",
    (
        "operator/ullage/engines/allocation/policies/makespan.py",
        "alone = float((left / shape.rate.max(axis=1)).max())",
        "left / shape.rate.max(axis=1) -> (left * shape.rate.max(axis=1))",
    ): "a unit of time: the answer is divided by it again",
    (
        "operator/ullage/cli/profiles.py",
        "if isinstance(given, dict) and isinstance(taken, dict):",
        "isinstance(given, dict) and isinstance(taken, dict)"
        " -> (isinstance(given, dict) or isinstance(taken, dict))",
    ): "the schema took one as the other: both are objects, or none is",
    (
        "operator/ullage/engines/admission/decision.py",
        "weighed.sort(key=lambda pair: (-round(pair[0].net / TOLERANCE), pair[0].percent))",
        "0 -> (1)",
    ): "an option and what it weighs have the same percent",
    (
        "operator/ullage/engines/admission/margin.py",
        "for tenant, mean, sd in zip(tenants, forecast.mean, forecast.sd, strict=True):",
        "True -> (False)",
    ): "a forecast has a number of each tenant",
    (
        "operator/ullage_simulate/choosers.py",
        "free[kept] = max(0, free[kept] - job.gang)",
        "max(0, free[kept] - job.gang) -> (min(0, free[kept] - job.gang))",
    ): "less is free than the job needs, and no one fits into less than nothing",
    (
        "operator/ullage/engines/devicechoice/fit.py",
        "return float(np.mean(np.abs(list(errors.values())))) if errors else 0.0",
        "0.0 -> (1.0)",
    ): "designs are compared with one another: all have errors, or none has",
    (
        "deviceplugin/ullage_node/telemetry/progress.py",
        "while len(self._marks) > 2 and _enough(self._marks[1], mark):",
        "len(self._marks) > 2 -> (len(self._marks) >= 2)",
    ): "of two marks the second is the newest, and never enough before itself",
    (
        "operator/ullage/scheduling/prediction/risk.py",
        "verdict.tenants[-1].percent if verdict.tenants else 0,",
        "verdict.tenants[-1].percent if verdict.tenants else 0"
        " -> (0 if verdict.tenants else verdict.tenants[-1].percent)",
    ): "beside others the text of a refusal says the share; only one for a job alone is read",
}
"""By file, the line, and what stands instead of what."""
