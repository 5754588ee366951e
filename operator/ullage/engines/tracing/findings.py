# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Findings of a joined trace, and its summary in one line.

A share is the most that could be saved. Shares of two findings may be of the same time (short
kernels and a slow program leave the same device idle), so they are never added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from ullage.api.rank_traces import RankTrace, TimeBreakdown
from ullage.api.reasons import Reason
from ullage.engines.tracing.job_trace import (
    MAX_FINDINGS,
    ClockAlignment,
    DelayCause,
    JobTrace,
    TraceFinding,
)

FEWEST_STEPS: Final = 3
"""Minimum number of steps for a finding."""
EXPOSED_SHARE: Final = 0.2
DATA_SHARE: Final = 0.1
IDLE_SHARE: Final = 0.2
HOST_SHARE: Final = 0.5
"""Share of the program on the CPU in the critical path."""
SHORT_SHARE: Final = 0.5
SYNCHRONISED_SHARE: Final = 0.1
"""Waits for the device as a share of operations."""
FEWEST_OPERATIONS: Final = 50
PAGEABLE_SHARE: Final = 0.05
_CAUSES: Final = {
    DelayCause.INPUT: "input",
    DelayCause.COMPUTE: "compute",
    DelayCause.COPIES: "copies",
    DelayCause.HOST: "host",
}


def findings(job: JobTrace, traces: Sequence[RankTrace]) -> JobTrace:
    """The joined trace with its findings and its summary line."""
    listed = sorted(_findings(job, traces), key=lambda finding: -finding.share_percent)
    return replace(job, findings=tuple(listed[:MAX_FINDINGS]), message=_line(job, len(traces)))


def _findings(job: JobTrace, traces: Sequence[RankTrace]) -> Iterator[TraceFinding]:
    if job.alignment is ClockAlignment.UNALIGNED:
        yield TraceFinding(
            reason=Reason.CLOCKS_UNALIGNED,
            message=f"{job.collectives} collectives of all ranks of a group were compared",
        )
    waited = 0.0
    if job.straggler is not None:
        straggler = job.straggler
        view = next(view for view in job.ranks if view.rank == straggler.rank)
        waited = view.lead_micros * (len(traces) - 1)
        yield TraceFinding(
            reason=Reason.STRAGGLER,
            share_percent=_share(view.lead_micros, view.step.span_micros),
            rank=straggler.rank,
            message=(
                f"rank {straggler.rank}{f' on {view.node}' if view.node else ''} arrives last at"
                f" {straggler.arrives_last} of {straggler.collectives} collectives:"
                f" {straggler.delay_micros / 1e3:.1f} ms more a step than the others"
                f" ({_CAUSES[straggler.cause]}), own work {straggler.slowdown_percent / 100:.2f}"
                " times the median"
            ),
        )
    if job.steps < FEWEST_STEPS:
        return
    yield from _of_all(job, traces, waited)


def _of_all(job: JobTrace, traces: Sequence[RankTrace], waited: float) -> Iterator[TraceFinding]:
    """Findings of the ranks together; ``waited`` is exposed communication that one rank causes."""
    step, span = job.step, job.step.span_micros
    exposed = max(0, round(step.communication_micros - waited))
    if exposed > EXPOSED_SHARE * span:
        yield TraceFinding(
            reason=Reason.EXPOSED_COMMUNICATION,
            share_percent=_share(exposed, span),
            message=f"{_percent(exposed, span)} of the step is communication without computation"
            f"{'' if not waited else ', beside waiting for one rank'}",
        )
    if step.data_wait_micros > DATA_SHARE * span:
        yield TraceFinding(
            reason=Reason.WAITS_FOR_DATA,
            share_percent=_share(step.data_wait_micros, span),
            message=f"{_percent(step.data_wait_micros, span)} of the step waits for the next batch",
        )
    on_device = [trace for trace in traces if trace.counters.kernels]
    if on_device:
        yield from _of_devices(step, on_device)
    yield from _of_programs(span, traces)


def _of_devices(step: TimeBreakdown, traces: Sequence[RankTrace]) -> Iterator[TraceFinding]:
    span, idle = step.span_micros, step.idle_micros
    if idle <= IDLE_SHARE * span:
        return
    paths = [trace.critical_path for trace in traces]
    host = sum(path.host_micros for path in paths)
    on_path = sum(trace.step.span_micros for trace in traces)
    if host > HOST_SHARE * on_path:
        yield TraceFinding(
            reason=Reason.HOST_BOUND,
            share_percent=_share(idle, span),
            message=f"the device idles for {_percent(idle, span)} of the step, and"
            f" {_percent(host, on_path)} of the critical path is the program on the CPU",
        )
    kernels = sum(trace.counters.kernels for trace in traces)
    short = sum(trace.counters.short_kernels for trace in traces)
    if short > SHORT_SHARE * kernels:
        yield TraceFinding(
            reason=Reason.SHORT_KERNELS,
            share_percent=_share(idle, span),
            message=f"{short} of {kernels} kernels take less than 10 microseconds, and the device"
            f" idles for {_percent(idle, span)} of the step",
        )


def _of_programs(span: int, traces: Sequence[RankTrace]) -> Iterator[TraceFinding]:
    counters = [trace.counters for trace in traces]
    operations = sum(each.operations for each in counters)
    reads = sum(each.scalar_reads for each in counters)
    waits = sum(max(each.synchronisations, each.scalar_reads) for each in counters)
    if operations >= FEWEST_OPERATIONS and waits > SYNCHRONISED_SHARE * operations:
        lost = sum(each.synchronisation_micros for each in counters)
        yield TraceFinding(
            reason=Reason.SYNCHRONISES_OFTEN,
            share_percent=_share(lost, span),
            message=f"{waits} waits for the device at {operations} operations, {reads} of them to"
            " read one value",
        )
    steps = sum(len(trace.steps) for trace in traces)
    allocations = sum(each.allocations for each in counters)
    if allocations >= steps > 0:
        yield TraceFinding(
            reason=Reason.ALLOCATES_IN_STEPS,
            message=f"{allocations} calls in {steps} steps allocate or free memory of the device",
        )
    pageable = sum(each.pageable_micros for each in counters)
    if pageable > PAGEABLE_SHARE * span:
        yield TraceFinding(
            reason=Reason.PAGEABLE_COPIES,
            share_percent=_share(pageable, span),
            message=f"copies from or to memory that is not pinned take {_percent(pageable, span)}"
            " of the step",
        )


def _line(job: JobTrace, ranks: int) -> str:
    step, span = job.step, job.step.span_micros
    parts = {
        "compute": step.compute_micros,
        "exposed communication": step.communication_micros,
        "copies": step.copies_micros,
        "data wait": step.data_wait_micros,
        "idle": step.idle_micros,
    }
    if job.first_step:
        steps = f"steps {job.first_step}-{job.first_step + max(1, job.steps) - 1}"
    else:
        steps = f"{job.steps} steps"
    shares = ", ".join(
        f"{name} {_percent(part, span)}" for name, part in parts.items() if part or name != "copies"
    )
    line = f"{ranks} rank{'' if ranks == 1 else 's'}, {steps}, {shares}"
    if job.straggler is None:
        return line
    straggler = job.straggler
    return (
        f"{line}; rank {straggler.rank} arrives last in {straggler.arrives_last} of"
        f" {straggler.collectives} collectives ({_CAUSES[straggler.cause]})"
    )


def _share(part: float, span: int) -> int:
    """A part of a span in percent."""
    return min(100, round(100 * part / span)) if span else 0


def _percent(part: float, span: int) -> str:
    return f"{_share(part, span)} %"
