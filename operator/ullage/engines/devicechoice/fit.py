# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Op times of one type of device as non-negative least squares, one fit per kind of op.

Absolute error, unweighted: relative weights bias the sum of a network by a fifth and more. It must
never choose its features on the rows that evaluate it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ullage.engines.devicechoice.features import DESIGNS, Design, Floats, LayerOp, TimedOp
from ullage.engines.devicechoice.intervals import factor_of

HEAVY_PART: Final = 1.0
"""Fraction of the measured time covered by kinds with a separate fit; the rest are medians.

1 = every kind with enough rows: a fit is cheap, and the sweep of the bench finds nothing better.
"""
FEWEST_ROWS: Final = 5
"""Minimum of rows to fit a kind: with fewer it would interpolate noise."""
LEAST_ERROR: Final = -0.99
"""An estimate of zero counts as a hundredth."""

Network = tuple[TimedOp, ...]
Networks = Mapping[str, Network]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpLine:
    """Non-negative coefficients of one kind of op, forward and backward.

    Attributes:
        forward: Seconds per unit of each column of the design.
        backward: The same for the backward pass.
        rows: Number of ops in the fit.
    """

    forward: tuple[float, ...]
    backward: tuple[float, ...]
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTimes:
    """Op times of one type of device.

    Attributes:
        design: Features.
        lines: Fits per key of the design, and per bare op type for unmeasured kernels.
        light_s: Median forward + backward seconds of an op without a fit, on the device.
        cpu_s: Median seconds of an op on the host.
        rows: Ops seen.
    """

    design: Design
    lines: Mapping[str, OpLine]
    light_s: float
    cpu_s: float
    rows: int

    def line(self, op: LayerOp) -> OpLine | None:
        """The fit for an op; ``None`` = it counts as light."""
        return self.lines.get(self.design.key(op)) or self.lines.get(op.kind)

    def heavy_s(self, op: LayerOp) -> float | None:
        """Forward + backward seconds of one execution, ``None`` without a fit."""
        line = self.line(op)
        if line is None:
            return None
        row = self.design.row(op)
        both = zip(row, line.forward, line.backward, strict=True)
        return sum(value * (ahead + back) for value, ahead, back in both)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Timed ops as columns of a design; a row represents ``count`` executions."""

    kinds: NDArray[np.str_]
    keys: NDArray[np.str_]
    columns: Floats
    forward_s: Floats
    backward_s: Floats
    count: Floats
    on_cpu: NDArray[np.bool_]

    @classmethod
    def of(cls, timed: Network, design: Design) -> _Rows:
        """The rows of a network with at least one op."""
        return cls(
            kinds=np.array([row.op.kind for row in timed], np.str_),
            keys=np.array([design.key(row.op) for row in timed], np.str_),
            columns=np.array([design.row(row.op) for row in timed]),
            forward_s=np.array([row.forward_s for row in timed]),
            backward_s=np.array([row.backward_s for row in timed]),
            count=np.array([row.op.count for row in timed], np.float64),
            on_cpu=np.array([row.op.on_cpu for row in timed], np.bool_),
        )

    @classmethod
    def joined(cls, parts: Sequence[_Rows]) -> _Rows:
        """The rows of all parts, at least one."""
        columns = {
            column.name: np.concatenate([getattr(part, column.name) for part in parts])
            for column in fields(cls)
        }
        return cls(**columns)

    def where(self, chosen: NDArray[np.bool_]) -> _Rows:
        """The chosen rows."""
        return _Rows(**{column.name: getattr(self, column.name)[chosen] for column in fields(self)})

    @property
    def total_s(self) -> float:
        """Seconds of all executions."""
        return float((self.forward_s + self.backward_s) @ self.count)


def fit_op_times(
    networks: Sequence[Network], design: Design, *, heavy_part: float = HEAVY_PART
) -> OpTimes:
    """Fit the ops of measured networks, all on one type of device.

    An op that a step runs n times counts as n rows of its time.

    Args:
        networks: Op tables with times.
        design: Features.
        heavy_part: Fraction of the time, 0 to 1, that fitted kinds of op cover.

    Raises:
        ValueError: nothing was measured, or ``heavy_part`` is out of range.
    """
    parts = [_Rows.of(network, design) for network in networks if network]
    return _fitted(parts, design, heavy_part)


def _fitted(parts: Sequence[_Rows], design: Design, heavy_part: float) -> OpTimes:
    if not 0 < heavy_part <= 1:
        raise ValueError(f"heavy_part must be above 0 and at most 1, not {heavy_part}")
    rows = _Rows.joined(parts) if parts else None
    if rows is None or rows.on_cpu.all():
        raise ValueError("no op ran on a device: give at least one measured network")
    device = rows.where(~rows.on_cpu)
    by_kind = {str(kind): device.where(device.kinds == kind) for kind in np.unique(device.kinds)}
    heavy = _heavy(by_kind, heavy_part)
    lines = {kind: _line(by_kind[kind]) for kind in heavy}
    for kind in heavy:
        keys = np.unique(by_kind[kind].keys).tolist()
        for key in keys if len(keys) > 1 else ():
            mine = by_kind[kind].where(by_kind[kind].keys == key)
            if mine.count.sum() >= FEWEST_ROWS:
                lines[key] = _line(mine)
    light = ~np.isin(device.kinds, sorted(heavy))
    return OpTimes(
        design=design,
        lines=lines,
        light_s=_median(device.where(light)),
        cpu_s=_median(rows.where(rows.on_cpu)),
        rows=int(rows.count.sum()),
    )


def _heavy(by_kind: Mapping[str, _Rows], part: float) -> frozenset[str]:
    """Kinds by falling total time until they cover the fraction; sparse ones are left out."""
    total = {kind: rows.total_s for kind, rows in by_kind.items()}
    left = part * sum(total.values())
    heavy: set[str] = set()
    for kind in sorted(total, key=lambda kind: (-total[kind], kind)):
        if left <= 0:
            break
        left -= total[kind]
        if by_kind[kind].count.sum() >= FEWEST_ROWS:
            heavy.add(kind)
    return frozenset(heavy)


def _median(rows: _Rows) -> float:
    """Median seconds of an execution; 0 without any."""
    if not len(rows.count):
        return 0.0
    took = rows.forward_s + rows.backward_s
    order = np.argsort(took)
    up_to = np.cumsum(rows.count[order])
    middle = (up_to[-1] - 1) // 2 + 1, up_to[-1] // 2 + 1
    return float(took[order][np.searchsorted(up_to, middle)].mean())


def _line(rows: _Rows) -> OpLine:
    from scipy.optimize import nnls  # a slow import that reading does not need

    # the mean of n equal rows, with n times the weight, has the same least squares
    weight = np.sqrt(rows.count)
    scale = np.maximum(rows.columns.max(axis=0), 1e-300)
    table = rows.columns / scale * weight[:, None]

    def solved(times: Floats) -> tuple[float, ...]:
        if not times.any():
            return (0.0,) * len(scale)
        coefficients: Floats = nnls(table, times * weight)[0] / scale
        return tuple(coefficients.tolist())

    return OpLine(
        forward=solved(rows.forward_s),
        backward=solved(rows.backward_s),
        rows=int(rows.count.sum()),
    )


def compute_s(times: OpTimes, ops: Sequence[LayerOp]) -> float:
    """Seconds of all ops of a step: fits, medians of light ops, medians of the host's ops.

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
    return sum((row.forward_s + row.backward_s) * row.op.count for row in network)


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
        group: Groups that are left out together; the network alone by default.
        heavy_part: As in ``fit_op_times``.

    Returns:
        Error by network, without unit.
    """
    parts = {name: _Rows.of(networks[name], design) for name in sorted(networks)}
    errors: dict[str, float] = {}
    for name in parts:
        kept = [rows for network, rows in parts.items() if group(network) != group(name)]
        if kept:
            times = _fitted(kept, design, heavy_part)
            predicted_s = compute_s(times, [row.op for row in networks[name]])
            errors[name] = predicted_s / measured_s(networks[name]) - 1.0
    return errors


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedOpTimes:
    """Op times of one type of device, with the best design.

    Attributes:
        times: The fits.
        networks: Op tables of the fits.
        errors: predicted / measured - 1 of left-out networks in that design.
    """

    times: OpTimes
    networks: int
    errors: Mapping[str, float]

    @property
    def factor(self) -> float:
        """Factor that bounds the errors of left-out networks, at the level of intervals."""
        return factor_of([max(error, LEAST_ERROR) for error in self.errors.values()])


def learn_op_times(
    networks: Networks,
    designs: Sequence[Design] = DESIGNS,
    *,
    group: Callable[[str], str] = str,
) -> LearnedOpTimes:
    """Fit in the design with the least mean absolute error of left-out networks among these.

    With one network none can be left out, and the first design is taken.

    Args:
        networks: Measured op tables by name, all on one type of device.
        designs: Sets of features to choose from.
        group: Names the group that is left out together for the errors, from the name of a network.
            The design is always chosen by single networks: more folds scatter less.

    Raises:
        ValueError: no designs, or nothing was measured.
    """
    if not designs:
        raise ValueError("give at least one design to choose from")
    tried = [(design, left_out_errors(networks, design)) for design in designs]
    design, alone = min(tried, key=lambda attempt: _loss(attempt[1]))
    apart = len({group(name) for name in networks}) == len(networks)
    return LearnedOpTimes(
        times=fit_op_times([networks[name] for name in sorted(networks)], design),
        networks=len(networks),
        errors=alone if apart else left_out_errors(networks, design, group=group),
    )


def _loss(errors: Mapping[str, float]) -> float:
    return float(np.mean(np.abs(list(errors.values())))) if errors else 0.0
