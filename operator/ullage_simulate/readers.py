# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Public traces and a user's own files as jobs; formats are recognised by their columns.

Missing values (types of work, lengths) are drawn from a seed and named in a note. Nothing is
downloaded, and no value of a file is changed without a note.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

from ullage_simulate.readers_alibaba import instances, pods
from ullage_simulate.readers_sia import sia_jobs
from ullage_simulate.reading import ReadingOptions
from ullage_simulate.speeds import BUILT_IN, SpeedTable, built_in
from ullage_simulate.synthetic import reference_type
from ullage_simulate.table import TableRow, header_of, opened, rows
from ullage_simulate.trace import JobTrace, JobTraceError, TraceJob, in_order

_SECONDS: Final = "seconds, as 12.5"
_DEVICES: Final = "a number of devices, as 4"


class Format(StrEnum):
    """Formats of traces."""

    AUTO = "auto"
    GAVEL = "gavel"
    """Gavel's job lists, as its own .trace lines or as a table with job_type and total_steps."""
    PHILLY = "philly"
    """Philly in the reduced form of Pollux and Sia: timestamp, duration, GPUs."""
    SIA = "sia"
    """Sia's workloads: submit time, application, replicas, batch size."""
    ALIBABA = "alibaba"
    """Alibaba's inference instances: GPU request, creation, deletion."""
    OPENB = "openb"
    """Alibaba's pods of 2023 (openb_pod_list_*.csv): GPUs or a part of one, creation, deletion."""
    CSV = "csv"
    """A user's own: name, arrival_s, gang, job_type, and steps or duration_s."""


def read_trace(
    path: Path, form: Format = Format.AUTO, reading: ReadingOptions | None = None
) -> JobTrace:
    """Read a file of jobs.

    Raises:
        TraceError: the format is unknown, or a line is invalid; the text names it.
    """
    how, text = reading or ReadingOptions(), opened(path)
    if form is Format.AUTO:
        form = recognised(path, text)
    return _READERS[form](path.name, _rows(path, form, text, how.select), how)


def published() -> JobTrace:
    """The published trace of 96 jobs that the package carries."""
    name, text = "jobs_max_min_fairness.csv", BUILT_IN / "jobs_max_min_fairness.csv"
    lines = rows(name, text.read_text(encoding="utf-8"))
    return gavel_jobs("gavel (96 jobs)", tuple(lines), ReadingOptions(table=built_in()))


def recognised(path: Path, text: str) -> Format:
    """The format of a file, by its first line.

    Raises:
        TraceError: the format is unknown.
    """
    head = text.partition("\n")[0]
    if head.count("\t") >= len(_TAB) - 2:
        return Format.GAVEL
    columns = set(header_of(text))
    for form, needed in COLUMNS.items():
        if needed <= columns:
            return form
    raise JobTraceError(
        f"{path}: line 1: the columns {head[:80]!r} are of no format that is known: give --format, "
        f"one of {', '.join(form for form in Format if form is not Format.AUTO)}"
    )


_TAB: Final = (
    *("job_type", "command", "directory", "steps_argument", "needs_data", "total_steps"),
    *("scale_factor", "priority_weight", "slo", "arrival_time_s"),
)
"""Fields of a line of Gavel's own format."""
COLUMNS: Final[Mapping[Format, frozenset[str]]] = {
    Format.GAVEL: frozenset({"job_type", "total_steps", "scale_factor", "arrival_time_s"}),
    Format.PHILLY: frozenset({"timestamp", "duration_s", "num_gpus"}),
    Format.SIA: frozenset({"submit_time_s", "application", "num_replicas", "batch_size"}),
    Format.ALIBABA: frozenset({"instance_sn", "gpu_request", "creation_time", "deletion_time"}),
    Format.OPENB: frozenset({"name", "num_gpu", "gpu_milli", "creation_time", "deletion_time"}),
    Format.CSV: frozenset({"arrival_s", "gang"}),
}
"""Columns that identify a format and are required by it."""


def _rows(path: Path, form: Format, text: str, select: Mapping[str, str]) -> tuple[TableRow, ...]:
    if form is Format.GAVEL and "\t" in text.partition("\n")[0]:
        read = tuple(rows(path.name, text, columns=_TAB, delimiter="\t"))
        columns = set(_TAB)
    else:
        read, columns = tuple(rows(path.name, text)), set(header_of(text))
        if not COLUMNS[form] <= columns:
            missing = ", ".join(sorted(COLUMNS[form] - columns))
            raise JobTraceError(f"{path.name}: line 1: {form} needs the columns {missing}")
    for column in select:
        if column not in columns:
            raise JobTraceError(f"{path.name}: line 1: there is no column {column} to select by")
    return tuple(
        row for row in read if all(row.cells[column] == value for column, value in select.items())
    )


def gavel_jobs(name: str, lines: Sequence[TableRow], how: ReadingOptions) -> JobTrace:
    """Jobs with a type of the table and a number of steps."""
    capped: Counter[int] = Counter()
    unknown: Counter[str] = Counter()
    jobs = []
    for number, row in enumerate(lines):
        kind, wanted = row.text("job_type"), row.whole("scale_factor", _DEVICES)
        gang = how.table.gang_below(kind, wanted)
        if gang == 0:
            unknown[kind] += 1
            continue
        capped[wanted] += gang < wanted
        slo = row.number("slo", f"{_SECONDS}, or -1 for none", least=-1, default=-1)
        jobs.append(
            TraceJob(
                name=f"{number:05d}",
                gang=gang,
                steps=row.whole("total_steps", "steps, as 500"),
                arrival_s=row.number("arrival_time_s", _SECONDS),
                speeds=how.table.alone[kind, gang],
                kind=kind,
                weight=_weight(row, "priority_weight"),
                tenant=row.text("vc"),
                deadline_s=slo if slo > 0 else None,
            )
        )
    return in_order(name, jobs, (_capped(capped), _left_out(unknown)))


