# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Hostile traces: each costs its own request, with a reason, and no one else more than a moment.

``python -m bench.tracing_hostile``. One order is placed in the directories of several containers,
as the agent does, and each of them answers it in a way that harms: bombs, ten million events,
endless names, deep nesting, links, pipes, holes, forged ranks, full directories. The agent's own
code collects the answers and has them analysed in processes of their own; the operator's own code
joins the reports. CPU time counts what the agent and the operator spend beside these processes.
Figures are added to ``tracing.json``.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import report
from ullage.api.captures import ARMED_BYTES, ARMED_FILE, METADATA, TRACE_FOLDER
from ullage.api.reasons import Reason
from ullage.api.steps import RANK_LAYOUT, RANK_MAGIC, RANK_VERSION
from ullage.api.traces import DesiredTrace, TraceState
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.trace import (
    ProfileRequestRecord,
    ProfileRequestStatus,
    StepWindow,
    TracedPod,
)
from ullage.scheduling.observation.profile_requests import NodeView, TraceInputs, next_status
from ullage.scheduling.observation.traced_pods import PodOfJob, TracedTarget
from ullage_node.model.devices import ContainerKey
from ullage_node.telemetry.ranks import read_rank_records
from ullage_node.traces.analysis import analysed
from ullage_node.traces.tracer import Tracer

UID: Final = "hostile"
START: Final = 100
STEPS: Final = 5
NODE: Final = "node-1"
EVENTS: Final = 10_000_000
NAMES: Final = 200_000
FILES: Final = 100_000
MIB: Final = 1 << 20
SMALL_EVENT: Final = b',{"ph":"i","ts":1}'
LOOKS_MOST: Final = 200
OTHERS_CPU_S: Final = 2.0
BARS: Final[report.Bars] = {
    "hostile_without_reason": lambda traces: traces == 0,
    "hostile_others_cpu_s": lambda seconds: seconds <= OTHERS_CPU_S,
    "hostile_others_harmed": lambda traces: traces == 0,
}

Write = Callable[[Path], None]
"""Writes an answer to the order at this path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a container answers, and the reasons that fit; none = its trace is good."""

    write: Write
    reasons: frozenset[Reason] = frozenset()


def document(**metadata: object) -> bytes:
    """A good trace of a step, with what it says of itself."""
    common = {"ph": "X", "pid": 1, "tid": 1}
    events = [
        {**common, "cat": "user_annotation", "name": "ProfilerStep#100", "ts": 0, "dur": 100},
        {**common, "cat": "cpu_op", "name": "aten::mm", "ts": 10, "dur": 20},
    ]
    own = {"id": UID, "step": START, "steps": STEPS, **metadata}
    body = {"schemaVersion": 1, METADATA: own, "traceEvents": events}
    return gzip.compress(json.dumps(body).encode(), 1)


def good(rank: int, **more: object) -> Write:
    """A trace that claims this rank."""
    return lambda path: _put(path, document(rank=rank, world=4, **more))


