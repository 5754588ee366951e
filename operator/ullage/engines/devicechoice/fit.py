# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Op times of one type of device as non-negative least squares, one fit per kind of op.

Absolute error, unweighted: relative weights bias the sum of a network by a fifth and more. It must
never choose its features on the rows that it is judged by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ullage.engines.devicechoice.features import Design, Floats, Op, TimedOp

HEAVY_PART: Final = 1.0
"""Part of the measured time that kinds with a fit of their own cover; the rest are medians.

1 = every kind with enough rows: a fit is cheap, and the sweep of the bench finds nothing better.
"""
FEWEST_ROWS: Final = 5
"""A kind with fewer rows is not fitted: it would be an interpolation of its own noise."""

Network = tuple[TimedOp, ...]
Networks = Mapping[str, Network]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Non-negative coefficients of one kind of op, forward and backward.

    Attributes:
        forward: Seconds per unit of each column of the design.
        backward: The same for the backward pass.
        rows: Ops that it was fitted on.
    """

    forward: tuple[float, ...]
    backward: tuple[float, ...]
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTimes:
    """Op times of one type of device.

    Attributes:
        design: Features.
        lines: Fits per key of the design, and per bare op type for kernels no one measured.
        light_s: Median forward + backward seconds of an op without a fit, on the device.
        cpu_s: Median seconds of an op on the host.
        rows: Ops seen.
    """

    design: Design
    lines: Mapping[str, Line]
    light_s: float
    cpu_s: float
    rows: int

    def line(self, op: Op) -> Line | None:
        """The fit for an op; ``None`` = it counts as light."""
        return self.lines.get(self.design.key(op)) or self.lines.get(op.kind)

    def heavy_s(self, op: Op) -> float | None:
        """Forward + backward seconds of one execution, ``None`` without a fit."""
        line = self.line(op)
        if line is None:
            return None
        row = self.design.row(op)
        both = zip(row, line.forward, line.backward, strict=True)
        return sum(value * (ahead + back) for value, ahead, back in both)


def fit_op_times(
    networks: Sequence[Network], design: Design, *, heavy_part: float = HEAVY_PART
) -> OpTimes:
    """Fit the ops of measured networks, all on one type of device.

    Args:
        networks: Op tables with times.
        design: Features.
        heavy_part: Part of the time, 0 to 1, that fitted kinds of op cover.

    Raises:
        ValueError: nothing was measured, or ``heavy_part`` is not a part.
    """
    if not 0 < heavy_part <= 1:
        raise ValueError(f"heavy_part must be above 0 and at most 1, not {heavy_part}")
    timed = [one for network in networks for one in network]
    device = [one for one in timed if not one.op.on_cpu]
    if not device:
        raise ValueError("no op ran on a device: give at least one measured network")
    by_kind = _grouped(device, lambda op: op.kind)
    heavy = _heavy(by_kind, heavy_part)
    lines = {kind: _line(by_kind[kind], design) for kind in heavy}
    kernels = _grouped([one for one in device if one.op.kind in heavy], design.key)
    lines |= {key: _line(rows, design) for key, rows in kernels.items() if len(rows) >= FEWEST_ROWS}
    light = [one for one in device if one.op.kind not in heavy]
    return OpTimes(
        design=design,
        lines=lines,
        light_s=_median(light),
        cpu_s=_median([one for one in timed if one.op.on_cpu]),
        rows=len(timed),
    )


def _grouped(timed: Sequence[TimedOp], key: Callable[[Op], str]) -> dict[str, list[TimedOp]]:
    groups: dict[str, list[TimedOp]] = {}
    for one in timed:
        groups.setdefault(key(one.op), []).append(one)
    return groups


def _heavy(by_kind: Mapping[str, Sequence[TimedOp]], part: float) -> frozenset[str]:
    """Kinds by falling total time until they cover the part; sparse ones stay out."""
    total = {
        kind: sum((row.forward_s + row.backward_s) * row.op.count for row in rows)
        for kind, rows in by_kind.items()
    }
    left = part * sum(total.values())
    heavy: set[str] = set()
    for kind in sorted(total, key=lambda kind: (-total[kind], kind)):
        if left <= 0:
            break
        left -= total[kind]
        if len(by_kind[kind]) >= FEWEST_ROWS:
            heavy.add(kind)
    return frozenset(heavy)


def _median(timed: Sequence[TimedOp]) -> float:
    return float(np.median([one.forward_s + one.backward_s for one in timed])) if timed else 0.0


def _line(timed: Sequence[TimedOp], design: Design) -> Line:
    from scipy.optimize import nnls  # imports are slow, and reading needs none of it

    table = np.array([design.row(one.op) for one in timed])
    scale = np.maximum(table.max(axis=0), 1e-300)

    def solved(times: Sequence[float]) -> tuple[float, ...]:
        coefficients: Floats = nnls(table / scale, np.array(times))[0] / scale
        return tuple(coefficients.tolist())

    return Line(
        forward=solved([one.forward_s for one in timed]),
        backward=solved([one.backward_s for one in timed]),
        rows=len(timed),
    )


def compute_s(times: OpTimes, ops: Sequence[Op]) -> float:
    """Seconds of all ops of a step: fits, medians of light ops, medians of the host's.

    Args:
        times: Fitted times of one type.
        ops: Op table of one device's batch.
    """
    total = 0.0
    for op in ops:
        each = times.cpu_s if op.on_cpu else times.heavy_s(op)
        total += op.count * (times.light_s if each is None else each)
    return total


def measured_s(network: Network) -> float:
    """Measured seconds of all ops of a step."""
    return sum((one.forward_s + one.backward_s) * one.op.count for one in network)


def left_out_errors(
    networks: Networks,
    design: Design,
    *,
    group: Callable[[str], str] = str,
    heavy_part: float = HEAVY_PART,
) -> dict[str, float]:
    """Predicted / measured - 1 of every network, fitted without its group.

    Args:
        networks: Name -> measured op table.
        design: Features.
        group: What is left out together; the network alone unless told.
        heavy_part: As in ``fit_op_times``.

    Returns:
        Error by network, without unit.
    """
    errors: dict[str, float] = {}
    for name in sorted(networks):
        kept = [networks[network] for network in sorted(networks) if group(network) != group(name)]
        if kept:
            times = fit_op_times(kept, design, heavy_part=heavy_part)
            said = compute_s(times, [one.op for one in networks[name]])
            errors[name] = said / measured_s(networks[name]) - 1.0
    return errors
