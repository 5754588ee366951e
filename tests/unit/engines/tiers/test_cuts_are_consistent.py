# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The state store's book: a step counts when all its shards are here, old epochs count nothing."""

from __future__ import annotations

import itertools

import pytest

from oracles.state_store_book import Ledger, Receipt, consistent_cut, new_epoch, receive


def test_a_step_is_committed_by_its_last_shard() -> None:
    book, first = receive(Ledger(shards=2), shard=0, step=4, epoch=0)
    assert (first, book.committed) == (Receipt.STORED, None)
    book, second = receive(book, shard=1, step=4, epoch=0)
    assert (second, book.committed, book.partial) == (Receipt.COMMITTED, 4, None)


def test_a_shard_ahead_of_a_partial_step_waits() -> None:
    book, _ = receive(Ledger(shards=2), shard=0, step=1, epoch=0)
    same, verdict = receive(book, shard=0, step=2, epoch=0)
    assert (same, verdict) == (book, Receipt.BUSY)


def test_pushes_of_old_maps_are_dropped_and_partial_steps_with_them() -> None:
    book, _ = receive(Ledger(shards=2), shard=0, step=1, epoch=0)
    book = new_epoch(book, 1)
    assert book.partial is None
    assert receive(book, shard=1, step=1, epoch=0)[1] is Receipt.OLD_EPOCH
    assert receive(book, shard=1, step=1, epoch=2)[1] is Receipt.NEW_EPOCH
    with pytest.raises(ValueError, match="does not follow"):
        new_epoch(book, 1)


def test_the_same_push_twice_counts_once() -> None:
    book, _ = receive(Ledger(shards=2), shard=0, step=1, epoch=0)
    assert receive(book, shard=0, step=1, epoch=0) == (book, Receipt.REPEATED)
    book, _ = receive(book, shard=1, step=1, epoch=0)
    assert receive(book, shard=1, step=1, epoch=0) == (book, Receipt.REPEATED)


def test_every_order_of_two_steps_commits_what_the_minimum_says() -> None:
    pushes = [(shard, step) for shard in range(2) for step in (1, 2)]
    for order in itertools.permutations(pushes):
        book, received = Ledger(shards=2), {}
        for shard, step in order:
            book, verdict = receive(book, shard=shard, step=step, epoch=0)
            if verdict in (Receipt.STORED, Receipt.COMMITTED):
                received[shard] = step
            assert book.committed == consistent_cut(received, 2) or book.partial is not None
            if book.partial is None:
                assert book.committed == consistent_cut(received, 2)


def test_a_cut_needs_every_shard() -> None:
    assert consistent_cut({0: 7, 1: 5}, 2) == 5
    assert consistent_cut({0: 7}, 2) is None


def test_a_shard_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="shard 2 of 2"):
        receive(Ledger(shards=2), shard=2, step=1, epoch=0)
