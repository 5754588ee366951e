# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``kubectl ullage trace show``: traces of PyTorch's profiler in local files, without a cluster."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ullage.api.rank_traces import RankTrace, TimeBreakdown
from ullage.cli.forms import TraceForm
from ullage.cli.tables import GOOD, table_of
from ullage.engines.tracing.join import MOST_JOINED, NodeTrace, joined
from ullage.engines.tracing.limits import TraceError
from ullage.engines.tracing.perfetto import perfetto_view
from ullage.engines.tracing.summary import summarised

READ = 1 << 20
"""Bytes read at a time."""
SHARES = ("COMPUTE", "EXPOSED COMM", "COPIES", "DATA WAIT", "IDLE")


class TraceFileError(Exception):
    """The files cannot be shown; the text says which, and why."""


@dataclass(frozen=True, slots=True)
class TraceFile:
    """A file and its summary."""

    path: Path
    trace: RankTrace


def read_files(paths: Sequence[Path]) -> list[TraceFile]:
    """The summaries of files.

    Raises:
        TraceFileError: one cannot be read, or is no trace.
    """
    if len(paths) > MOST_JOINED:
        raise TraceFileError(f"{len(paths)} files, at most {MOST_JOINED} can be shown together")
    read: list[TraceFile] = []
    for path in paths:
        try:
            read.append(TraceFile(path, summarised(_chunks(path))))
        except TraceError as error:
            raise TraceFileError(f"{path}: {error.reason.value}: {error}") from error
        except OSError as error:
            raise TraceFileError(f"{path}: {error.strerror or error}") from error
    return read


def shown(files: Sequence[TraceFile], form: TraceForm, *, one_clock: bool) -> str | RenderableType:
    """The analysis of the traces of one job.

    Args:
        files: One for each rank.
        form: A table for people, or text for programs.
        one_clock: The ranks ran on one node.

    Raises:
        TraceFileError: two files are of one rank.
    """
    ranks = ranked(files, one_clock=one_clock)
    job = joined(ranks)
    if form is TraceForm.PERFETTO:
        return json.dumps(perfetto_view(job, ranks), separators=(",", ":")) + "\n"
    if form is not TraceForm.TABLE:
        body = {"job": job.to_wire(), "ranks": [rank.trace.to_wire() for rank in ranks]}
        if form is TraceForm.YAML:
            return yaml.safe_dump(body, sort_keys=False)
        return json.dumps(body, indent=2) + "\n"
    parts: list[RenderableType] = [Text(job.message), _table(ranks)]
    if len(ranks) == 1:
        parts.extend(_of_one(ranks[0].trace))
    if len(ranks) > 1:
        parts.append(Text(f"clocks: {job.alignment.value}{_doubt(job.clock_uncertainty_micros)}"))
    for finding in job.findings:
        parts.append(Text(f"{finding.reason.value}: {finding.message}"))
        parts.append(Text(f"  {finding.reason.what_to_do}", style=GOOD))
    return Group(*parts)


def ranked(files: Sequence[TraceFile], *, one_clock: bool) -> list[NodeTrace]:
    """The files by rank: as they say, or in their order where none says.

    Raises:
        TraceFileError: two say the same rank, or only some say one.
    """
    stated = [file.trace.rank for file in files]
    if all(rank is None for rank in stated):
        stated = list(range(len(files)))
    twice = [rank for rank, count in Counter(stated).items() if count > 1]
    if twice:
        names = ", ".join(
            str(file.path) for file, rank in zip(files, stated, strict=True) if rank == twice[0]
        )
        word = "no rank" if twice[0] is None else f"rank {twice[0]}"
        raise TraceFileError(f"{names}: all say {word}; give one file for each rank of one job")
    if None in stated:
        missing = files[stated.index(None)].path
        raise TraceFileError(f"{missing}: it does not say its rank, the others do")
    return sorted(
        (
            NodeTrace(rank=rank, node="" if one_clock else file.path.name, trace=file.trace)
            for file, rank in zip(files, stated, strict=True)
            if rank is not None
        ),
        key=lambda traced: traced.rank,
    )


def shares(step: TimeBreakdown) -> tuple[str, ...]:
    """A cell for each of ``SHARES``."""
    parts = (
        step.compute_micros,
        step.communication_micros,
        step.copies_micros,
        step.data_wait_micros,
        step.idle_micros,
    )
    return tuple(f"{100 * step.share(part):.0f} %" for part in parts)


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(READ):
            yield chunk


def _table(ranks: Sequence[NodeTrace]) -> Table:
    table = table_of("RANK", "FILE", numbers=("STEPS", "MS/STEP", *SHARES, "OVERLAP"))
    for traced in ranks:
        trace = traced.trace
        step, count = trace.step, max(1, trace.step_marks)
        communication = step.communication_micros + step.overlapped_micros
        overlap = step.overlapped_micros / communication if communication else None
        table.add_row(
            str(traced.rank),
            Text(traced.node),
            str(trace.step_marks) if trace.step_marks else "not marked",
            f"{step.span_micros / count / 1e3:.1f}",
            *shares(step),
            "" if overlap is None else f"{100 * overlap:.0f} %",
        )
    return table


def _of_one(trace: RankTrace) -> Sequence[RenderableType]:
    """Critical path and operations of a single rank."""
    path = trace.critical_path
    parts = {
        "compute": path.compute_micros,
        "communication": path.communication_micros,
        "copies": path.copies_micros,
        "data wait": path.data_wait_micros,
        "host": path.host_micros,
        "idle": path.idle_micros,
    }
    whole = sum(parts.values())
    named = ", ".join(f"{name} {100 * part / whole:.0f} %" for name, part in parts.items() if part)
    operations = table_of("OPERATION", "ACTIVITY", numbers=("MS", "COUNT"))
    for operation in trace.operations:
        operations.add_row(
            Text(operation.name),
            operation.activity.value,
            f"{operation.micros / 1e3:.1f}",
            str(operation.count),
        )
    return [Text(f"critical path: {named}")] * bool(whole) + [operations]


def _doubt(micros: int) -> str:
    return f", to {micros / 1e3:.1f} ms" if micros else ""
