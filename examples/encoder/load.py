# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Sends texts of many lengths at random times: ``python -m encoder.load --url URL``.

Open loop: a request goes out when it is due, whether or not earlier ones were answered, and its
latency counts from then. The last line holds the figures. Exit codes: 0; 2 nothing was answered.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from dataclasses import dataclass, field
from typing import Final

import aiohttp
import numpy as np

from encoder.network import LONGEST

INFER: Final = "/v2/models/encoder/infer"
MEDIAN: Final = 4.0
SIGMA: Final = 1.0
"""Lengths are log-normal: most texts are short, some take many times as long."""
LONGEST_S: Final = 30.0


@dataclass(slots=True)
class Seen:
    """What became of the requests so far."""

    seconds: list[float] = field(default_factory=list)
    refused: int = 0
    failed: int = 0


def lengths(count: int, random: np.random.Generator) -> list[int]:
    """Lengths of so many texts, in words."""
    drawn = random.lognormal(np.log(MEDIAN), SIGMA, count)
    return [int(one) for one in np.clip(drawn, 1, LONGEST)]


async def offer(url: str, count: int, rate: float, seed: int) -> Seen:
    """Send ``count`` requests, ``rate`` a second in the mean.

    Raises:
        ValueError: the rate is not above 0.
    """
    if rate <= 0:
        raise ValueError("a rate is above 0")
    random, seen = np.random.default_rng(seed), Seen()
    due = np.cumsum(random.exponential(1 / rate, count))
    timeout = aiohttp.ClientTimeout(total=LONGEST_S)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for at, length in zip(due, lengths(count, random), strict=True):
                await asyncio.sleep(began + float(at) - time.monotonic())
                tasks.create_task(_ask(session, url, "word " * length, began + float(at), seen))
    return seen


async def _ask(session: aiohttp.ClientSession, url: str, text: str, due: float, seen: Seen) -> None:
    tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "data": [text]}
    try:
        async with session.post(url + INFER, json={"inputs": [tensor]}) as answer:
            await answer.read()
    except (aiohttp.ClientError, TimeoutError):
        seen.failed += 1
        return
    if answer.status == 200:
        seen.seconds.append(time.monotonic() - due)
    elif answer.status == 429:
        seen.refused += 1
    else:
        seen.failed += 1


def main() -> int:
    """Send the load and print what came back."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True, help="http://host:port of the router")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=50.0, help="requests a second")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    seen = asyncio.run(offer(options.url, options.requests, options.rate, options.seed))
    if not seen.seconds:
        print(f"nothing was answered: refused {seen.refused} failed {seen.failed}")
        return 2
    p50, p99 = 1000 * np.percentile(seen.seconds, (50, 99))
    print(
        f"answered {len(seen.seconds)} refused {seen.refused} failed {seen.failed} "
        f"p50_ms {p50:.1f} p99_ms {p99:.1f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
