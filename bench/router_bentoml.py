# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The timed model of bench.router_backend as a BentoML service with adaptive batching.

It runs in BentoML's own environment and imports nothing else: costs and the latency that BentoML
is told to keep come from the environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import time

import bentoml

FIXED_S = float(os.environ["BENCH_FIXED_S"])
FACTORS = {int(k): float(v) for k, v in json.loads(os.environ["BENCH_FACTORS"]).items()}
LATENCY_MS = int(os.environ["BENCH_LATENCY_MS"])
EARLY_S = 0.002


@bentoml.service(workers=1, traffic={"timeout": 60})
class Timed:
    """One batch at a time."""

    def __init__(self) -> None:
        self._one = asyncio.Lock()

    @bentoml.api(batchable=True, max_batch_size=max(FACTORS), max_latency_ms=LATENCY_MS)
    async def infer(self, seconds: list[float]) -> list[float]:
        """Wait as long as the batch takes."""
        padded = min(size for size in FACTORS if size >= len(seconds))
        async with self._one:
            end = time.monotonic() + FIXED_S + FACTORS[padded] * max(seconds)
            await asyncio.sleep(max(0.0, end - time.monotonic() - EARLY_S))
            while time.monotonic() < end:
                await asyncio.sleep(0)
        return seconds
