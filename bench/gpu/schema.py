# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of measurement: their columns, and a file that a killed run leaves readable.

One row per tenant per window. A window is one gzip member, written in one call: after ``kill -9``
every member is whole but perhaps the last, which reading drops. Rows are never edited afterwards.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

VERSION: Final = 1
COLUMNS: Final = (
    "run_id", "gpu_uuid", "gpu_name", "driver", "cuda", "mps_mode", "window_id", "block",
    "order", "seed", "t_start_ns", "dur_s", "tenants", "tenant", "kind", "family", "batch",
    "precision", "cuda_graph", "share_pct", "sm_count_seen", "mem_limit_mb", "mem_used_mb",
    "priority", "offered_rps", "iters", "step_ms_mean", "step_ms_p50", "step_ms_p90",
    "step_ms_p99", "step_ms_max", "throughput", "solo_ref_ms", "solo100_ref_ms", "slowdown",
    "norm_tput", "gpm_gfx", "gpm_sm", "gpm_occ", "gpm_tensor", "gpm_hmma", "gpm_fp32",
    "gpm_fp16", "gpm_int", "gpm_dram", "gpm_pcie_tx", "gpm_pcie_rx", "sm_clock", "mem_clock",
    "power_w", "temp", "throttle_mask", "cpu_util", "launches", "graph_launches", "attached",
    "error",
)  # fmt: skip
FLUSH_WINDOWS: Final = 20
PREFIX: Final = f"gpu-rows-v{VERSION}-"
SUFFIX: Final = ".csv.gz"

Cell = str | int | float | bool | None
RowCells = Mapping[str, Cell]


class RowRefused(ValueError):
    """A row, or a whole file, that no conclusion may rest on; the text says where and why."""


def text_of(value: Cell) -> str:
    """A cell as CSV holds it; empty = not measured."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def member(rows: Iterable[RowCells], *, header: bool) -> bytes:
    """Rows as one gzip member."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if header:
        writer.writerow(COLUMNS)
    for row in rows:
        if unknown := set(row) - set(COLUMNS):
            raise ValueError(f"no such column: {', '.join(sorted(unknown))}")
        writer.writerow([text_of(row.get(name)) for name in COLUMNS])
    return gzip.compress(out.getvalue().encode(), compresslevel=6, mtime=0)


class RowFile:
    """Appends windows; each is readable as soon as ``append`` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.windows = 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        os.write(self._file, member((), header=True))

    def append(self, rows: Sequence[RowCells]) -> None:
        """Write the rows of one window; they reach the disk every 20 windows."""
        block = member(rows, header=False)
        if os.write(self._file, block) != len(block):
            raise OSError(f"{self.path}: the disk is full")
        self.windows += 1
        if self.windows % FLUSH_WINDOWS == 0:
            os.fsync(self._file)

    def close(self) -> None:
        """Flush and close."""
        os.fsync(self._file)
        os.close(self._file)

    def __enter__(self) -> RowFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


def read_cells(path: Path) -> list[dict[str, str]]:
    """All whole windows of a file, cut off or not.

    Raises:
        RowRefused: another schema version, or not such a file at all.
    """
    if not path.name.startswith(PREFIX):
        raise RowRefused(
            f"{path.name}: its name must begin with {PREFIX} (schema version {VERSION})"
        )
    data, texts = path.read_bytes(), []
    while data:
        unpacker = zlib.decompressobj(wbits=31)
        try:
            text = unpacker.decompress(data)
        except zlib.error as error:
            raise RowRefused(f"{path.name}: not gzip, or damaged: {error}") from error
        if not unpacker.eof:
            break  # the member that was being written when the run was killed
        texts.append(text.decode())
        data = unpacker.unused_data
    lines = list(csv.reader(io.StringIO("".join(texts))))
    if not lines or tuple(lines[0]) != COLUMNS:
        raise RowRefused(f"{path.name}: the columns are not those of schema version {VERSION}")
    return [dict(zip(COLUMNS, line, strict=True)) for line in lines[1:]]
