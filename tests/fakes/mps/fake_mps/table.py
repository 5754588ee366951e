# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The two forms of a v3 list: csv for programs, and a table that cuts what does not fit.

The table turns the PID 3165259 into ``316...``: a program that reads it terminates a stranger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fake_mps.v3_parse import Failed

_GAP = 2
_DOTS = "..."


def render(rows: Sequence[Mapping[str, str]], columns: Mapping[str, int], form: str | None) -> str:
    """Print rows; ``columns`` gives each column's width in the table.

    Raises:
        Failed: a format that is unknown.
    """
    kind, _, extra = (form or "table").partition(",")
    if kind not in ("csv", "table") or extra not in ("", "noheader"):
        raise Failed(f"Unknown format '{form}'.")
    lines = [] if extra else [[*columns]]
    lines += [[row[name] for name in columns] for row in rows]
    if kind == "csv":
        return "\n".join(",".join(line) for line in lines)
    widths = list(columns.values())
    if not extra:
        lines[0] = [name.upper() for name in lines[0]]
    return "\n".join(
        "".join(_cell(cell, width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _cell(text: str, width: int) -> str:
    room = width - _GAP
    if len(text) > room:
        text = text[: room - len(_DOTS)] + _DOTS
    return text.ljust(width)
