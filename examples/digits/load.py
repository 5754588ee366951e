# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Asks the server to read the held-out digits: ``python -m digits.load --url URL``.

Bounded by a number of requests or by time, whichever ends first. A failed request stays failed: a
load generator that tries again hides what it is there to find. With a rate, latency counts from
the moment at which a request was due, so a stalled server cannot make itself look fast.

Before it counts it waits for the server: for its health check, or with --batched for what it says
of its model, because to ask for that also wakes a service that has no replica while it is idle.

The last line holds the figures. Exit codes: 0; 1 when there were errors and --fail-on-error; 2 when
the server did not become ready.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, urlsplit

import numpy as np

from digits import data
from digits.data import BRIGHTEST, PIXELS, Digits

MODEL: Final = "/v2/models/digits"
INFER: Final = f"{MODEL}/infer"
PIXELS_TENSOR: Final[dict[str, object]] = {
    "name": "pixels",
    "datatype": "FP64",
    "shape": [1, PIXELS],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The server; ``timeout`` in seconds per request.

    ``batched``: it is `digits.batched`, alone or behind a router.
    """

    host: str
    port: int
    timeout: float
    batched: bool = False

    def connect(self, timeout: float | None = None) -> http.client.HTTPConnection:
        """A connection, which is opened by its first request."""
        within = self.timeout if timeout is None else timeout
        return http.client.HTTPConnection(self.host, self.port, timeout=within)


@dataclass(slots=True)
class Result:
    """What came back so far; workers add under the lock."""

    seconds: list[float] = field(default_factory=list)
    right: int = 0
    errors: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, seconds: float, right: bool) -> None:
        """Count an answer."""
        with self.lock:
            self.seconds.append(seconds)
            self.right += right

    def fail(self, why: str) -> None:
        """Count a failed request."""
        with self.lock:
            self.errors.append(why)


class Schedule:
    """Hands out request numbers until there are enough or time is up.

    Args:
        count: How many requests.
        seconds: When to stop.
        rate: Requests per second; 0 = as soon as a worker is free.
    """

    def __init__(self, count: int, seconds: float, rate: float) -> None:
        self._numbers = iter(range(count))
        self._lock = threading.Lock()
        self._rate = rate
        self._started = time.monotonic()
        self._end = self._started + seconds

    def next(self) -> tuple[int, float] | None:
        """Number of the next request and when it is due, after waiting for it."""
        with self._lock:
            number = next(self._numbers, None)
        now = time.monotonic()
        if number is None:
            return None
        due = self._started + number / self._rate if self._rate else now
        if max(due, now) > self._end:
            return None
        time.sleep(max(0.0, due - now))
        return number, due


def ask(
    connection: http.client.HTTPConnection, pixels: list[float], *, batched: bool = False
) -> int:
    """One request.

    Returns:
        The digit that the server read.

    Raises:
        OSError, http.client.HTTPException: the connection failed.
        ValueError: the server answered with something else.
    """
    path, asked = "/predict", json.dumps({"pixels": pixels})
    if batched:
        path, asked = INFER, json.dumps({"inputs": [PIXELS_TENSOR | {"data": pixels}]})
    connection.request("POST", path, asked, {"Content-Type": "application/json"})
    response = connection.getresponse()
    text = response.read()
    if response.status != http.HTTPStatus.OK:
        raise ValueError(f"status {response.status}: {text[:200].decode(errors='replace').strip()}")
    answer = json.loads(text)
    return int(answer["outputs"][0]["data"][0] if batched else answer["digit"])


def work(target: Target, digits: Digits, schedule: Schedule, result: Result) -> None:
    """One worker: requests over one connection, opened again after an error."""
    connection = target.connect()
    while (turn := schedule.next()) is not None:
        number, due = turn
        row = number % len(digits.test_labels)
        pixels = (digits.test_images[row] * BRIGHTEST).tolist()
        try:
            digit = ask(connection, pixels, batched=target.batched)
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
            result.fail(f"{type(error).__name__}: {error}")
            connection.close()
            continue
        result.add(time.monotonic() - due, digit == digits.test_labels[row])
    connection.close()


def await_ready(target: Target, seconds: float) -> bool:
    """Wait until the server answers; false when it did not in time.

    A router answers for the health of a service that sleeps. A question about its model is what a
    replica is started for, and is held for it.
    """
    deadline = time.monotonic() + seconds
    path = MODEL if target.batched else "/healthz"
    while True:
        left = max(target.timeout, deadline - time.monotonic())
        connection = target.connect(left if target.batched else None)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            response.read()
            if response.status == http.HTTPStatus.OK:
                return True
        except (OSError, http.client.HTTPException):
            pass  # not there yet; the deadline below decides
        finally:
            connection.close()
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)


def summary(result: Result, elapsed: float) -> str:
    """The figures in one line, as words that a script can split."""
    answered = len(result.seconds)
    p50, p99 = np.percentile(result.seconds, (50, 99)) * 1000 if answered else (0.0, 0.0)
    accuracy = result.right / answered if answered else 0.0
    return (
        f"requests {answered + len(result.errors)} errors {len(result.errors)} "
        f"p50_ms {p50:.1f} p99_ms {p99:.1f} accuracy {accuracy:.4f} "
        f"per_second {answered / elapsed:.1f}"
    )


def positive(text: str) -> int:
    """A whole number of at least 1, for the command line.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, not {text}")
    return int(text)


def server(url: str) -> SplitResult:
    """A server's address, for the command line.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise argparse.ArgumentTypeError(f"expected http://HOST:PORT, not {url}")
    return parts


def arguments(words: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="digits.load", description="load a digit server")
    parser.add_argument("--url", type=server, default="http://127.0.0.1:8080", help="the server")
    parser.add_argument(
        "--batched", action="store_true", help="by the Open Inference Protocol, as to a router"
    )
    parser.add_argument("--requests", type=positive, default=360, help="how many (default: 360)")
    parser.add_argument("--seconds", type=float, default=60.0, help="longest time (default: 60)")
    parser.add_argument("--rate", type=float, default=0.0, help="per second (default: no limit)")
    parser.add_argument("--workers", type=positive, default=2, help="connections (default: 2)")
    parser.add_argument("--timeout", type=float, default=10.0, help="seconds per request")
    parser.add_argument("--wait", type=float, default=30.0, help="seconds for it to become ready")
    parser.add_argument("--fail-on-error", action="store_true", help="exit with 1 on any error")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    """Load the server and print what it did.

    Returns:
        The exit code.
    """
    options = arguments(words)
    url: SplitResult = options.url
    target = Target(
        host=str(url.hostname),
        port=url.port or 80,
        timeout=options.timeout,
        batched=options.batched,
    )
    digits, result = data.load(), Result()
    if not await_ready(target, options.wait):
        print(f"{url.geturl()} did not become ready in {options.wait:g} s", file=sys.stderr)
        return 2
    schedule = Schedule(options.requests, options.seconds, options.rate)
    started = time.monotonic()
    workers = [
        threading.Thread(target=work, args=(target, digits, schedule, result))
        for _ in range(options.workers)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for error in sorted(set(result.errors)):
        print(f"{result.errors.count(error)} x {error}", file=sys.stderr)
    print(summary(result, time.monotonic() - started), flush=True)
    return 1 if result.errors and options.fail_on_error else 0


if __name__ == "__main__":
    sys.exit(main())
