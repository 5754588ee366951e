# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Speeds per accelerator and op tables as JSON, both ways; what was written reads back equal.

It must never turn an estimate into a measurement: the source travels with every number.
"""

from __future__ import annotations

from typing import Final

from ullage.api.codec import derived
from ullage.api.readers import section
from ullage.cluster.codecs.objects import within
from ullage.cluster.records.profile import OpTable
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
