# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The timed model of bench.router_backend as a Ray Serve application with its own batching.

It runs in Ray Serve's own environment and imports nothing else: costs, port and the settings of
``serve.batch`` come from the environment. Ray's files lie in one folder, without dashboard and
usage reports, until SIGTERM.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time

import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse

FIXED_S = float(os.environ["BENCH_FIXED_S"])
FACTORS = {int(k): float(v) for k, v in json.loads(os.environ["BENCH_FACTORS"]).items()}
SIZE = int(os.environ["BENCH_BATCH_SIZE"])
WAIT_S = float(os.environ["BENCH_BATCH_WAIT_S"])
LIMIT_S = float(os.environ["BENCH_LIMIT_S"])
"""Ray Serve cancels what takes longer, so that no batch is spent on it."""
EARLY_S = 0.002
STORE_BYTES = 80 * 2**20
"""About the least that Ray takes; requests do not pass through the store."""
LOOPBACK = "127.0.0.2"
"""Ray takes 127.0.0.1 for an address to look up."""
ONGOING = 2000
"""What a replica takes in at once. Ray's own 5 would keep batches from filling."""


@serve.deployment(max_ongoing_requests=ONGOING, ray_actor_options={"num_cpus": 0})
class Timed:
    """One batch at a time."""

    def __init__(self) -> None:
        self._one = asyncio.Lock()

    async def __call__(self, request: Request) -> JSONResponse:
        """Answer ``{"seconds": [s]}`` with its list."""
        asked = await request.json()
        return JSONResponse([await self.infer(asked["seconds"][0])])

    @serve.batch(max_batch_size=SIZE, batch_wait_timeout_s=WAIT_S)
    async def infer(self, seconds: list[float]) -> list[float]:
        """Wait as long as the batch takes."""
        padded = min(size for size in FACTORS if size >= len(seconds))
        async with self._one:
            end = time.monotonic() + FIXED_S + FACTORS[padded] * max(seconds)
            await asyncio.sleep(max(0.0, end - time.monotonic() - EARLY_S))
            while time.monotonic() < end:
                await asyncio.sleep(0)
        return seconds


def main() -> None:
    """Serve until SIGTERM; ``listening PORT`` once the replica answers."""
    port = int(os.environ["BENCH_PORT"])
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=STORE_BYTES,
        _node_ip_address=LOOPBACK,
        _temp_dir=os.environ["BENCH_FOLDER"],
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        options = {"host": "127.0.0.1", "port": port, "request_timeout_s": LIMIT_S}
        serve.start(http_options=options)
        serve.run(Timed.bind(), route_prefix="/infer")
        print("listening", port, flush=True)
        while True:
            signal.pause()
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
