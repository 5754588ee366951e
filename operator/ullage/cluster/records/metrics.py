# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Values of a metric by epoch, as a trial reports them, and as statuses keep them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

from ullage.api.environment import MOST_REPORT_BYTES, TRIAL_REPORT_HEADER
from ullage.api.readers import JsonObject, WireError, quoted, text
from ullage.api.wire_fields import INT32_MAX, NEEDED, Kind, Schema, between

MOST_EPOCH_VALUES: Final = 64
"""Epochs that one report or status holds, the newest ones."""
_EPOCH: Final = re.compile("[0-9]{1,6}")
_METRIC: Final = re.compile(r"-?[0-9]{1,17}(\.[0-9]{1,22})?(e[-+]?[0-9]{1,3})?")


def read_metric(literal: str) -> float | None:
    """A finite number as Python writes it; ``None`` = it is none."""
    if not _METRIC.fullmatch(literal):
        return None
    value = float(literal)
    return value if math.isfinite(value) else None


def _metric(raw: JsonObject, name: str) -> float:
    value = read_metric(text(raw, name))
    if value is None:
        raise WireError(f"{name}: {quoted(text(raw, name))} is not a finite number")
    return value


Metric: TypeAlias = Annotated[
    float,
    Kind(_metric, repr, schema=Schema(type="string", maxLength=42, pattern=f"^{_METRIC.pattern}$")),
]
"""A value of a metric, to the last bit: promotions rest on it."""
EpochNumber: TypeAlias = Annotated[int, between(0, INT32_MAX), NEEDED]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochValue:
    """Report of the program on an epoch."""

    epoch: EpochNumber
    """Epoch of the whole training, from 1."""
    value: Metric | None = None
    """Value of the metric; absent = it was not a finite number."""


def read_report(message: str) -> tuple[EpochValue, ...]:
    """The values in a termination message, by epoch; none where it is no report.

    It is the tenant's own text: a line that makes no sense counts for nothing, and of an epoch that
    is there twice the last line counts.

    Args:
        message: Of a container that has ended.
    """
    header, _, rest = message[:MOST_REPORT_BYTES].partition("\n")
    if header.strip() != TRIAL_REPORT_HEADER:
        return ()
    values: dict[int, EpochValue] = {}
    for line in rest.splitlines():
        epoch, _, value = line.strip().partition(" ")
        if _EPOCH.fullmatch(epoch) and int(epoch) >= 1 and value:
            values[int(epoch)] = EpochValue(epoch=int(epoch), value=read_metric(value.strip()))
    return tuple(values[epoch] for epoch in sorted(values)[-MOST_EPOCH_VALUES:])