def philly_jobs(name: str, lines: Sequence[TableRow], how: ReadingOptions) -> JobTrace:
    """Arrivals, gangs and durations of Philly; kinds of work drawn from the table by the seed."""
    chance, reference = random.Random(how.seed), reference_type(how.table)
    kinds = _kinds(how.table)
    capped: Counter[int] = Counter()
    jobs = []
    for number, row in enumerate(lines):
        wanted = row.whole("num_gpus", _DEVICES)
        gang = max((gang for gang in kinds if gang <= wanted), default=1)
        kind = chance.choice(kinds[gang])
        capped[wanted] += gang < wanted
        speeds = how.table.alone[kind, gang]
        jobs.append(
            TraceJob(
                name=f"{number:05d}",
                gang=gang,
                steps=max(1, round(row.number("duration_s", _SECONDS) * speeds[reference])),
                arrival_s=_moment(row),
                speeds=speeds,
                kind=kind,
                tenant=row.text("vc"),
            )
        )
    drawn = f"kinds of work are drawn by seed {how.seed}; durations are those on {reference}."
    return in_order(name, jobs, (drawn, _capped(capped)))


def own_jobs(name: str, lines: Sequence[TableRow], how: ReadingOptions) -> JobTrace:
    """A user's own list; a duration is that on the reference type."""
    reference = reference_type(how.table)
    return in_order(name, [_own(row, number, how, reference) for number, row in enumerate(lines)])


def _own(row: TableRow, number: int, how: ReadingOptions, reference: str) -> TraceJob:
    kind, gang = row.text("job_type"), row.whole("gang", _DEVICES)
    speeds = how.table.alone.get((kind, gang))
    if speeds is None and not kind:
        speeds = dict.fromkeys(how.types or how.table.types, 1.0)
    if speeds is None:
        raise row.wrong("job_type", f"has no speeds with a gang of {gang}: give --speeds with them")
    if row.text("steps"):
        steps = row.whole("steps", "steps, as 500")
    elif row.text("duration_s"):
        seconds = row.number("duration_s", _SECONDS)
        steps = max(1, round(seconds * speeds.get(reference, 1.0)))
    else:
        raise row.wrong("steps", "is empty: give steps or duration_s")
    deadline_s = row.number("deadline_s", _SECONDS, default=0.0)
    return TraceJob(
        name=row.text("name") or f"{number:05d}",
        gang=gang,
        steps=steps,
        arrival_s=row.number("arrival_s", _SECONDS),
        speeds=speeds,
        kind=kind,
        checkpointable=_flag(row, "checkpoint"),
        weight=_weight(row, "weight"),
        tenant=row.text("tenant"),
        priority=row.whole("priority", "a priority, as 100", least=-(10**9), default=0),
        deadline_s=deadline_s if deadline_s > 0 else None,
    )


_READERS: Final[Mapping[Format, Callable[[str, Sequence[TableRow], ReadingOptions], JobTrace]]] = {
    Format.GAVEL: gavel_jobs,
    Format.PHILLY: philly_jobs,
    Format.SIA: sia_jobs,
    Format.ALIBABA: instances,
    Format.OPENB: pods,
    Format.CSV: own_jobs,
}


def _kinds(table: SpeedTable) -> dict[int, tuple[str, ...]]:
    """Kinds of work that run on every type, by gang.

    Raises:
        TraceError: none runs on every type with a gang of 1.
    """
    kinds = {gang: table.kinds(gang) for gang in sorted({gang for _, gang in table.alone})}
    if not kinds.get(1):
        raise JobTraceError(f"{table.name}: no kind of work runs on every type with a gang of 1")
    return {gang: names for gang, names in kinds.items() if names}


def _moment(row: TableRow) -> float:
    """Seconds since the epoch of a timestamp; one without a zone is UTC.

    A local zone would move jobs by an hour where clocks change.
    """
    try:
        moment = datetime.fromisoformat(row.text("timestamp"))
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        hint = "is no time: write it as 2017-09-04 10:30:41"
        raise row.wrong("timestamp", hint) from error
    return seconds


def _weight(row: TableRow, column: str) -> float:
    weight = row.number(column, "a weight, as 2", default=1.0)
    if weight == 0:
        raise row.wrong(column, "gives no share at all: write a weight above 0")
    return weight


def _flag(row: TableRow, column: str) -> bool:
    text = row.text(column).lower() or "true"
    if text not in ("true", "false"):
        raise row.wrong(column, "is neither true nor false")
    return text == "true"


def _capped(capped: Counter[int]) -> str:
    many = sum(capped.values())
    sizes = ", ".join(str(size) for size in sorted(size for size, n in capped.items() if n))
    return f"{many} gangs of {sizes} run with the next smaller gang of the table." if many else ""


def _left_out(unknown: Counter[str]) -> str:
    if not unknown:
        return ""
    kinds = ", ".join(kind for kind, _ in unknown.most_common(3))
    return f"{sum(unknown.values())} jobs of kinds without speeds ({kinds}) were left out."
