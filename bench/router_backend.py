# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A model server whose batches take exactly as long as the simulator says: c0 + c1(k) * longest.

``python -m bench.router_backend [--fixed S --factors 1=1.0,2=1.1,...]`` prints ``listening PORT``.
It speaks the Open Inference Protocol; the one element of a request is the time that it takes
alone, seconds. It waits instead of computing, so that the machine's load cannot change its times;
one batch runs at a time. Without costs it answers at once.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import Mapping
from typing import Final

import orjson

from ullage.engines.batching.batch_time import BatchCosts

LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
EARLY_S: Final = 0.002
"""A timer is set so much too early; the rest is waited for turn by turn of the loop."""


class Model:
    """Runs one batch after the other."""

    def __init__(self, costs: BatchCosts | None) -> None:
        """Without costs a batch takes no time."""
        self._costs = costs
        self._one = asyncio.Lock()

    async def run(self, data: list[float]) -> None:
        """Wait as long as the batch takes."""
        if self._costs is None:
            return
        loop = asyncio.get_running_loop()
        async with self._one:
            end = loop.time() + self._costs.batch_s(len(data), max(data))
            await asyncio.sleep(max(0.0, end - loop.time() - EARLY_S))
            while loop.time() < end:
                await asyncio.sleep(0)


class Connection(asyncio.Protocol):
    """One client's requests, one at a time; just as much HTTP as proxies and routers send."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._buffer = b""
        self._tasks: set[asyncio.Task[None]] = set()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep it for answers."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer each whole request."""
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = LENGTH.search(head)
        size = int(length[1]) if length else 0
        if len(rest) < size:
            return
        self._buffer = rest[size:]
        if b"/infer" not in head.partition(b"\r\n")[0]:
            self._write(b"{}")
            return
        task = asyncio.ensure_future(self._infer(rest[:size]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _infer(self, body: bytes) -> None:
        asked = orjson.loads(body)
        tensor = asked["inputs"][0]
        await self._model.run(tensor["data"])
        answer = {"model_name": "timed", "outputs": [{**tensor, "name": "y"}]}
        if "id" in asked:
            answer["id"] = asked["id"]
        self._write(orjson.dumps(answer))

    def _write(self, body: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            head = (
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            )
            self._transport.write(head % len(body) + body)


def factors_of(text: str) -> Mapping[int, float]:
    """``1=1.0,2=1.1``."""
    pairs = (word.split("=") for word in text.split(","))
    return {int(size): float(factor) for size, factor in pairs}


async def serve(costs: BatchCosts | None) -> None:
    """Serve until the process is ended."""
    model = Model(costs)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(model), "127.0.0.1", 0, backlog=1024)
    print("listening", server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", type=float, default=0.0)
    parser.add_argument("--factors", type=factors_of)
    given = parser.parse_args()
    costs = None
    if given.factors:
        costs = BatchCosts(fixed_s=given.fixed, factors=given.factors)
    asyncio.run(serve(costs))


if __name__ == "__main__":
    main()
