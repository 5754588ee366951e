# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Public traces and a user's own files as jobs; formats are recognised by their columns.

What a source lacks (types of work, lengths) is drawn from a seed and named in a note. Nothing is
downloaded, and no value of a file is changed without a note.
"""

from __future__ import annotations

import csv
import io
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

from ullage.simulate.readers_sia import sia_jobs
from ullage.simulate.speeds import BUILT_IN, SpeedTable, built_in, opened
from ullage.simulate.synthetic import reference_type
from ullage.simulate.trace import Trace, TraceError, TraceJob, in_order

Line = Mapping[str, str]


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
    CSV = "csv"
    """A user's own: name, arrival_s, gang, job_type, and steps or duration_s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a file is read.

    Attributes:
        table: Speeds of kinds of work.
        seed: Of everything that is drawn.
        select: Only lines in which these columns have these values.
        types: Types of the cluster; services, whose time does not depend on speed, run on all.
    """

    table: SpeedTable = field(default_factory=built_in)
    seed: int = 0
    select: Mapping[str, str] = field(default_factory=dict)
    types: tuple[str, ...] = ()


def read_trace(path: Path, form: Format = Format.AUTO, reading: Reading | None = None) -> Trace:
    """Read a file of jobs.

    Raises:
        TraceError: the format is not known, or a line makes no sense; the text says which.
    """
    how, text = reading or Reading(), opened(path)
    if form is Format.AUTO:
        form = recognised(path, text)
    return _READERS[form](path.name, _lines(path, form, text, how.select), how)


def published() -> Trace:
    """The published trace of 96 jobs that the package carries."""
    text = (BUILT_IN / "jobs_max_min_fairness.csv").read_text(encoding="utf-8")
    lines = list(csv.DictReader(io.StringIO(text)))
    return gavel_jobs("gavel (96 jobs)", lines, Reading(table=built_in()))


def recognised(path: Path, text: str) -> Format:
    """The format of a file by its first line.

    Raises:
        TraceError: none that is known.
    """
    head = text.partition("\n")[0]
    if head.count("\t") >= 8:
        return Format.GAVEL
    columns = set(head.strip().split(","))
    for form, needed in _COLUMNS.items():
        if needed <= columns:
            return form
    raise TraceError(
        f"{path}: the columns {head[:80]!r} are of no format that is known: give --format, "
        f"one of {', '.join(form for form in Format if form is not Format.AUTO)}"
    )


_TAB: Final = (
    *("job_type", "command", "directory", "steps_argument", "needs_data", "total_steps"),
    *("scale_factor", "priority_weight", "slo", "arrival_time_s"),
)
"""Fields of a line of Gavel's own format."""
_COLUMNS: Final[Mapping[Format, frozenset[str]]] = {
    Format.GAVEL: frozenset({"job_type", "total_steps", "scale_factor", "arrival_time_s"}),
    Format.PHILLY: frozenset({"timestamp", "duration_s", "num_gpus"}),
    Format.SIA: frozenset({"submit_time_s", "application", "num_replicas", "batch_size"}),
    Format.ALIBABA: frozenset({"instance_sn", "gpu_request", "creation_time", "deletion_time"}),
    Format.CSV: frozenset({"arrival_s", "gang"}),
}


def _lines(path: Path, form: Format, text: str, select: Mapping[str, str]) -> list[Line]:
    if form is Format.GAVEL and "\t" in text.partition("\n")[0]:
        rows = csv.reader(io.StringIO(text), delimiter="\t", quoting=csv.QUOTE_NONE)
        lines: list[Line] = [dict(zip(_TAB, row, strict=False)) for row in rows if row]
    else:
        lines = list(csv.DictReader(io.StringIO(text)))
        if lines and not _COLUMNS[form] <= set(lines[0]):
            missing = sorted(_COLUMNS[form] - set(lines[0]))
            raise TraceError(f"{path}: {form} needs the columns {', '.join(missing)}")
    for column in select:
        if lines and column not in lines[0]:
            raise TraceError(f"{path}: there is no column {column} to select by")
    return [line for line in lines if all(line[one] == value for one, value in select.items())]


def gavel_jobs(name: str, lines: Sequence[Line], how: Reading) -> Trace:
    """Jobs with a type of the table and a number of steps."""
    capped: Counter[int] = Counter()
    unknown: Counter[str] = Counter()
    jobs = []
    for number, line in enumerate(lines):
        kind, wanted = line["job_type"], _whole(name, number, line["scale_factor"])
        gang = how.table.gang_below(kind, wanted)
        if gang == 0:
            unknown[kind] += 1
            continue
        capped[wanted] += gang < wanted
        slo = float(line.get("slo") or -1)
        jobs.append(
            TraceJob(
                name=f"{number:05d}",
                gang=gang,
                steps=_whole(name, number, line["total_steps"]),
                arrival_s=_number(name, number, line["arrival_time_s"]),
                speeds=how.table.alone[kind, gang],
                kind=kind,
                weight=float(line.get("priority_weight") or 1),
                tenant=line.get("vc", ""),
                deadline_s=slo if slo > 0 else None,
            )
        )
    return in_order(name, jobs, (_capped(capped), _left_out(unknown)))


