# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The router's page of metrics; labels take a bounded number of values."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from ullage.process.build_metrics import register_build
from ullage_run.requests import BOUNDS_SECONDS, METRIC

COMPONENT: Final = "router"


class RequestResult(StrEnum):
    """Results of a request, accepted or refused."""

    MET = "met"
    LATE = "late"
    DROPPED = "dropped"
    FAILED = "failed"


class IntakeRefusal(StrEnum):
    """Reasons why a request was not accepted."""

    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    SLOW = "slow"
    FULL = "full"


class BatchSplit(StrEnum):
    """Reasons why a batch is rerun in parts."""

    REFUSED = "refused"
    UNREADABLE = "unreadable"
    OUTPUT = "output"
    """An output of one of its requests cannot be represented in the requested JSON."""


class RouterMetrics:
    """The router's metrics; ``registry`` is served as ``/metrics``.

    Args:
        waiting: Number of waiting requests.
        held_bytes: Bytes of waiting and running requests.
        in_flight: Number of requests at replicas.
        up: Number of ready replicas.
        sizes: Batch sizes.
        cache_full: Number of replicas with a full KV cache; only of generative servers.
    """

    def __init__(
        self,
        waiting: Callable[[], float],
        held_bytes: Callable[[], float],
        in_flight: Callable[[], float],
        up: Callable[[], float],
        sizes: tuple[int, ...],
        cache_full: Callable[[], float] | None = None,
    ) -> None:
        self.registry = registry = CollectorRegistry()
        register_build(registry, COMPONENT)
        self._requests = Counter(
            "ullage_requests",
            "Requests by what became of them: in time, after the deadline, refused, failed.",
            ["outcome", "app"],
            registry=registry,
        )
        self._by_outcome: dict[tuple[RequestResult, str], Counter] = {}
        self._refused = Counter(
            "ullage_requests_refused",
            "Requests that were not taken in, by reason.",
            ["reason"],
            registry=registry,
        )
        self._retried = Counter(
            "ullage_requests_retried", "Requests that a second replica ran.", registry=registry
        )
        self._seconds = Histogram(
            METRIC,
            "Time from arrival to answer, seconds.",
            buckets=BOUNDS_SECONDS,
            registry=registry,
        )
        self._first = Histogram(
            "ullage_first_part_seconds",
            "Time from arrival to the first part of an answer that comes in parts, seconds.",
            buckets=BOUNDS_SECONDS,
            registry=registry,
        )
        self._tokens: Counter | None = None
        self._between: Histogram | None = None
        if cache_full is not None:
            self._tokens = Counter(
                "ullage_output_tokens", "Tokens of answers.", ["app"], registry=registry
            )
            self._between = Histogram(
                "ullage_inter_token_seconds",
                "Mean time between tokens of a streamed answer, seconds.",
                buckets=BOUNDS_SECONDS,
                registry=registry,
            )
            Gauge(
                "ullage_replicas_cache_full",
                "Replicas without new requests, because their KV cache is used above the limit.",
                registry=registry,
            ).set_function(cache_full)
        self._kept = Counter(
            "ullage_requests_held",
            "Requests that came, or whose deadline passed, while no replica was ready, and waited.",
            registry=registry,
        )
        self._wake = Histogram(
            "ullage_wake_seconds",
            "Time from the first request that was held to a replica that is ready, seconds.",
            buckets=(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0),
            registry=registry,
        )
        self._sizes = Histogram(
            "ullage_batch_size", "Requests of a batch.", buckets=sizes, registry=registry
        )
        self._error = Histogram(
            "ullage_predicted_latency_error",
            "Difference of predicted and real time of a batch, as part of the real one.",
            buckets=(0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0),
            registry=registry,
        )
        self._lost = Counter(
            "ullage_batches_failed", "Batches that a replica did not answer.", registry=registry
        )
        self._splits = Counter(
            "ullage_batches_split",
            "Batches whose requests ran once more, apart, by reason.",
            ["reason"],
            registry=registry,
        )
        for reason in BatchSplit:
            self._splits.labels(reason.value)
        for name, text, value in (
            ("ullage_queue_length", "Requests that wait.", waiting),
            ("ullage_requests_in_flight", "Requests that replicas have.", in_flight),
            ("ullage_held_bytes", "Bytes of requests that wait or run.", held_bytes),
            ("ullage_replicas_up", "Replicas that are ready.", up),
        ):
            Gauge(name, text, registry=registry).set_function(value)

    def ended(self, result: RequestResult, app: str, seconds: float) -> None:
        """Count a request that was answered or refused."""
        key = (result, app)
        if key not in self._by_outcome:
            self._by_outcome[key] = self._requests.labels(result.value, app)
        self._by_outcome[key].inc()
        if result in (RequestResult.MET, RequestResult.LATE):
            self._seconds.observe(seconds)

    def began(self, seconds: float) -> None:
        """Record the time of the first part of an answer."""
        self._first.observe(seconds)

    def generated(self, app: str, tokens: int, between_s: float) -> None:
        """Record the tokens of an answer, and the mean time between them; 0 = unknown."""
        if self._tokens is not None and self._between is not None:
            self._tokens.labels(app).inc(tokens)
            if between_s > 0:
                self._between.observe(between_s)

    def refused(self, reason: IntakeRefusal) -> None:
        """Count a request that was not accepted."""
        self._refused.labels(reason.value).inc()

    def held(self) -> None:
        """Count a request that waits for a ready replica."""
        self._kept.inc()

    def woke(self, seconds: float) -> None:
        """Record how long the first of those waited."""
        self._wake.observe(seconds)

    def retried(self) -> None:
        """Count a retried request."""
        self._retried.inc()

    def lost(self) -> None:
        """Count a batch that was not answered."""
        self._lost.inc()

    def split(self, reason: BatchSplit) -> None:
        """Count a batch that is rerun in parts."""
        self._splits.labels(reason.value).inc()

    def ran(self, size: int, predicted_s: float | None, seconds: float) -> None:
        """Count a batch that was answered."""
        self._sizes.observe(size)
        if predicted_s is not None and seconds > 0:
            self._error.observe(abs(predicted_s - seconds) / seconds)
