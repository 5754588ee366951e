# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The store is fenced before the coordinator reads which step it holds: members go back to that."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from fakes.toy_group import BYTES, STATE_BYTES, ToyJob, ToyMember, expected
from ullage_coordinator.state_store import Store
from ullage_run.frames import Frame, Kind, Receipt
from ullage_run.orders import StoredCopy

STEPS = 40
EVERY = 6
"""Steps between two copies: what owners have done since is still to be pushed."""


class StoreOfLateOwners(Store):
    """After a loss, owners complete one more step each time the coordinator was answered."""

    def __init__(self) -> None:
        super().__init__(STATE_BYTES)
        self.asker: Callable[[], threading.Thread | None] = lambda: None
        self.lost = threading.Event()
        self.done = 0
        """The last step that owners did."""
        self.known = 0
        """Epoch of the maps that owners have."""
        self.receipts: list[Receipt] = []

    def held(self, step: int | None = None, wait_s: float = 0.0) -> StoredCopy:
        found = super().held(step, wait_s)
        self._push_late(found)
        return found

    def begin(self, epoch: int, shards: int, maps: bytes = b"") -> StoredCopy:
        found = super().begin(epoch, shards, maps)
        self._push_late(found)
        if not self.lost.is_set():
            self.known = epoch
        return found

    def _push_late(self, found: StoredCopy) -> None:
        asked = threading.current_thread() is self.asker()
        if not asked or not self.lost.is_set() or found.committed is None:
            return
        step = found.committed + 1
        if step > self.done:
            return
        for shard, value in expected(step).items():
            pushed = Frame(kind=Kind.PUSH, shard=shard, epoch=self.known, step=step)
            receipt = self.offer(pushed, BYTES)
            if receipt is Receipt.GO:
                receipt = self.landed(pushed, bytearray(value.to_bytes(BYTES, "big")))
            self.receipts.append(receipt)


@pytest.mark.parametrize("since", [3, 4])
def test_members_go_back_to_the_step_that_the_store_holds(since: int) -> None:
    store = StoreOfLateOwners()
    strike_at = 2 * EVERY + since

    def strike(one: ToyMember, step: int, now: str) -> None:
        owns = bool(one.group.shards) and not one.reliable
        if step >= strike_at and now == "before" and owns and not store.lost.is_set():
            store.done = step - 1
            store.lost.set()
            one.die()

    with ToyJob(every_steps=EVERY, store=store) as job:
        store.asker = lambda: job._thread
        for name in ("r0", "s1", "s2", "s3"):
            job.member(name, until=STEPS, reliable=name == "r0", hook=strike)
        assert job.finish() == expected(STEPS)
        assert job.seen("Recovered")
    assert Receipt.OLD_EPOCH in store.receipts, "a push came after the cut was read"
