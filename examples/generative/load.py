# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Asks for texts at random times, of two applications: ``python -m generative.load --url URL``.

`chat` wants short answers, `draft` long ones; how long each is, the model decides as it goes, so no
request says it. Open loop: a request goes out when it is due, whether or not earlier ones were
answered, and its time to first token counts from then. With several `--url` they are asked in turn,
as a plain proxy does. The last line holds the figures. Exit codes: 0; 2 nothing was answered.
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

COMPLETIONS: Final = "/v1/completions"
DRAFTS: Final = 0.3
"""The part of requests that are drafts."""
LONGEST_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What is asked: ``end`` is the token that ends an answer.

    ``chat`` and ``draft`` are what is added to its score: the more, the shorter are answers.
    """

    end: int = 256
    chat: float = 3.2
    draft: float = 1.0
    most_tokens: int = 400

    def body(self, app: str, random: np.random.Generator) -> dict[str, object]:
        """The body of a request."""
        words = "".join(chr(97 + int(one)) for one in random.integers(0, 26, 24))
        return {
            "model": "random",
            "prompt": words,
            "max_tokens": self.most_tokens,
            "stream": True,
            "logit_bias": {str(self.end): self.chat if app == "chat" else self.draft},
        }


@dataclass(slots=True)
class Seen:
    """What became of the requests so far; times to first token and between tokens, seconds."""

    first_s: list[float] = field(default_factory=list)
    between_s: list[float] = field(default_factory=list)
    whole: int = 0
    refused: int = 0
    failed: int = 0

    def in_time(self, objective_s: float) -> int:
        """Answers whose first token came within the objective."""
        return sum(first <= objective_s for first in self.first_s)


async def offer(
    urls: list[str], count: int, rate: float, seed: int, asking: Asking | None = None
) -> Seen:
    """Send ``count`` requests, ``rate`` a second in the mean.

    Raises:
        ValueError: the rate is not above 0.
    """
    if rate <= 0:
        raise ValueError("a rate is above 0")
    asking, random, seen = asking or Asking(), np.random.default_rng(seed), Seen()
    due = np.cumsum(random.exponential(1 / rate, count))
    apps = ["draft" if draft else "chat" for draft in random.random(count) < DRAFTS]
    timeout = aiohttp.ClientTimeout(total=LONGEST_S)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for number, (at, app) in enumerate(zip(due, apps, strict=True)):
                await asyncio.sleep(began + float(at) - time.monotonic())
                url, body = urls[number % len(urls)], asking.body(app, random)
                tasks.create_task(_ask(session, url, app, body, began + float(at), seen))
    return seen


async def _ask(
    session: aiohttp.ClientSession,
    url: str,
    app: str,
    body: dict[str, object],
    due: float,
    seen: Seen,
) -> None:
    first = last = 0.0
    parts = 0
    try:
        async with session.post(url + COMPLETIONS, json=body, headers={"x-app": app}) as answer:
            if answer.status != 200:
                seen.refused += answer.status == 429
                seen.failed += answer.status != 429
                return
            async for part in answer.content.iter_any():
                last = time.monotonic()
                first = first or last
                parts += part.count(b"data:")
    except (aiohttp.ClientError, TimeoutError):
        seen.failed += 1
    else:
        seen.whole += 1
    if first:
        seen.first_s.append(first - due)
    if parts > 1:
        seen.between_s.append((last - first) / (parts - 1))


def main() -> int:
    """Send the load and print what came back."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", action="append", required=True, help="http://host:port")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--rate", type=float, default=4.0, help="requests a second")
    parser.add_argument("--objective-ms", type=float, default=1000.0, help="of the first token")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    seen = asyncio.run(offer(options.url, options.requests, options.rate, options.seed))
    if not seen.first_s:
        print(f"nothing was answered: refused {seen.refused} failed {seen.failed}")
        return 2
    p50, p95 = 1000 * np.percentile(seen.first_s, (50, 95))
    between = 1000 * float(np.mean(seen.between_s)) if seen.between_s else 0.0
    print(
        f"whole {seen.whole} refused {seen.refused} failed {seen.failed} "
        f"in_time {seen.in_time(options.objective_ms / 1000)} of {options.requests} "
        f"ttft_p50_ms {p50:.0f} ttft_p95_ms {p95:.0f} itl_mean_ms {between:.1f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
