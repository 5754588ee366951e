# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Speeds per accelerator and op tables as JSON, both ways; what was written reads back equal.

It must never turn an estimate into a measurement: the source travels with every number.
"""

from __future__ import annotations

from typing import Final

from ullage.api.codec import derived
from ullage.api.contract import WireError, section
from ullage.api.numbers import number
from ullage.cluster.codecs.objects import within
from ullage.cluster.records.profile import FORMATS, OpTable
from ullage.ports import JsonObject

_TABLE: Final = derived(OpTable)
op_table_to_wire = _TABLE.write


def op_table_of(spec: JsonObject) -> OpTable | None:
    """``spec.opTable`` of a WorkloadProfile, rows by index; ``None`` without one.

    Raises:
        WireError: a column is missing or of the wrong type.
    """
    if not spec.get("opTable"):
        return None
    with within("opTable"):
        return _TABLE.read(section(spec, "opTable"))


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
