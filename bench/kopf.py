# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""kopf beside 500 services: how soon it is there and gone, what it writes, and whom a storm delays.

One process, no cluster: an object goes in as a reflector hands it over, a patch comes back as the
API server shows it.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import kopf

from bench.kopf_fill import compare
from bench.report import Bars, Figure, Row, figures_before, judge, write
from ullage.cluster.values.lives import FINALIZER
from ullage.handlers.frame import Bridge, KopfFrame
from ullage.handlers.mirror import Mirror
from ullage.ports import INFERENCE_DEPLOYMENT, JsonObject, JsonPatch, Kind

KIND: Final = INFERENCE_DEPLOYMENT
SERVICES: Final = 500
EDITS_PER_S: Final = 500
STORM_S: Final = 10.0
NEWCOMERS: Final = 15
BARS: Final[Bars] = {
    "steady_writes": lambda writes: writes == 0,
    "role_change_s": lambda seconds: seconds <= 0.5,
    "others_ratio": lambda ratio: ratio <= 1.2,
    "fill_ratio": lambda ratio: ratio >= 0.97,
    "rss_ratio": lambda ratio: ratio <= 1.15,
}
LIMITS: Final = {
    "steady_writes": "0",
    "role_change_s": "<= 0.5",
    "others_ratio": "<= 1.2",
    "fill_ratio": ">= 0.97",
    "rss_ratio": "<= 1.15",
}


class Objects:
    """Services of many tenants, and the patches that they got."""

    def __init__(self) -> None:
        self.mirror = Mirror({KIND: lambda _: True})
        self.patches: list[str] = []
        self.ended: asyncio.Event = asyncio.Event()
        self._held: dict[str, dict[str, Any]] = {}
        self._version = 0
        self._patched: dict[str, asyncio.Event] = {}

    def put(self, name: str, **metadata: object) -> None:
        """Create or change one, as a stream sees it."""
        self._version += 1
        before = self._held.get(name, {"metadata": {}})["metadata"]
        number = int(name.rpartition("-")[2])
        base = {"name": name, "namespace": f"team-{number // 100}", "uid": f"uid-{name}"}
        version = {"resourceVersion": str(self._version)}
        self._held[name] = {"metadata": {**before, **base, **metadata, **version}}
        self.mirror.upsert(KIND, self._held[name])

    async def patched(self, name: str) -> None:
        """Wait for the first patch of one."""
        await self._patched.setdefault(name, asyncio.Event()).wait()

    async def send(self, _: Kind, __: str, name: str, ___: JsonPatch) -> JsonObject:
        """Take a patch: the only one that is expected adds the finalizer."""
        self.patches.append(name)
        self._patched.setdefault(name, asyncio.Event()).set()
        self.put(name, finalizers=[FINALIZER])
        return self._held[name]

    async def end(self) -> None:
        """What the handler of a deletion calls."""
        self.ended.set()

    def register(self, registry: kopf.OperatorRegistry, bridge: Bridge) -> None:
        """One handler, as that of services."""

        @kopf.on.delete(KIND.group, KIND.version, KIND.plural, registry=registry, id="ends")
        async def ends(**_: Any) -> None:
            await bridge.call(self.end())
            await asyncio.sleep(3600)


@asynccontextmanager
async def leading(objects: Objects) -> AsyncIterator[None]:
    """Kopf runs inside."""
    task = asyncio.create_task(KopfFrame(objects.mirror).run(objects.send, objects.register))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def role_change(services: int) -> tuple[float, float]:
    """Seconds until the last of the services is cared for, and until kopf is gone again."""
    objects = Objects()
    for number in range(services):
        objects.put(f"web-{number}", finalizers=[FINALIZER])
    objects.put("web-9999", finalizers=[FINALIZER], deletionTimestamp="2026-01-01T00:00:00Z")
    began = time.monotonic()
    async with leading(objects):
        await objects.ended.wait()
        there, stop = time.monotonic(), time.monotonic()
    return there - began, time.monotonic() - stop


async def storm(services: int) -> tuple[int, float, float]:
    """Writes of kopf while one tenant edits; how long others wait, in quiet and beside it."""
    objects = Objects()
    for number in range(services):
        objects.put(f"web-{number}", finalizers=[FINALIZER])
    async with leading(objects):
        objects.put("first-9998")
        await objects.patched("first-9998")
        quiet = [await _newcomer(objects, f"quiet-{7000 + count}") for count in range(NEWCOMERS)]
        before = len(objects.patches)
        edits = asyncio.create_task(_edit(objects))
        loud = [await _newcomer(objects, f"loud-{8000 + count}") for count in range(NEWCOMERS)]
        await edits
        await asyncio.sleep(1)
        writes = len(objects.patches) - before - NEWCOMERS
    return writes, statistics.median(quiet), statistics.median(loud)


async def _newcomer(objects: Objects, name: str) -> float:
    """Seconds until a service that comes is held back."""
    await asyncio.sleep(STORM_S / NEWCOMERS / 2)
    began = time.monotonic()
    objects.put(name)
    await objects.patched(name)
    return time.monotonic() - began


async def _edit(objects: Objects) -> None:
    until = time.monotonic() + STORM_S
    while time.monotonic() < until:
        objects.put("web-0", generation=objects._version)
        await asyncio.sleep(1 / EDITS_PER_S)


async def figures(services: int) -> dict[str, Figure]:
    """Flat figures for the report."""
    await role_change(1)  # what a process does once counts for no one
    before_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    begin_s, end_s = await role_change(services)
    writes, quiet_s, loud_s = await storm(services)
    after_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "services": services,
        "role_change_s": round(begin_s + end_s, 3),
        "role_begin_s": round(begin_s, 3),
        "role_end_s": round(end_s, 3),
        "steady_writes": writes,
        "others_ratio": round(loud_s / quiet_s, 2),
        "others_quiet_ms": round(1000 * quiet_s, 1),
        "grown_mib": round(after_mib - before_mib, 1),
    }


def main() -> int:
    """Measure and write ``kopf.json``; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(prog="bench.kopf", description=__doc__)
    parser.add_argument("--services", type=int, default=SERVICES)
    parser.add_argument("--before", type=Path, help="checkout of a version to compare a fill with")
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=4000)
    options = parser.parse_args()
    found = asyncio.run(figures(options.services))
    if options.before is not None:
        found |= compare(options.before.resolve(), options.nodes, options.jobs)
    rows = [
        Row(what=name, ours=str(value), limit=LIMITS.get(name, "")) for name, value in found.items()
    ]
    write("kopf", figures_before("kopf") | found, rows)
    return judge(found, {name: met for name, met in BARS.items() if name in found})


if __name__ == "__main__":
    sys.exit(main())
