# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Op table of a class of work: what one step runs, as a trace tells it.

Operations of one type and size are one row. Absent numbers were not in the trace, which is not 0.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from ullage.api.base import Count, Model, list_map
from ullage.api.gpurequest import Accelerator

MAX_OPS = 256

_Amount = Annotated[float, Field(ge=0, le=1e18)]


class Precision(StrEnum):
    """Number format of the arithmetic."""

    FP64 = "FP64"
    FP32 = "FP32"
    TF32 = "TF32"
    FP16 = "FP16"
    BF16 = "BF16"
    FP8 = "FP8"
    INT8 = "INT8"


class Op(Model):
    """Operations of one type and size in a step."""

    index: Count
    """Which row, from 0."""
    type: Annotated[str, Field(min_length=1, max_length=128)]
    """Type of the operation, as the framework calls it."""
    count: Annotated[int, Field(ge=1, le=10**6, json_schema_extra={"format": "int32"})] = 1
    """How often a step runs it."""
    flops: _Amount | None = None
    """Floating-point operations of one execution."""
    bytes_read: _Amount | None = None
    """Bytes that one execution reads."""
    bytes_written: _Amount | None = None
    """Bytes that one execution writes."""
    seconds: _Amount | None = None
    """Time of one execution on the device."""


class OpTable(Model):
    """The operations of one step of one member."""

    accelerator: Accelerator | None = None
    """Accelerator key of the device that the times were taken on; absent = without times."""
    precision: Precision | None = None
    """Number format of most of the arithmetic."""
    ops: Annotated[
        tuple[Op, ...],
        Field(min_length=1, max_length=MAX_OPS, json_schema_extra=list_map("index")),
    ]
    """The operations."""
