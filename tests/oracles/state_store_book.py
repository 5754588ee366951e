# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Contents of the copy: a step counts only when all its shards have arrived.

The ledger is the state store's book without the bytes: one complete cut and at most one partial
one. It must never go back, except by a declared roll-back, and never mix shards of different steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum


class Receipt(StrEnum):
    """Result of a push."""

    STORED = "Stored"
    """Other shards of its step are missing."""
    COMMITTED = "Committed"
    """It completed its step."""
    OLD_EPOCH = "OldEpoch"
    """Its sender does not know the present maps: dropped."""
    NEW_EPOCH = "NewEpoch"
    """The state store does not know the sender's maps yet: to be sent again after the switch."""
    REPEATED = "Repeated"
    """This shard of this step, or a later step, is here already: dropped."""
    BUSY = "Busy"
    """An earlier step is still partial: to be sent again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The state store's book.

    Attributes:
        shards: How many there are.
        epoch: Of the present maps.
        committed: The last complete step; ``None`` = none yet.
        partial: The step of which some shards are here.
        arrived: Which.
    """

    shards: int
    epoch: int = 0
    committed: int | None = None
    partial: int | None = None
    arrived: frozenset[int] = frozenset()


def receive(book: Ledger, *, shard: int, step: int, epoch: int) -> tuple[Ledger, Receipt]:
    """Enter one push.

    Args:
        book: As it was.
        shard: Number of the shard.
        step: The step after which the shard has these values.
        epoch: Epoch of the maps under which it was sent.

    Raises:
        ValueError: there is no such shard.
    """
    if not 0 <= shard < book.shards:
        raise ValueError(f"shard {shard} of {book.shards}")
    if epoch != book.epoch:
        return book, Receipt.OLD_EPOCH if epoch < book.epoch else Receipt.NEW_EPOCH
    if book.committed is not None and step <= book.committed:
        return book, Receipt.REPEATED
    if book.partial is not None and step != book.partial:
        return book, Receipt.REPEATED if step < book.partial else Receipt.BUSY
    if shard in book.arrived:
        return book, Receipt.REPEATED
    arrived = book.arrived | {shard}
    if len(arrived) == book.shards:
        done = replace(book, committed=step, partial=None, arrived=frozenset())
        return done, Receipt.COMMITTED
    return replace(book, partial=step, arrived=arrived), Receipt.STORED


def new_epoch(book: Ledger, epoch: int) -> Ledger:
    """The book under new maps: the complete cut stays, the partial one goes with its senders.

    Args:
        book: The book under the old maps.
        epoch: Number of the new maps.

    Raises:
        ValueError: the epoch does not grow.
    """
    if epoch <= book.epoch:
        raise ValueError(f"epoch {epoch} does not follow {book.epoch}")
    return replace(book, epoch=epoch, partial=None, arrived=frozenset())


def consistent_cut(received: Mapping[int, int], shards: int) -> int | None:
    """c_b: the smallest over all shards of the last step that arrived whole.

    Args:
        received: Last step that arrived whole, by shard; a missing shard never arrived.
        shards: How many there are.

    Returns:
        A step; ``None`` where a shard never arrived.
    """
    return min(received.values()) if shards and len(received) == shards else None