def philly_jobs(name: str, lines: Sequence[Line], how: Reading) -> Trace:
    """Arrivals, gangs and durations of Philly; kinds of work drawn from the table by the seed."""
    chance, reference = random.Random(how.seed), reference_type(how.table)
    capped: Counter[int] = Counter()
    jobs = []
    for number, line in enumerate(lines):
        wanted = _whole(name, number, line["num_gpus"])
        gang = max((gang for gang in _gangs(how.table) if gang <= wanted), default=1)
        kind = chance.choice(how.table.kinds(gang))
        capped[wanted] += gang < wanted
        speeds = how.table.alone[kind, gang]
        try:
            arrival_s = datetime.fromisoformat(line["timestamp"]).timestamp()
        except ValueError as error:
            raise TraceError(f"{name}: line {number + 2}: {error}") from error
        duration_s = _number(name, number, line["duration_s"])
        jobs.append(
            TraceJob(
                name=f"{number:05d}",
                gang=gang,
                steps=max(1, round(duration_s * speeds[reference])),
                arrival_s=arrival_s,
                speeds=speeds,
                kind=kind,
                tenant=line.get("vc", ""),
            )
        )
    drawn = f"kinds of work are drawn by seed {how.seed}; durations are those on {reference}."
    return in_order(name, jobs, (drawn, _capped(capped)))


def alibaba_jobs(name: str, lines: Sequence[Line], how: Reading) -> Trace:
    """Inference instances: each holds its GPUs from creation to deletion and is never preempted."""
    last = max((float(line["deletion_time"]) for line in lines if line["deletion_time"]), default=0)
    jobs, bare = [], 0
    for line in lines:
        gang = int(float(line["gpu_request"] or 0))
        if gang < 1:
            bare += 1
            continue
        start = float(line["creation_time"] or 0)
        end = float(line["deletion_time"] or last)
        if end > start:
            jobs.append(
                TraceJob(
                    name=line["instance_sn"],
                    gang=gang,
                    steps=max(1, round(end - start)),
                    arrival_s=start,
                    speeds=dict.fromkeys(how.types or how.table.types, 1.0),
                    kind=f"service {line.get('app_name', '')}".strip(),
                    checkpointable=False,
                    tenant=line.get("app_name", ""),
                )
            )
    notes = (
        f"{bare} instances ask for no GPU and were left out." if bare else "",
        "an instance without a creation time is there from the start, one without a deletion time "
        "to the end; every type serves alike.",
    )
    return in_order(name, jobs, notes)


def own_jobs(name: str, lines: Sequence[Line], how: Reading) -> Trace:
    """A user's own list; a duration is taken as that on the reference type."""
    reference = reference_type(how.table)
    jobs = []
    for number, line in enumerate(lines):
        kind, gang = line.get("job_type", ""), _whole(name, number, line["gang"])
        speeds = how.table.alone.get((kind, gang))
        if speeds is None and not kind:
            speeds = dict.fromkeys(how.types or how.table.types, 1.0)
        if speeds is None:
            raise TraceError(
                f"{name}: line {number + 2}: no speeds of {kind!r} with a gang of {gang}: "
                "give --speeds with them"
            )
        if line.get("steps"):
            steps = _number(name, number, line["steps"])
        elif line.get("duration_s"):
            steps = _number(name, number, line["duration_s"]) * speeds.get(reference, 1.0)
        else:
            raise TraceError(f"{name}: line {number + 2}: steps or duration_s is needed")
        jobs.append(
            TraceJob(
                name=line.get("name") or f"{number:05d}",
                gang=gang,
                steps=max(1, round(steps)),
                arrival_s=_number(name, number, line["arrival_s"]),
                speeds=speeds,
                kind=kind,
                checkpointable=(line.get("checkpoint") or "true").lower() != "false",
                weight=float(line.get("weight") or 1),
                tenant=line.get("tenant") or "",
                priority=int(line.get("priority") or 0),
                deadline_s=float(line["deadline_s"]) if line.get("deadline_s") else None,
            )
        )
    return in_order(name, jobs)


def _sia(name: str, lines: Sequence[Line], how: Reading) -> Trace:
    return sia_jobs(name, lines, how.table, how.seed)


_READERS: Final[Mapping[Format, Callable[[str, Sequence[Line], Reading], Trace]]] = {
    Format.GAVEL: gavel_jobs,
    Format.PHILLY: philly_jobs,
    Format.SIA: _sia,
    Format.ALIBABA: alibaba_jobs,
    Format.CSV: own_jobs,
}


def _gangs(table: SpeedTable) -> tuple[int, ...]:
    return tuple(sorted({gang for _, gang in table.alone if table.kinds(gang)}))


def _whole(name: str, number: int, text: str) -> int:
    return int(_number(name, number, text))


def _number(name: str, number: int, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise TraceError(f"{name}: line {number + 2}: {text!r} is no number") from error


def _capped(capped: Counter[int]) -> str:
    many = sum(capped.values())
    sizes = ", ".join(str(size) for size in sorted(size for size, n in capped.items() if n))
    return f"{many} gangs of {sizes} run with the next smaller gang of the table." if many else ""


def _left_out(unknown: Counter[str]) -> str:
    if not unknown:
        return ""
    kinds = ", ".join(kind for kind, _ in unknown.most_common(3))
    return f"{sum(unknown.values())} jobs of kinds without speeds ({kinds}) were left out."
