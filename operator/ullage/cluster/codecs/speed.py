# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Speeds per accelerator and op tables as JSON, both ways; what was written reads back equal.

It must never turn an estimate into a measurement: the source travels with every number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.contract import WireError, bounded, objects, section, text, whole
from ullage.api.numbers import number, six_digits
from ullage.cluster.codecs.objects import optional_text, within
from ullage.cluster.records.profile import OpRow, OpTable
from ullage.ports import JsonObject

FORMATS: Final = ("FP64", "FP32", "TF32", "FP16", "BF16", "FP8", "INT8")
"""Number formats that peak rates and op tables are stated for."""
_OP_COLUMNS: Final[Mapping[str, str]] = {
    "flops": "flops",
    "bytesRead": "bytes_read",
    "bytesWritten": "bytes_written",
    "seconds": "seconds",
}


def op_table_to_wire(table: OpTable) -> dict[str, object]:
    """An op table as the API stores it."""
    ops: list[object] = []
    for index, row in enumerate(table.ops):
        numbers = {name: getattr(row, attribute) for name, attribute in _OP_COLUMNS.items()}
        ops.append(
            {"index": index, "type": row.type, "count": row.count}
            | {name: six_digits(one) for name, one in numbers.items() if one is not None}
        )
    body: dict[str, object] = {"accelerator": table.accelerator} if table.accelerator else {}
    body |= {"precision": table.precision} if table.precision else {}
    return body | {"ops": ops}


def op_table_of(spec: JsonObject) -> OpTable | None:
    """``spec.opTable`` of a WorkloadProfile, rows by index; ``None`` without one.

    Raises:
        WireError: a column is missing or of the wrong type.
    """
    if not spec.get("opTable"):
        return None
    with within("opTable"):
        raw = section(spec, "opTable")
        precision = optional_text(raw, "precision")
        if precision and precision not in FORMATS:
            raise WireError(f"precision: {precision!r} is none of {', '.join(FORMATS)}")
        rows = sorted(objects(raw, "ops"), key=lambda row: whole(row, "index"))
        with within("ops"):
            ops = tuple(_op(row) for row in rows)
        return OpTable(ops=ops, accelerator=optional_text(raw, "accelerator"), precision=precision)


def _op(raw: JsonObject) -> OpRow:
    columns = {attribute: number(raw, name) for name, attribute in _OP_COLUMNS.items()}
    count = bounded(raw, "count", 1, 10**6, 1)
    return OpRow(type=text(raw, "type"), count=count, **columns)


def rate_of(raw: JsonObject, field: str) -> float | None:
    """A rate of a device, at least 1 a second; absent or null is ``None``.

    Raises:
        WireError: it is something else.
    """
    rate = number(raw, field)
    if rate is not None and rate < 1:
        raise WireError(f"{field}: {rate:g} must be at least 1")
    return rate


def peak_flops_of(spec: JsonObject) -> tuple[tuple[str, float], ...]:
    """``spec.peakFlops`` of a DeviceProfile by number format, sorted.

    Raises:
        WireError: a rate is no number of at least 0.
    """
    with within("peakFlops"):
        raw = section(spec, "peakFlops")
        rates = {name: rate_of(raw, name.lower()) for name in FORMATS}
    return tuple(sorted((name, rate) for name, rate in rates.items() if rate))
