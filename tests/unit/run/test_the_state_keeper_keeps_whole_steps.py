# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The state store's copies: whole steps, bounded memory, the book of the operator's engine."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import state_store_book
from ullage_coordinator.state_store import Store
from ullage_run.frames import Frame, FrameError, Kind, Receipt


def offer(shard: int, step: int, epoch: int = 1) -> Frame:
    return Frame(kind=Kind.OFFER, shard=shard, step=step, epoch=epoch)


def put(store: Store, frame: Frame, data: bytes = b"x") -> Receipt:
    verdict = store.offer(frame, len(data))
    return store.landed(frame, bytearray(data)) if verdict is Receipt.GO else verdict


def begun(shards: int = 2, state_bytes: int = 100) -> Store:
    store = Store(state_bytes)
    store.begin(1, shards)
    return store


def test_a_step_is_held_when_its_last_shard_is_here() -> None:
    store = begun()
    assert put(store, offer(0, 0), b"a0") is Receipt.STORED
    assert store.held().committed is None
    assert store.shard(0) is None
    assert put(store, offer(1, 0), b"b0") is Receipt.COMMITTED
    assert store.held(0, 5.0).committed == 0
    assert put(store, offer(0, 1), b"a1") is Receipt.STORED
    assert store.shard(0) == (0, 1, b"a0")


def test_two_copies_are_the_most_that_is_held() -> None:
    store = begun(state_bytes=10)
    assert put(store, offer(0, 0), b"12345") is Receipt.STORED
    assert put(store, offer(1, 0), b"123456") is Receipt.TOO_LARGE
    assert put(store, offer(1, 0), b"12345") is Receipt.COMMITTED
    assert store.offer(offer(0, 1), 6) is Receipt.GO  # reserved while it arrives
    assert store.offer(offer(1, 1), 6) is Receipt.TOO_LARGE
    store.abandoned(offer(0, 1))
    assert store.offer(offer(1, 1), 6) is Receipt.GO


def test_new_maps_keep_the_complete_copy_and_drop_what_was_arriving() -> None:
    store = begun()
    put(store, offer(0, 0), b"a0")
    put(store, offer(1, 0), b"b0")
    store.offer(offer(0, 1), 2)
    held = store.begin(2, 2)
    assert (held.epoch, held.committed) == (2, 0)
    assert store.landed(offer(0, 1), bytearray(b"a1")) is Receipt.OLD_EPOCH
    assert put(store, offer(0, 1, epoch=1)) is Receipt.OLD_EPOCH
    assert put(store, offer(0, 1, epoch=3)) is Receipt.NEW_EPOCH
    assert store.begin(1, 2).epoch == 2  # maps never go back
    assert store.shard(1) == (0, 2, b"b0")


def test_what_cannot_be_is_refused() -> None:
    store = begun()
    with pytest.raises(FrameError, match="shard 2 of 2"):
        store.offer(offer(2, 0), 1)
    with pytest.raises(FrameError, match="0 shards"):
        store.begin(2, 0)
    put(store, offer(0, 0))
    put(store, offer(1, 0))
    with pytest.raises(FrameError, match="the copy has 2 shards, not 3"):
        store.begin(2, 3)
    with pytest.raises(ValueError, match="needs room"):
        Store(0)


PUSHES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(1, 3)), max_size=40)


@settings(max_examples=100, deadline=None)
@given(pushes=PUSHES)
def test_the_keeper_and_the_engine_judge_alike(pushes: list[tuple[int, int, int]]) -> None:
    store, book = begun(shards=3), state_store_book.Ledger(shards=3, epoch=1)
    for shard, step, epoch in pushes:
        if (shard + step) % 5 == 0 and epoch > book.epoch:
            store.begin(epoch, 3)
            book = state_store_book.new_epoch(book, epoch)
        book, verdict = state_store_book.receive(book, shard=shard, step=step, epoch=epoch)
        found = put(store, offer(shard, step, epoch), bytes([step]))
        assert found.name == verdict.name
        assert (store.held().committed, store.held().epoch) == (book.committed, book.epoch)
        if book.committed is not None:
            for number in range(3):
                assert store.shard(number) == (book.committed, book.epoch, bytes([book.committed]))
