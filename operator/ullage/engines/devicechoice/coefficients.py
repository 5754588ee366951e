# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Fitted op times as data that can be stored and read again: versioned, per type of device.

It must never read a version that it does not know: coefficients without their design mean nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from ullage.engines.devicechoice.features import Design, Size, Split
from ullage.engines.devicechoice.fit import Line, OpTimes

VERSION: Final = 1

Json = Mapping[str, object]


class CoefficientsError(ValueError):
    """Stored coefficients cannot be used; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """Op times of a type of device with their origin.

    Attributes:
        accelerator: The type.
        times: The fits.
        errors: predicted / measured - 1 of left-out networks, for intervals.
        fitted: When, RFC 3339.
        source: What they were fitted on.
    """

    accelerator: str
    times: OpTimes
    errors: tuple[float, ...]
    fitted: str
    source: str


def to_json(stored: Coefficients) -> dict[str, object]:
    """The record as plain JSON values."""
    times = stored.times
    return {
        "version": VERSION,
        "accelerator": stored.accelerator,
        "fitted": stored.fitted,
        "source": stored.source,
        "rows": times.rows,
        "design": {
            "size": times.design.size.value,
            "split": times.design.split.value,
            "arithmetic": times.design.arithmetic,
        },
        "lightSeconds": times.light_s,
        "cpuSeconds": times.cpu_s,
        "errors": list(stored.errors),
        "lines": {
            key: {
                "forward": list(line.forward),
                "backward": list(line.backward),
                "rows": line.rows,
                "largestBytes": line.largest_bytes,
            }
            for key, line in sorted(times.lines.items())
        },
    }


def from_json(raw: Json) -> Coefficients:
    """The record of ``to_json``.

    Raises:
        CoefficientsError: another version, or a field that is missing or of another kind.
    """
    if raw.get("version") != VERSION:
        raise CoefficientsError(
            f"version {raw.get('version')!r} of the coefficients is not {VERSION}: fit them again"
        )
    try:
        design = _part(raw["design"])
        lines = {key: _line(_part(value)) for key, value in _part(raw["lines"]).items()}
        times = OpTimes(
            design=Design(
                size=Size(str(design["size"])),
                split=Split(str(design["split"])),
                arithmetic=bool(design["arithmetic"]),
            ),
            lines=lines,
            light_s=_number(raw["lightSeconds"]),
            cpu_s=_number(raw["cpuSeconds"]),
            rows=int(_number(raw["rows"])),
        )
        return Coefficients(
            accelerator=str(raw["accelerator"]),
            times=times,
            errors=_numbers(raw["errors"]),
            fitted=str(raw["fitted"]),
            source=str(raw["source"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CoefficientsError(f"the coefficients cannot be read: {error!r}") from error


def _line(raw: Json) -> Line:
    return Line(
        forward=_numbers(raw["forward"]),
        backward=_numbers(raw["backward"]),
        rows=int(_number(raw["rows"])),
        largest_bytes=_number(raw["largestBytes"]),
    )


def _part(value: object) -> Json:
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r} is not an object")
    return cast("Json", value)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def _numbers(value: object) -> tuple[float, ...]:
    if not isinstance(value, list | tuple):
        raise TypeError(f"{value!r} is not a list")
    return tuple(_number(one) for one in value)
