# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Estimates from what a step runs: fitted op times, and the peak rates of types of device.

It must never be surer than the errors of left-out classes show, and a roofline never sure at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ullage.cluster.records.profile import OpRow, OpTable, ProfileRecord
from ullage.cluster.records.snapshot import DeviceProfileRecord
from ullage.engines.admission.records import Fingerprint
from ullage.engines.devicechoice.features import Design, Op, Size, Split, TimedOp
from ullage.engines.devicechoice.fit import (
    Network,
    OpTimes,
    compute_s,
    fit_op_times,
    left_out_errors,
    measured_s,
)
from ullage.engines.devicechoice.intervals import Interval, around, factor_of
from ullage.engines.devicechoice.roofline import Device, correction_of, roofline_step
from ullage.scheduling.prediction.rows import solo_rows

FEWEST_NETWORKS: Final = 3
"""Op tables on a type from which op times are fitted: one is left out to see the error."""
MOST_NETWORKS: Final = 12
DESIGN: Final = Design(size=Size.SUM, split=Split.TYPE)
OPS_FACTOR: Final = 1.5
COUNTERS_FACTOR: Final = 2.0
RATES_FACTOR: Final = 2.5
"""Bounds of a roofline with an op table, with counters, with rates alone (our start values)."""
BALANCED: Final = ("FP16", "BF16", "TF32", "FP32", "FP64", "FP8", "INT8")
"""Number formats in the order in which one is guessed for work that runs tensor cores."""
SCALAR: Final = ("FP32", "TF32", "FP16", "BF16", "FP64", "FP8", "INT8")
"""The same for other work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Op times of a type of device.

    Attributes:
        times: The fits.
        networks: Op tables behind them.
        factor: Factor that left-out op tables stayed within.
    """

    times: OpTimes
    networks: int
    factor: float


def fitted(profiles: Sequence[ProfileRecord], accelerator: str) -> Fitted | None:
    """Op times fitted on the tables that were timed on a type; ``None`` = too few."""
    networks: dict[str, Network] = {}
    for profile in profiles:
        table = profile.op_table
        if table is None or table.accelerator != accelerator:
            continue
        network = _network(table)
        if measured_s(network) > 0 and len(networks) < MOST_NETWORKS:
            networks[profile.workload_class] = network
    if len(networks) < FEWEST_NETWORKS:
        return None
    errors = left_out_errors(networks, DESIGN)
    return Fitted(
        times=fit_op_times([networks[name] for name in sorted(networks)], DESIGN),
        networks=len(networks),
        factor=factor_of([max(error, -0.99) for error in errors.values()]),
    )


def predicted(fit: Fitted, profile: ProfileRecord, step_s: float | None) -> Interval | None:
    """A step of the class on the fitted type; ``None`` where the fit says nothing of its ops.

    Args:
        fit: Op times of the type.
        profile: The class, with an op table.
        step_s: Its whole step on the type that the table was timed on; what is beyond its ops
            there (the host) is added. ``None`` = not known.
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


def ops_of(table: OpTable) -> list[Op]:
    """The rows as features; what the trace did not say counts as nothing."""
    return [_op(row) for row in table.ops]


def _network(table: OpTable) -> Network:
    timed = [row for row in table.ops if row.seconds is not None]
    return tuple(
        TimedOp(op=_op(row), forward_s=row.seconds or 0.0, backward_s=0.0) for row in timed
    )


def _op(row: OpRow) -> Op:
    return Op(
        kind=row.type,
        input_bytes=row.bytes_read or 0.0,
        output_bytes=row.bytes_written or 0.0,
        flops=row.flops or 0.0,
        count=row.count,
    )


def roofline(
    profile: ProfileRecord, devices: tuple[DeviceProfileRecord, DeviceProfileRecord], step_s: float
) -> Interval | None:
    """A step on the second type from one on the first, by peak rates.

    From the op table where there is one; else from the counters of the first type, as one op that
    keeps its units as busy as they were; else the geometric mean of the ratios of both rates.

    Args:
        profile: The class.
        devices: The type where the step is known, and the other.
        step_s: Seconds of the step on the first.
    """
    here, there = devices
    seen = solo_rows(profile, here.name)
    print_ = seen[-1].fingerprint if seen else Fingerprint()
    number = _number_format(profile, print_, devices)
    if number is None or not (here.memory_bytes_per_s and there.memory_bytes_per_s):
        return None
    first, second = _device(here), _device(there)
    ops = ops_of(profile.op_table) if profile.op_table is not None else []
    if any(op.flops or op.moved_bytes for op in ops):
        return around(_carried(first, second, ops, number, step_s), OPS_FACTOR)
    arithmetic = max(print_.tensor or 0.0, print_.fp32 or 0.0, print_.fp16 or 0.0)
    if print_.dram and arithmetic:
        op = Op(
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


def _carried(first: Device, second: Device, ops: list[Op], number: str, step_s: float) -> float:
    correction = correction_of(first, ops, number, step_s)
    return roofline_step(second, ops, number, correction=correction).step_s


def _number_format(
    profile: ProfileRecord,
    print_: Fingerprint,
    devices: tuple[DeviceProfileRecord, DeviceProfileRecord],
) -> str | None:
    """The number format that both types have a rate for: the table's own, else a likely one."""
    both = dict(devices[0].peak_flops).keys() & dict(devices[1].peak_flops).keys()
    stated = profile.op_table.precision if profile.op_table is not None else ""
    order = BALANCED if (print_.tensor or 0.0) > (print_.fp32 or 0.0) else SCALAR
    return next((name for name in (stated, *order) if name in both), None)


def _device(record: DeviceProfileRecord) -> Device:
    return Device(
        accelerator=record.name,
        peak_flops=dict(record.peak_flops),
        bytes_per_s=record.memory_bytes_per_s,
        memory_bytes=float(record.memory_mib) * 2**20,
    )
