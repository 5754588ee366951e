# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Traces in Kineto's format with known truth, event by event."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from ullage.api.rank_traces import RankTrace
from ullage.engines.tracing.kineto_events import KinetoTrace, read_kineto_trace
from ullage.engines.tracing.limits import TraceLimits
from ullage.engines.tracing.summary import summarised

Event = dict[str, object]
MAIN, WORKER = 10, 11
"""Threads of the program."""
STREAM = 7


def event(
    category: str,
    name: str,
    start: float,
    duration: float,
    thread: int = MAIN,
    **arguments: object,
) -> Event:
    """A complete event; words of ``arguments`` have ``_`` for a space."""
    body: Event = {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 1,
        "tid": thread,
        "ts": start,
        "dur": duration,
    }
    return body | {"args": {key.replace("_", " "): value for key, value in arguments.items()}}


def step(number: int, start: float, duration: float) -> Event:
    return event("user_annotation", f"ProfilerStep#{number}", start, duration)


def operation(start: float, duration: float, name: str = "aten::mm", thread: int = MAIN) -> Event:
    return event("cpu_op", name, start, duration, thread)


def fetch(start: float, duration: float) -> Event:
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    return event("user_annotation", name, start, duration)


def gloo(start: float, duration: float, name: str = "gloo:all_reduce") -> Event:
    return event("user_annotation", name, start, duration, WORKER)


def launch(start: float, correlation: int, duration: float = 1.0) -> Event:
    return event("cuda_runtime", "cudaLaunchKernel", start, duration, correlation=correlation)


def wait(start: float, duration: float) -> Event:
    return event("cuda_runtime", "cudaDeviceSynchronize", start, duration)


def kernel(
    start: float,
    duration: float,
    correlation: int | None = None,
    name: str = "gemm",
    stream: int = STREAM,
) -> Event:
    arguments: dict[str, object] = {"stream": stream}
    if correlation is not None:
        arguments["correlation"] = correlation
    return event("kernel", name, start, duration, stream, **arguments)


def nccl(start: float, duration: float, correlation: int | None = None, stream: int = 20) -> Event:
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    return kernel(start, duration, correlation, name, stream)


def copy(start: float, duration: float, kind: str = "Pinned -> Device") -> Event:
    return event("gpu_memcpy", f"Memcpy HtoD ({kind})", start, duration, STREAM, stream=STREAM)


def document(events: Sequence[Event], **head: object) -> bytes:
    """The file, laid out as Kineto does."""
    return json.dumps({"schemaVersion": 1, **head, "traceEvents": list(events)}, indent=2).encode()


def pieces(data: bytes, size: int = 1 << 16) -> Iterator[bytes]:
    for place in range(0, len(data), size):
        yield data[place : place + size]


def read(events: Iterable[Event], **head: object) -> KinetoTrace:
    return read_kineto_trace(pieces(document(list(events), **head)))


def summary(
    events: Iterable[Event], limits: TraceLimits | None = None, **head: object
) -> RankTrace:
    return summarised(pieces(document(list(events), **head)), limits)
