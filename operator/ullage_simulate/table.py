# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Tables in users' files: errors name file, line and column of a cell.

Nothing is repaired silently: a figure is finite and within its bounds, a line has as many cells as
the header, and text is UTF-8, with or without a byte-order mark.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ullage_simulate.trace import JobTraceError

MOST_BYTES: Final = 512 * 2**20
"""Maximum bytes of an unpacked file: some millions of jobs."""
MOST: Final = 1e12
"""The largest figure of any cell."""
_SHOWN: Final = 40
"""Maximum characters of a quoted cell in an error."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """One line of a table."""

    file: str
    line: int
    cells: Mapping[str, str]

    def text(self, column: str) -> str:
        """A cell without spaces around it; empty where the column or the value is missing."""
        return self.cells.get(column, "").strip()

    def number(
        self, column: str, unit: str, *, least: float = 0.0, default: float | None = None
    ) -> float:
        """A figure.

        Args:
            column: Its column.
            unit: Its unit, with an example, for the error.
            least: Minimum allowed value.
            default: Default of an empty cell; ``None`` = required.

        Raises:
            TraceError: it is not a finite number from ``least`` to a million millions.
        """
        text = self.text(column)
        if not text and default is not None:
            return default
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= MOST:
            raise self.wrong(column, f"is no number from {least:g} to {MOST:g}: write {unit}")
        return value

    def whole(self, column: str, unit: str, *, least: int = 1, default: int | None = None) -> int:
        """A count; ``4`` and ``4.0`` are the same.

        Raises:
            TraceError: it is not a whole number within its bounds.
        """
        value = self.number(column, unit, least=least, default=default)
        if value != int(value):
            raise self.wrong(column, f"is no whole number: write {unit}")
        return int(value)

    def wrong(self, column: str, problem: str) -> JobTraceError:
        """An error that names this cell.

        Args:
            column: Its column.
            problem: The problem, and the expected value.
        """
        text = self.cells.get(column, "")
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        return JobTraceError(f"{self.file}: line {self.line}, column {column}: {shown!r} {problem}")


def opened(path: Path) -> str:
    """The text of a file, unpacked if it is gzip, without a byte-order mark.

    Raises:
        TraceError: it cannot be read, is too large, or is no text.
    """
    try:
        with path.open("rb") as stream:
            packed = stream.peek(2)[:2] == b"\x1f\x8b"
            source = gzip.GzipFile(fileobj=stream) if packed else stream
            raw = source.read(MOST_BYTES + 1)
        if len(raw) > MOST_BYTES:
            raise JobTraceError(f"{path}: larger than {MOST_BYTES >> 20} MiB: take a part of it")
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = raw.count(b"\n", 0, error.start) + 1
        raise JobTraceError(
            f"{path}: line {where}: no UTF-8 text: save the file as UTF-8"
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise JobTraceError(f"{path}: {error}") from error


def header_of(text: str) -> tuple[str, ...]:
    """The names of the columns, without quotes and spaces; empty without text."""
    try:
        return tuple(
            name.strip() for name in next(csv.reader(io.StringIO(text), skipinitialspace=True), ())
        )
    except csv.Error:
        return ()


def rows(
    file: str, text: str, *, columns: Sequence[str] = (), delimiter: str = ","
) -> Iterator[TableRow]:
    """The lines of a table; empty ones are skipped.

    Args:
        file: Its name, for errors.
        text: All of it.
        columns: Names of the columns where the table has no header.
        delimiter: Between cells; tables that use tabs have no quotes.

    Raises:
        TraceError: a line and the header have different numbers of cells, or it is not CSV.
    """
    stream = io.StringIO(text)
    if delimiter == "\t":
        reader = csv.reader(stream, delimiter=delimiter, quoting=csv.QUOTE_NONE)
    else:
        reader = csv.reader(stream, delimiter=delimiter, skipinitialspace=True)
    names = tuple(columns)
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if not names:
                names = _named(file, cells)
                continue
            if len(cells) != len(names):
                raise JobTraceError(
                    f"{file}: line {reader.line_num}: {len(cells)} cells instead of {len(names)}: "
                    "quote cells that hold a comma, and fill short lines"
                )
            yield TableRow(file, reader.line_num, dict(zip(names, cells, strict=True)))
    except csv.Error as error:
        raise JobTraceError(f"{file}: line {reader.line_num}: no CSV ({error})") from error


def _named(file: str, cells: Sequence[str]) -> tuple[str, ...]:
    names = tuple(cell.strip() for cell in cells)
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise JobTraceError(f"{file}: line 1: two columns are called {twice[0]}: rename one")
    return names
