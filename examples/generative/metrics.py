# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The page of metrics, with the names that vLLM gives them (vllm/v1/metrics/loggers.py)."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest

SHORT_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5)
LONG_S: Final = (0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20, 40, 80)


class Metrics:
    """Counts what the engine does."""

    def __init__(self, model: str) -> None:
        self._registry = registry = CollectorRegistry()

        def histogram(name: str, text: str, bounds: tuple[float, ...]) -> Histogram:
            made = Histogram(name, text, ["model_name"], buckets=bounds, registry=registry)
            return made.labels(model)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(name, text, ["model_name"], registry=registry).labels(model)

        self.first = histogram(
            "vllm:time_to_first_token_seconds", "Time to the first token, seconds.", LONG_S
        )
        self.between = histogram(
            "vllm:inter_token_latency_seconds", "Time between two tokens, seconds.", SHORT_S
        )
        self.whole = histogram(
            "vllm:e2e_request_latency_seconds", "Time to the whole answer, seconds.", LONG_S
        )
        self._running = gauge("vllm:num_requests_running", "Requests that run.")
        self._waiting = gauge("vllm:num_requests_waiting", "Requests that wait.")
        self._used = gauge("vllm:kv_cache_usage_perc", "Part of the KV cache that is used, 0 to 1.")

    def look(self, running: int, waiting: int, used: float) -> None:
        """Note how things are."""
        self._running.set(running)
        self._waiting.set(waiting)
        self._used.set(used)

    def page(self) -> bytes:
        """The page."""
        return generate_latest(self._registry)
