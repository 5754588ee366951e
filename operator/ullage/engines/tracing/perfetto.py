# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The joined view in Chrome's JSON format, as https://ui.perfetto.dev and chrome://tracing open it.

A process for each rank, with its steps and its collectives on the clock of the first rank's node;
an arrow leads from the rank that arrives last at a collective to those that wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.api.rank_traces import RankTrace
from ullage.engines.tracing.alignment import Passage
from ullage.engines.tracing.job_trace import ClockAlignment, JobTrace
from ullage.engines.tracing.join import NodeTrace, matched

_STEPS, _COLLECTIVES = 1, 2
"""Threads of each rank."""


def perfetto_view(job: JobTrace, ranks: Sequence[NodeTrace]) -> dict[str, object]:
    """The JSON of the view.

    Args:
        job: The joined trace of these ranks.
        ranks: Their summaries.
    """
    offsets = {view.rank: view.clock_offset_micros for view in job.ranks}
    starts = [traced.trace.start_micros - offsets.get(traced.rank, 0) for traced in ranks]
    origin = min(starts, default=0)
    events: list[dict[str, object]] = []
    for traced, start in zip(ranks, starts, strict=True):
        events += _names(traced)
        events += _steps(traced.rank, traced.trace, start - origin)
        events += _collectives(traced.rank, traced.trace, start - origin)
    if job.alignment is not ClockAlignment.UNALIGNED:
        for number, (_, passages) in enumerate(matched(ranks)):
            events += _arrows(number, passages, offsets, origin)
    return {
        "displayTimeUnit": "ms",
        "traceEvents": events,
        "otherData": {"summary": job.message, "clocks": job.alignment.value},
    }


def _names(traced: NodeTrace) -> Iterator[dict[str, object]]:
    where = f" on {traced.node}" if traced.node else ""
    for kind, thread, name in (
        ("process_name", 0, f"rank {traced.rank}{where}"),
        ("thread_name", _STEPS, "steps"),
        ("thread_name", _COLLECTIVES, "collectives"),
    ):
        yield {"ph": "M", "name": kind, "pid": traced.rank, "tid": thread, "args": {"name": name}}
    yield {
        "ph": "M",
        "name": "process_sort_index",
        "pid": traced.rank,
        "args": {"sort_index": traced.rank},
    }


def _steps(rank: int, trace: RankTrace, start: int) -> Iterator[dict[str, object]]:
    steps = trace.steps
    for at in range(len(steps)):
        yield {
            "ph": "X",
            "cat": "step",
            "name": f"step {trace.first_step + at if trace.first_step else at + 1}",
            "pid": rank,
            "tid": _STEPS,
            "ts": start + steps.starts_micros[at],
            "dur": steps.spans_micros[at],
            "args": {
                "compute (us)": steps.compute_micros[at],
                "exposed communication (us)": steps.communication_micros[at],
                "copies (us)": steps.copies_micros[at],
                "data wait (us)": steps.data_wait_micros[at],
            },
        }


def _collectives(rank: int, trace: RankTrace, start: int) -> Iterator[dict[str, object]]:
    columns = trace.collectives
    for at in range(len(columns)):
        kind = columns.kinds[columns.kind[at]]
        yield {
            "ph": "X",
            "cat": "collective",
            "name": kind.name,
            "pid": rank,
            "tid": _COLLECTIVES,
            "ts": start + columns.starts_micros[at],
            "dur": columns.spans_micros[at],
            "args": {"group": kind.group, "number": f"{columns.ordinal[at] + 1}/{columns.of[at]}"},
        }


def _arrows(
    number: int, passages: Sequence[Passage], offsets: dict[int, int], origin: int
) -> Iterator[dict[str, object]]:
    """From the last arrival to the end of the same collective in each other rank."""
    entered = {
        passage.rank: passage.start - offsets.get(passage.rank, 0) - origin for passage in passages
    }
    last = max(entered, key=lambda rank: (entered[rank], -rank))
    for passage in passages:
        if passage.rank == last:
            continue
        flow = {"cat": "waits", "name": "waits", "id": f"{number}-{passage.rank}"}
        end = passage.end - offsets.get(passage.rank, 0) - origin
        yield flow | {"ph": "s", "pid": last, "tid": _COLLECTIVES, "ts": entered[last]}
        yield flow | {
            "ph": "f",
            "bp": "e",
            "pid": passage.rank,
            "tid": _COLLECTIVES,
            "ts": max(end, entered[last]),
        }
