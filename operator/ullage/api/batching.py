# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The router before the replicas of a service, as a user writes it."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from ullage.api.base import Model, Quantity
from ullage.api.rules import (
    BATCH_SIZES_RISE,
    BODY_FITS_QUEUE,
    BODY_POSITIVE,
    GENERATIVE_ALONE,
    ROUTER_MEMORY_ENOUGH,
    validations,
)
from ullage.api.words import BatchingPolicy

_HOW = f"How waiting requests are ordered and batched. {BatchingPolicy.explained()}"
_INT32 = {"format": "int32"}
PATH_PATTERN = r"^/[A-Za-z0-9/_.~%?=&-]*$"
CPU_PATTERN = r"^([1-9][0-9]{0,4}m|[1-9][0-9]?)$"

BatchSize = Annotated[int, Field(ge=1, le=1024, json_schema_extra=_INT32)]


class RouterLimits(Model):
    """What clients may send, and how much may wait in one router."""

    model_config = ConfigDict(json_schema_extra=validations(BODY_FITS_QUEUE))

    body: Annotated[Quantity, Field(json_schema_extra=validations(BODY_POSITIVE))] = "4Mi"
    """Largest body of a request."""
    queue: Annotated[int, Field(ge=1, le=100_000, json_schema_extra=_INT32)] = 10_000
    """Requests that may wait; one more is answered 429."""
    queue_memory: Annotated[Quantity, Field(json_schema_extra=validations(BODY_POSITIVE))] = "256Mi"
    """Memory of requests that wait or run."""
    stream_seconds: Annotated[int, Field(ge=1, le=86_400, json_schema_extra=_INT32)] = 3_600
    """Time for an answer that comes in parts, from its first one; then it breaks off."""


class RouterPods(Model):
    """The router's own pods."""

    replicas: Annotated[int, Field(ge=1, le=16, json_schema_extra=_INT32)] = 1
    """Number of pods. Each batches what comes to it, so one batches best; two go on when one
    fails."""
    cpu: Annotated[str, Field(max_length=8, pattern=CPU_PATTERN)] = "250m"
    """CPU that is requested, in whole cores or thousandths (500m). A router uses one core at
    most."""
    memory: Annotated[Quantity, Field(json_schema_extra=validations(ROUTER_MEMORY_ENOUGH))] = "1Gi"
    """Memory that is requested, and the limit."""


class Generative(Model):
    """Limits of replicas that batch continuously: vLLM, SGLang, llama.cpp."""

    cache_limit_percent: Annotated[int, Field(ge=1, le=100, json_schema_extra=_INT32)] = 90
    """A replica that reports a KV cache used above this gets no new requests."""
    first_token_ms: Annotated[int, Field(ge=1, le=3_600_000, json_schema_extra=_INT32)] | None = (
        None
    )
    """Deadline of the first token of requests that name none; absent = slo.latencyMs."""
    inter_token_ms: Annotated[int, Field(ge=1, le=60_000, json_schema_extra=_INT32)] | None = None
    """Longest measured time between two tokens; it limits the requests that a replica runs at once.
    Absent = slo.latencyMs where slo.metric is `itl`, else inFlight is the only limit."""


class Batching(Model):
    """A router before the replicas that batches requests before their deadlines."""

    model_config = ConfigDict(json_schema_extra=validations(GENERATIVE_ALONE))

    policy: Annotated[BatchingPolicy, Field(description=_HOW)] = BatchingPolicy.ORLOJ
    sizes: Annotated[
        tuple[BatchSize, ...],
        Field(
            min_length=1,
            max_length=16,
            json_schema_extra=validations(BATCH_SIZES_RISE) | {"x-kubernetes-list-type": "atomic"},
        ),
    ] = (1, 2, 4, 8, 16)
    """Batch sizes that may be chosen, rising. `[1]` batches nothing: for servers that make their
    own batches. One size with policy `FIFO` is a static batch size."""
    in_flight: Annotated[int, Field(ge=1, le=1024, json_schema_extra=_INT32)] = 1
    """Batches that a replica runs at once; with generative, requests."""
    hold_seconds: Annotated[int, Field(ge=0, le=600, json_schema_extra=_INT32)] = 30
    """While no replica is ready, a request waits so long from its arrival; then it is answered 503
    with Retry-After. 0 = to its deadline."""
    grpc_port: Annotated[int, Field(ge=1, le=65535, json_schema_extra=_INT32)] | None = None
    """Port of the Service for the Open Inference Protocol over gRPC; absent = HTTP only. Replicas
    speak HTTP in either case."""
    probe_path: Annotated[str, Field(max_length=256, pattern=PATH_PATTERN)] | None = None
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
