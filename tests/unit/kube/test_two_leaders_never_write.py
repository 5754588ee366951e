# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Random pauses, lost answers, slow requests and deletions: at most one replica may write."""

from __future__ import annotations

import asyncio
import random
from itertools import count

import pytest

from fakes.clock import FakeClock
from ullage.kube.lease import Lease
from ullage.ports import Conflict, JsonObject, Kind, NotFound, Unavailable


class LeaseStore:
    """One Lease with optimistic locking; calls take random turns of the loop, some are lost."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._version = 0
        self.lease: dict[str, object] | None = None

    async def _pause(self) -> None:
        for _ in range(self._rng.choice([0, 0, 1, 3, 12])):
            await asyncio.sleep(0)
        if self._rng.random() < 0.05:
            raise Unavailable(0, "lost")

    def _copy(self) -> JsonObject:
        assert self.lease is not None
        return {**self.lease}

    async def get(self, kind: Kind, name: str, *, namespace: str = "") -> JsonObject:
        await self._pause()
        if self.lease is None:
            raise NotFound(404, "gone")
        answer = self._copy()
        await self._pause()
        return answer

    async def create(self, kind: Kind, body: JsonObject, *, namespace: str = "") -> JsonObject:
        await self._pause()
        if self.lease is not None:
            raise Conflict(409, "exists")
        return await self._store(body)

    async def update(
        self, kind: Kind, name: str, body: JsonObject, *, namespace: str = ""
    ) -> JsonObject:
        await self._pause()
        if self.lease is None:
            raise NotFound(404, "gone")
        if self.lease["metadata"] != body["metadata"]:
            raise Conflict(409, "changed")
        return await self._store(body)

    async def _store(self, body: JsonObject) -> JsonObject:
        self._version += 1
        self.lease = {**body, "metadata": {"resourceVersion": str(self._version)}}
        answer = self._copy()
        await self._pause()
        return answer


@pytest.mark.parametrize("seed", range(40))
async def test_at_most_one_may_write(seed: int) -> None:
    rng = random.Random(seed)
    store = LeaseStore(rng)
    epochs: list[int] = []
    terms = count(1)
    highest = [0]
    clocks = [FakeClock(skew_s=rng.uniform(-1e6, 1e6)) for _ in range(3)]

    async def step(lease: Lease) -> None:
        led = lease.held
        await lease.step()
        if lease.held and not led:
            epochs.append(lease.epoch)
            highest[0] = max(highest[0], lease.epoch)  # its decisions bear it

    leases = [
        Lease(
            store,  # type: ignore[arg-type]
            new_identity=lambda number=number: f"replica-{number}-{next(terms)}",
            namespace="n",
            clock=clock,
            highest_epoch=lambda: highest[0],
        )
        for number, clock in enumerate(clocks)
    ]
    steps: dict[int, asyncio.Task[None]] = {}
    led, deleted_at = 0, 0.0
    for _ in range(600):
        number = rng.randrange(3)
        if number not in steps or steps[number].done():
            release = rng.random() < 0.02
            move = leases[number].release() if release else step(leases[number])
            steps[number] = asyncio.ensure_future(move)
        # Deleted twice within its duration is beyond the protocol; the epochs still fence then.
        if rng.random() < 0.01 and clocks[0].monotonic() - deleted_at > 60.0:
            store.lease, deleted_at = None, clocks[0].monotonic()
        for _ in range(rng.choice([0, 1, 2, 8])):
            await asyncio.sleep(0)
        passed = rng.choice([0.0, 0.1, 0.5, 1.0, 6.0])
        for clock in clocks:
            clock.advance(passed)
        writers = [lease.identity for lease in leases if lease.held_for_write()]
        assert len(writers) <= 1, f"seed {seed}: {writers} may write"
        led += len(writers)
    await asyncio.gather(*steps.values())
    assert led > 0
    assert epochs == sorted(set(epochs)), "an epoch was given twice or fell"
