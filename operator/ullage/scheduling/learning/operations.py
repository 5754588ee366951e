# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Estimates from the ops of a step: by fitted op times, and by the peak rates of device types.

Bounds must never be narrower than the errors of left-out classes; a roofline is never certain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

from ullage.cluster.records.profile import DeviceProfileRecord, OpRow, OpTable, ProfileRecord
from ullage.engines.admission.records import Fingerprint
from ullage.engines.devicechoice.features import LayerOp, TimedOp
from ullage.engines.devicechoice.fit import (
    LearnedOpTimes,
    Network,
    compute_s,
    learn_op_times,
    measured_s,
)
from ullage.engines.devicechoice.intervals import Interval, around
from ullage.engines.devicechoice.roofline import RooflineDevice, correction_of, roofline_step
from ullage.scheduling.learning.throughput import family_of
from ullage.scheduling.prediction.rows import solo_rows
from ullage.scheduling.times import SHORTEST_S

FEWEST_NETWORKS: Final = 3
"""Minimum of op tables on a type for a fit: one is left out to measure the error."""
MOST_NETWORKS: Final = 12
FITS_MOST: Final = 8
"""Number of cached fits: each keeps its op tables alive."""
SMALLEST: Final = 1.0
"""Bytes, or operations."""
OPS_FACTOR: Final = 1.5
COUNTERS_FACTOR: Final = 2.0
RATES_FACTOR: Final = 2.5
"""Bounds of a roofline with an op table, with counters, with rates alone (our start values)."""
BALANCED: Final = ("FP16", "BF16", "TF32", "FP32", "FP64", "FP8", "INT8")
"""Number formats in order of preference for work that uses tensor cores."""
SCALAR: Final = ("FP32", "TF32", "FP16", "BF16", "FP64", "FP8", "INT8")
"""The same for other work."""

OpTables = tuple[tuple[str, str, Network], ...]
"""Class, the group that is left out with it to measure errors, and op table; sorted by class."""
OpTimeFits = Callable[[OpTables], LearnedOpTimes]


def op_time_fits() -> OpTimeFits:
    """Fits op times on op tables by class; the last few results are cached."""
    return lru_cache(FITS_MOST)(_learned)


def _learned(tables: OpTables) -> LearnedOpTimes:
    groups = {name: group for name, group, _ in tables}
    return learn_op_times({name: network for name, _, network in tables}, group=groups.__getitem__)


def timed_on(profiles: Sequence[ProfileRecord], accelerator: str) -> OpTables | None:
    """Op tables timed on a type, with family; ``None`` = too few for a fit."""
    networks: dict[str, tuple[str, str, Network]] = {}
    for profile in profiles:
        table = profile.op_table
        if table is None or table.accelerator != accelerator:
            continue
        network = _network(table)
        if measured_s(network) > 0 and len(networks) < MOST_NETWORKS:
            name = profile.workload_class
            networks[name] = (name, family_of(profile), network)
    if len(networks) < FEWEST_NETWORKS:
        return None
    return tuple(networks[name] for name in sorted(networks))


def predicted(fit: LearnedOpTimes, profile: ProfileRecord, step_s: float | None) -> Interval | None:
    """A step of the class on the fitted type; ``None`` where the fit does not cover its ops.

    Args:
        fit: Op times of the type.
        profile: The class, with an op table.
        step_s: Its whole step on the type of the timed table; time beyond its ops there (the host)
            is added. ``None`` = unknown.
    """
    table = profile.op_table
    if table is None:
        return None
    compute = compute_s(fit.times, ops_of(table))
    if not compute > 0:
        return None
    network = _network(table)
    beyond = max(0.0, step_s - measured_s(network)) if step_s and network else 0.0
    return around(compute + beyond, fit.factor)


def ops_of(table: OpTable) -> list[LayerOp]:
    """The rows as features; values missing in the trace count as 0."""
    return [_op(row) for row in table.ops]


