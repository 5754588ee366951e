# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The router before the replicas of a service, as a user writes it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from ullage.api.base import ATOMIC
from ullage.api.quantity import MIB
from ullage.api.readers import WireError, quoted
from ullage.api.rules import (
    BATCH_SIZES_RISE,
    BODY_FITS_QUEUE,
    BODY_POSITIVE,
    GENERATIVE_ALONE,
    ROUTER_MEMORY_ENOUGH,
)
from ullage.api.scalars import memory
from ullage.api.spec import SAYS_NOTHING, Keeps, Scalar, Spec, Whole, listed, patterned
from ullage.api.words import BatchingPolicy

_HOW = f"How waiting requests are ordered and batched. {BatchingPolicy.explained()}"
PATH_PATTERN = r"^/[A-Za-z0-9/_.~%?=&-]*$"
CPU_PATTERN = r"^([1-9][0-9]{0,4}m|[1-9][0-9]?)$"


def _cpu_milli(value: object) -> int:
    if not isinstance(value, str):
        raise WireError(f"expected a string, got {type(value).__name__}")
    if not re.fullmatch(CPU_PATTERN, value):
        raise WireError(f"{quoted(value)} is no CPU such as 500m or 1")
    return int(value[:-1]) if value.endswith("m") else int(value) * 1000


_CPU = Scalar(
    read=_cpu_milli,
    write=lambda milli: f"{milli}m" if milli % 1000 else f"{milli // 1000}",
    schema={"type": "string", "maxLength": 8, "pattern": CPU_PATTERN},
)
BatchSize = Annotated[int, Whole(1, 1024)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterLimits(Spec):
    """Limits of one request, and of the requests that wait in one router."""

    rules: ClassVar = (BODY_FITS_QUEUE,)

    body_bytes: Annotated[int, memory(BODY_POSITIVE, unit=1), Field(alias="body")] = 4 * MIB
    """Largest body of a request."""
    queue: Annotated[int, Whole(1, 100_000)] = 10_000
    """Requests that may wait; one more is answered 429."""
    queue_bytes: Annotated[int, memory(BODY_POSITIVE, unit=1), Field(alias="queueMemory")] = (
        256 * MIB
    )
    """Memory of requests that wait or run."""
    stream_s: Annotated[int, Whole(1, 86_400), Field(alias="streamSeconds")] = 3_600
    """Time for an answer that comes in parts, from its first one; then it breaks off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterPods(Spec):
    """The router's own pods."""

    replicas: Annotated[int, Whole(1, 16)] = 1
    """Number of pods. Each batches what comes to it, so one batches best; two go on when one
    fails."""
    cpu_milli: Annotated[int, _CPU, Field(alias="cpu")] = 250
    """CPU that is requested, in whole cores or thousandths (500m). A router uses one core at
    most."""
    memory_bytes: Annotated[int, memory(ROUTER_MEMORY_ENOUGH, unit=1), Field(alias="memory")] = (
        1024 * MIB
    )
    """Memory that is requested, and the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generative(Spec):
    """Limits of replicas that batch continuously: vLLM, SGLang, llama.cpp."""

    cache_limit_percent: Annotated[int, Whole(1, 100)] = 90
    """A replica that reports a KV cache used above this gets no new requests."""
    first_token_ms: Annotated[int, Whole(1, 3_600_000), SAYS_NOTHING] = 0
    """Deadline of the first token of requests that name none; absent = slo.latencyMs."""
    inter_token_ms: Annotated[int, Whole(1, 60_000), SAYS_NOTHING] = 0
    """Longest measured time between two tokens; it limits the requests that a replica runs at once.
    Absent = slo.latencyMs where slo.metric is `itl`, else inFlight is the only limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching(Spec):
    """A router before the replicas that batches requests before their deadlines."""

    rules: ClassVar = (GENERATIVE_ALONE,)

    policy: Annotated[BatchingPolicy, Field(description=_HOW)] = BatchingPolicy.ORLOJ
    sizes: Annotated[
        tuple[BatchSize, ...],
        listed(16, least=1, **ATOMIC),
        Keeps(BATCH_SIZES_RISE),
    ] = (1, 2, 4, 8, 16)
    """Batch sizes that may be chosen, rising. `[1]` batches nothing: for servers that make their
    own batches. One size with policy `FIFO` is a static batch size."""
    in_flight: Annotated[int, Whole(1, 1024)] = 1
    """Batches that a replica runs at once; with generative, requests."""
    hold_s: Annotated[int, Whole(0, 600), Field(alias="holdSeconds")] = 30
    """While no replica is ready, a request waits so long from its arrival; then it is answered 503
    with Retry-After. 0 = to its deadline."""
    grpc_port: Annotated[int, Whole(1, 65_535), SAYS_NOTHING] = 0
    """Port of the Service for the Open Inference Protocol over gRPC; absent = HTTP only. Replicas
    speak HTTP in either case."""
    probe_path: Annotated[
        str,
        patterned(PATH_PATTERN, "path such as /v2/health/ready", max_length=256),
        SAYS_NOTHING,
    ] = ""
    """Path that a replica answers with 200 when it is ready; absent = that of the first container's
    readinessProbe, else /v2/health/ready."""
    generative: Generative | None = None
    """The replicas generate text and batch continuously: the router sends requests in OpenAI's
    format one by one, up to inFlight at a time, in the order that keeps most first tokens in time.
    Needs sizes [1]."""
    limits: RouterLimits = RouterLimits()
    """What clients may send, and how much may wait in one router."""
    router: RouterPods = RouterPods()
    """The router's own pods."""