def _put(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def bomb(path: Path) -> None:
    """Small events, 600 MiB of them, compressed as far as they go."""
    member = gzip.compress(SMALL_EVENT * (MIB // len(SMALL_EVENT)), 9)
    with path.open("wb") as file:
        file.write(gzip.compress(b'{"traceEvents": [{}'))
        for _ in range(600):
            file.write(member)


def crowd(path: Path) -> None:
    """Ten million events, each as small as possible."""
    with path.open("wb") as file:
        file.write(b'{"traceEvents": [{}')
        for _ in range(EVENTS // 10_000):
            file.write(SMALL_EVENT * 10_000)
        file.write(b"]}")


def names(path: Path) -> None:
    """A name for each operation."""
    event = ',{{"ph":"X","cat":"cpu_op","pid":1,"tid":1,"ts":1,"dur":1,"name":"{}"}}'
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write('{"traceEvents": [{}')
        for at in range(NAMES):
            file.write(event.format(os.urandom(12).hex() + str(at)))
        file.write("]}")


def long_name(path: Path) -> None:
    """One name of 20 MB."""
    with path.open("wb") as file:
        file.write(b'{"traceEvents": [{"ph":"X","cat":"cpu_op","ts":1,"dur":1,"name":"')
        for _ in range(20):
            file.write(b"a" * MIB)
        file.write(b'"}]}')


def deep(path: Path) -> None:
    """A list in a list, a million times."""
    path.write_bytes(b'{"traceEvents": [' + b"[" * MIB)


def link(path: Path) -> None:
    """A link to a file of the node."""
    path.symlink_to("/etc/passwd")


def pipe(path: Path) -> None:
    """A FIFO without a writer."""
    os.mkfifo(path)


def hole(path: Path) -> None:
    """A terabyte of nothing."""
    with path.open("wb") as file:
        file.truncate(1 << 40)


def full(path: Path) -> None:
    """A directory of a hundred thousand files, with line ends in their names."""
    for at in range(FILES):
        (path.parent / f"{UID}-{at}\n.json.gz").touch()


LARGE: Final = frozenset({Reason.TRACE_TOO_LARGE, Reason.TRACE_TOO_SLOW})
INVALID: Final = frozenset({Reason.TRACE_INVALID})
MISSING: Final = frozenset({Reason.TRACE_MISSING})
UNKNOWN: Final = frozenset({Reason.RANK_UNKNOWN})
ANSWERS: Final[Mapping[str, Answer]] = {
    "good": Answer(write=good(0)),
    "bomb": Answer(write=bomb, reasons=LARGE),
    "10^7 events": Answer(write=crowd, reasons=LARGE),
    "endless names": Answer(write=names, reasons=LARGE),
    "a name of 20 MB": Answer(write=long_name, reasons=LARGE),
    "deep nesting": Answer(write=deep, reasons=LARGE),
    "link": Answer(write=link, reasons=MISSING),
    "pipe": Answer(write=pipe, reasons=MISSING),
    "hole of 1 TB": Answer(write=hole, reasons=INVALID),
    "full directory": Answer(write=full, reasons=MISSING),
    "rank of another": Answer(write=good(0), reasons=UNKNOWN),
    "rank beyond the world": Answer(write=good(4), reasons=UNKNOWN),
    "rank 999999999": Answer(write=good(999_999_999), reasons=UNKNOWN),
    "another order": Answer(write=good(2, id="other"), reasons=UNKNOWN),
    "another step": Answer(write=good(3, step=7), reasons=INVALID),
}


def prepare(root: Path) -> dict[str, ContainerKey]:
    """Directories of containers whose programs have reached the ordered steps; by pod uid."""
    keys = {f"pod-{at}": ContainerKey(pod_uid=f"pod-{at}", container="main")
            for at in range(len(ANSWERS))}  # fmt: skip
    for key, answer in zip(keys.values(), ANSWERS.values(), strict=True):
        folder = root / key.directory / TRACE_FOLDER
        folder.mkdir(parents=True)
        (folder / ARMED_FILE).write_bytes(bytes(ARMED_BYTES))
        steps = START + STEPS
        numbers = (time.monotonic_ns(), 0, 4, steps * 35_000_000, *[0] * 5, steps)
        packed = RANK_LAYOUT.pack(RANK_MAGIC, RANK_VERSION, steps, *numbers)
        (folder / "record-0").write_bytes(packed)
        answer.write(folder / f"{UID}-0.json.gz")
    return keys


def request() -> ProfileRequestRecord:
    """The request, whose time is over."""
    pods = tuple(TracedPod(uid=f"pod-{at}", pod=name, node=NODE) for at, name in enumerate(ANSWERS))
    status = ProfileRequestStatus(
        phase="Capturing", attempt=1, asked_time=1.0, start_step=START, give_up_time=2.0,
        window=StepWindow(first_step=START, last_step=START + STEPS - 1), pods=pods,
    )  # fmt: skip
    return ProfileRequestRecord(
        ref=ObjectRef(kind="ProfileRequest", namespace="default", name=UID, uid=UID),
        generation=1, resource_version="1", created=1.0, job_kind="Job", job_name="hostile",
        status=status,
    )  # fmt: skip


async def reported(tracer: Tracer) -> None:
    """Let the agent look until nothing changes any more."""
    expected = sum(answer.reasons != MISSING for answer in ANSWERS.values())
    for _ in range(LOOKS_MOST):
        await tracer.look()
        if sum(report.state is TraceState.DONE for report in tracer.reports) == expected:
            return


def joined(tracer: Tracer) -> ProfileRequestStatus:
    """The status that the operator writes."""
    views = tuple(
        PodOfJob(uid=f"pod-{at}", name=name, node=NODE, rank=None, devices=1, running=True)
        for at, name in enumerate(ANSWERS)
    )
    return next_status(
        request(),
        TraceInputs(
            now=3.0,
            target=TracedTarget(exists=True, pods=views, instrumented=True),
            nodes={NODE: NodeView(heartbeat=3.0, reports=tracer.reports)},
        ),
    )


def main() -> int:
    """Measure, print one table, add the figures to build/bench/tracing.json."""
    # on a disk: a file system in memory has no holes of a terabyte, and counts as memory
    with tempfile.TemporaryDirectory(dir=report.ROOT / "build") as folder:
        keys = prepare(Path(folder))
        tracer = Tracer(
            containers=keys.get,
            folder=lambda key: Path(folder) / key.directory,
            progress=dict,
            read_ranks=read_rank_records,
            analyse=analysed,
        )
        tracer.want(
            DesiredTrace(id=UID, pod_uid=uid, start_step=START, steps=STEPS) for uid in keys
        )
        began_s, own_s = time.monotonic(), time.process_time()
        asyncio.run(reported(tracer))
        status = joined(tracer)
        own_s = time.process_time() - own_s
        took_s = time.monotonic() - began_s
    analysing_s = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    lines: list[report.Row] = []
    unreasoned, harmed = 0, 0
    for name, answer in ANSWERS.items():
        (capture,) = (capture for capture in status.ranks if capture.pod == name)
        fits = capture.reason in answer.reasons if answer.reasons else capture.reason is None
        unreasoned += bool(answer.reasons) and not fits
        harmed += not answer.reasons and not fits
        seen = f"{capture.reason}: {capture.message}" if capture.reason else capture.state
        lines.append(report.Row(what=name, ours=("" if fits else "NOT AS EXPECTED ") + seen[:100]))
    found: dict[str, report.Figure] = {
        "hostile_traces": sum(bool(answer.reasons) for answer in ANSWERS.values()),
        "hostile_without_reason": unreasoned,
        "hostile_others_harmed": harmed,
        "hostile_others_cpu_s": round(own_s, 3),
        "hostile_analysis_cpu_s": round(analysing_s, 1),
        "hostile_took_s": round(took_s, 1),
    }
    lines += [
        report.Row(
            what="CPU seconds of agent and operator",
            ours=f"{own_s:.2f}",
            limit=f"{OTHERS_CPU_S:.0f}",
        ),
        report.Row(what="of the processes that analyse", ours=f"{analysing_s:.1f}"),
    ]
    report.write("tracing", report.figures_before("tracing") | found, lines)
    return report.judge(found, BARS)


if __name__ == "__main__":
    sys.exit(main())
