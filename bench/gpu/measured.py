# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows as an analysis takes them: checked, of one GPU type, with references of their own run.

A row without an attachment verdict is refused with its file and window. Rows that are known to be
unusable (not attached, error) are left out and counted; nothing is repaired.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.gpu.references import solo_medians
from bench.gpu.schema import PREFIX, SUFFIX, RowRefused, read_cells

COUNTERS = (
    "gpm_gfx", "gpm_sm", "gpm_occ", "gpm_tensor", "gpm_fp32", "gpm_fp16", "gpm_dram",
    "gpm_pcie_tx", "gpm_pcie_rx",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One usable row. Times are ms; ``share`` is the fraction of the multiprocessors seen."""

    run: str
    gpu: str
    driver: str
    seed: int
    window: str
    block: str
    at_ns: int
    tenant: str
    family: str
    kind: str
    batch: float
    percent: int
    others: tuple[tuple[str, int], ...]
    sm_count: int
    mean_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float | None
    rate: float | None
    priority: int
    counters: Mapping[str, float]
    share: float = 1.0
    solo_ms: float = math.nan
    whole_ms: float = math.nan

    @property
    def slowdown(self) -> float:
        """Against alone on the whole device."""
        return self.mean_ms / self.whole_ms

    @property
    def contention(self) -> float:
        """Against alone at its own share."""
        return self.mean_ms / self.solo_ms

    @property
    def pair(self) -> tuple[str, ...]:
        """Everyone's names, sorted."""
        return tuple(sorted([self.tenant, *(name for name, _ in self.others)]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Everything that one analysis rests on."""

    rows: tuple[Measured, ...]
    left_out: Mapping[str, int]
    files: tuple[str, ...]
    gpu: str
    drivers: tuple[str, ...]
    seeds: tuple[int, ...]
    fake: bool

    def said(self) -> str:
        """The line that stands above every result."""
        line = (
            f"GPU {self.gpu}, driver {', '.join(self.drivers)}, run seeds"
            f" {', '.join(map(str, self.seeds))}, {len(self.rows)} rows"
        )
        return f"{line}; no GPU was used: nothing here was measured" if self.fake else line


def files_of(paths: Iterable[Path]) -> list[Path]:
    """Files of rows; a journal only where the final file of its command is missing.

    Raises:
        RowRefused: there is none.
    """
    found: set[Path] = set()
    for path in paths:
        found |= set(path.glob(f"{PREFIX}*{SUFFIX}")) if path.is_dir() else {path}
    finals = {path.name for path in found}
    part = f".part{SUFFIX}"
    kept = [
        path
        for path in found
        if not (path.name.endswith(part) and path.name.removesuffix(part) + SUFFIX in finals)
    ]
    if not kept:
        raise RowRefused(f"no file {PREFIX}*{SUFFIX} there; run r1 first")
    return sorted(kept, key=lambda one: one.name)


def load(paths: Iterable[Path], gpu: str = "") -> Data:
    """Read, check, and set references.

    Args:
        paths: Files or folders.
        gpu: Only rows of this type; empty = there must be but one.

    Raises:
        RowRefused: a row without attachment verdict, no solo reference, more than one GPU type.
    """
    files = files_of(paths)
    left_out: Counter[str] = Counter()
    rows: list[Measured] = []
    for file in files:
        for line in read_cells(file):
            why = _unusable(file.name, line)
            if why:
                left_out[why] += 1
            else:
                rows.append(_row(file.name, line))
    names = {one.gpu for one in rows}
    if gpu:
        rows = [one for one in rows if one.gpu == gpu]
    elif len(names) > 1:
        raise RowRefused(f"rows of several GPU types; choose one with --gpu: {sorted(names)}")
    if not rows:
        raise RowRefused(f"no usable row; left out: {dict(left_out)}")
    full, alone = _with_references(rows)
    left_out["no solo reference in its run"] += len(rows) - len(full)
    return Data(
        rows=tuple(full),
        left_out={key: left_out[key] for key in sorted(left_out) if left_out[key]},
        files=tuple(one.name for one in files),
        gpu=alone,
        drivers=tuple(sorted({one.driver for one in full})),
        seeds=tuple(sorted({one.seed for one in full})),
        fake="no GPU was used" in alone,
    )


def _unusable(file: str, line: Mapping[str, str]) -> str:
    if line["attached"] not in ("true", "false"):
        raise RowRefused(
            f"{file}: window {line['window_id']}, tenant {line['tenant']}: no attachment verdict;"
            " such a row may be of a client on the whole GPU, delete the file"
        )
    if line["attached"] == "false":
        return "not attached"
    if line["error"]:
        return "error"
    return "" if line["step_ms_mean"] else "no time"


def _row(file: str, line: Mapping[str, str]) -> Measured:
    try:
        everyone = [_split(one) for one in line["tenants"].split(";")]
        own = (line["tenant"], int(line["share_pct"]))
        everyone.remove(own)
        found = Measured(
            run=line["run_id"],
            gpu=line["gpu_name"],
            driver=line["driver"],
            seed=int(line["seed"]),
            window=f"{file}/{line['window_id']}",
            block=line["block"],
            at_ns=int(line["t_start_ns"]),
            tenant=own[0],
            family=line["family"],
            kind=line["kind"],
            batch=float(line["batch"]),
            percent=own[1],
            others=tuple(everyone),
            sm_count=int(line["sm_count_seen"]),
            mean_ms=float(line["step_ms_mean"]),
            p50_ms=float(line["step_ms_p50"]),
            p90_ms=float(line["step_ms_p90"]),
            p99_ms=float(line["step_ms_p99"]) if line["step_ms_p99"] else None,
            rate=float(line["offered_rps"]) if line["offered_rps"] else None,
            priority=int(line["priority"]),
            counters={name: float(line[name]) for name in COUNTERS if line[name]},
        )
    except ValueError as error:
        raise RowRefused(f"{file}: window {line['window_id']}: {error}") from error
    if not (math.isfinite(found.mean_ms) and found.mean_ms > 0):
        raise RowRefused(f"{file}: window {line['window_id']}: a time of {found.mean_ms:g} ms")
    return found


def _split(text: str) -> tuple[str, int]:
    name, _, percent = text.partition("@")
    return name, int(percent)


def _with_references(rows: Sequence[Measured]) -> tuple[list[Measured], str]:
    solo = solo_medians(
        (one.run, one.tenant, one.percent, one.mean_ms) for one in rows if not one.others
    )
    most = max(one.sm_count for one in rows)
    full = [
        replace(
            one,
            share=one.sm_count / most,
            solo_ms=solo[one.run, one.tenant, one.percent],
            whole_ms=solo[one.run, one.tenant, 100],
        )
        for one in rows
        if (one.run, one.tenant, one.percent) in solo and (one.run, one.tenant, 100) in solo
    ]
    if not full:
        raise RowRefused("no run has solo windows at 100 %: slowdowns have nothing to stand on")
    return sorted(full, key=lambda one: (one.run, one.at_ns, one.window, one.tenant)), rows[0].gpu
