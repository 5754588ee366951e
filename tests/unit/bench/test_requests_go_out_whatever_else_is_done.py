# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Requests of mixed arrivals leave on time though the process that watches is busy."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bench.mixed_load import offer_apart
from bench.mixed_record import Request


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is told."""


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_what_was_answered_is_there_when_the_play_ends_early(url: str) -> None:
    """The watching loop stands still while requests are due; none is lost for that."""
    seen: list[Request] = []

    async def play() -> None:
        started = asyncio.get_running_loop().time()
        due = [number / 10 for number in range(1, 1_000)]
        asking = asyncio.create_task(offer_apart(url, due, started, seen))
        while not seen:
            await asyncio.sleep(0.05)
        time.sleep(1.0)  # noqa: ASYNC251 - the loop is busy with something else
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)

    asyncio.run(play())
    assert len(seen) >= 5
    assert all(one.latency_s is not None for one in seen)