def _network(table: OpTable) -> Network:
    timed = [(row, row.seconds) for row in table.ops if row.seconds is not None]
    return tuple(
        TimedOp(op=_op(row), forward_s=_from(SHORTEST_S, seconds), backward_s=0.0)
        for row, seconds in timed
    )


def _op(row: OpRow) -> LayerOp:
    parameters = _from(SMALLEST, row.parameter_bytes)
    return LayerOp(
        kind=row.type,
        kernel=row.kernel,
        input_bytes=_from(SMALLEST, (row.bytes_read or 0.0) - parameters),
        output_bytes=_from(SMALLEST, row.bytes_written),
        parameter_bytes=parameters,
        flops=_from(SMALLEST, row.flops),
        count=row.count,
    )


def _from(least: float, value: float | None) -> float:
    """A declared value; less than ``least`` counts as 0: it would overflow as a divisor."""
    return value if value is not None and value >= least else 0.0


def roofline(
    profile: ProfileRecord, devices: tuple[DeviceProfileRecord, DeviceProfileRecord], step_s: float
) -> Interval | None:
    """A step on the second type from one on the first, by peak rates.

    From the op table if there is one; else from the counters of the first type, as one op that
    keeps its units as busy; else the geometric mean of the ratios of both rates.

    Args:
        profile: The class.
        devices: The type with the known step, and the other.
        step_s: Seconds of the step on the first.
    """
    known_device, other_device = devices
    rows = solo_rows(profile, known_device.name)
    print_ = rows[-1].fingerprint if rows else Fingerprint()
    number = _number_format(profile, print_, devices)
    if number is None or not (known_device.memory_bytes_per_s and other_device.memory_bytes_per_s):
        return None
    first, second = _device(known_device), _device(other_device)
    ops = ops_of(profile.op_table) if profile.op_table is not None else []
    if any(op.flops or op.moved_bytes for op in ops):
        return around(_carried(first, second, ops, number, step_s), OPS_FACTOR)
    arithmetic = max(print_.tensor or 0.0, print_.fp32 or 0.0, print_.fp16 or 0.0)
    if print_.dram and arithmetic:
        op = LayerOp(
            kind="step",
            input_bytes=print_.dram * first.bytes_per_s * step_s,
            output_bytes=0.0,
            flops=arithmetic * first.peak(number) * step_s,
        )
        return around(_carried(first, second, [op], number, step_s), COUNTERS_FACTOR)
    compute = first.peak(number) / second.peak(number)
    memory = first.bytes_per_s / second.bytes_per_s
    spread = math.sqrt(max(compute, memory) / min(compute, memory))
    return around(step_s * math.sqrt(compute * memory), max(RATES_FACTOR, spread))


def _carried(
    first: RooflineDevice, second: RooflineDevice, ops: list[LayerOp], number: str, step_s: float
) -> float:
    correction = correction_of(first, ops, number, step_s)
    return roofline_step(second, ops, number, correction=correction).step_s


def _number_format(
    profile: ProfileRecord,
    print_: Fingerprint,
    devices: tuple[DeviceProfileRecord, DeviceProfileRecord],
) -> str | None:
    """The number format with a rate for both types: the table's own, else a likely one."""
    both = dict(devices[0].peak_flops).keys() & dict(devices[1].peak_flops).keys()
    format_ = profile.op_table.precision if profile.op_table is not None else ""
    order = BALANCED if (print_.tensor or 0.0) > (print_.fp32 or 0.0) else SCALAR
    return next((name for name in (format_, *order) if name in both), None)


def _device(record: DeviceProfileRecord) -> RooflineDevice:
    return RooflineDevice(
        accelerator=record.name,
        peak_flops=dict(record.peak_flops),
        bytes_per_s=record.memory_bytes_per_s,
        memory_bytes=float(record.memory_mib) * 2**20,
    )
