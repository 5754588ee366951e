# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The state store: holds the last consistent step of a job's state in memory.

It runs on a machine that is not preempted, so that losing all others costs a few steps and no
checkpoint.

``python -m ullage_coordinator.state_store --state-bytes N [--listen HOST:PORT] [--token-file F]``

A step is complete when all its shards are stored. It must never hold more than two copies (one
complete, one arriving), never mix steps, never accept a push of outdated maps, and never go back.
"""

from __future__ import annotations

import argparse
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from ullage_coordinator.doorway import DoorwayServer
from ullage_coordinator.times import PUSH_STALLED_S, STORE_WAIT_S
from ullage_run import frames
from ullage_run.frames import NO_STEP, Frame, FrameError, FrameKind, Receipt
from ullage_run.handshake import Role, token_of
from ullage_run.orders import StoredCopy

MAX_SHARDS: Final = 65_536


class ShardStore:
    """The copies and their state; every method may be called from any thread.

    Args:
        state_bytes: Largest size of one copy.
    """

    def __init__(self, state_bytes: int) -> None:
        if state_bytes < 1:
            raise ValueError("a state store needs room: give the size of the state in bytes")
        self.state_bytes = state_bytes
        self._changed = threading.Condition()
        self._epoch = 0
        self._shards = 0
        self._maps = b""
        self._committed: int | None = None
        self._copy: dict[int, bytearray] = {}
        self._partial: int | None = None
        self._arrived: dict[int, bytearray] = {}
        self._coming: dict[int, int] = {}
        self.too_large: str | None = None
        """Reason why a push did not fit; once set, the copy is no longer updated."""

    def held(self, step: int | None = None, wait_s: float = 0.0) -> StoredCopy:
        """The state held now, or after a step is committed or maps change, at most ``wait_s``."""
        with self._changed:
            if step is not None:
                epoch = self._epoch
                self._changed.wait_for(lambda: self._epoch != epoch or self._last() >= step, wait_s)
            return StoredCopy(epoch=self._epoch, committed=self._committed, shards=self._shards)

    def begin(self, epoch: int, shards: int, maps: bytes = b"") -> StoredCopy:
        """Begin new maps: the complete copy stays, the arriving one is dropped.

        Repeating the current epoch changes nothing; an older one is answered with the current. The
        maps are kept for a restarted coordinator of the job.

        Raises:
            FrameError: no shards, too many, or another number than the copy has.
        """
        with self._changed:
            if epoch > self._epoch or not self._shards:
                if not 1 <= shards <= MAX_SHARDS:
                    raise FrameError(f"{shards} shards; 1..{MAX_SHARDS} are possible")
                if self._copy and shards != len(self._copy):
                    raise FrameError(f"the copy has {len(self._copy)} shards, not {shards}")
                self._epoch, self._shards, self._maps = epoch, shards, maps
                self._partial = None
                self._arrived = {}
                self._coming = {}
                self._changed.notify_all()
            return StoredCopy(epoch=self._epoch, committed=self._committed, shards=self._shards)

    def maps(self) -> tuple[int, bytes]:
        """The current epoch and its maps, unmodified."""
        with self._changed:
            return self._epoch, self._maps

    def offer(self, offered: Frame, length: int, wait_s: float = 0.0) -> Receipt:
        """Answer if a push is accepted; its room is then reserved until it landed or was abandoned.

        Args:
            offered: Shard, step and epoch.
            length: Its bytes.
            wait_s: Longest wait for an earlier step to be complete.

        Raises:
            FrameError: there is no such shard or step.
        """
        until = time.monotonic() + wait_s
        with self._changed:
            while (verdict := self._judge(offered, length)) is Receipt.BUSY:
                left_s = until - time.monotonic()
                if left_s <= 0:
                    break
                self._changed.wait(left_s)
            if verdict is Receipt.GO:
                self._partial = offered.step
                self._coming[offered.shard] = length
            return verdict

    def landed(self, pushed: Frame, data: bytearray) -> Receipt:
        """Store a completely received push after an accepted offer."""
        with self._changed:
            if pushed.epoch != self._epoch or pushed.step != self._partial:
                return Receipt.OLD_EPOCH
            self._coming.pop(pushed.shard, None)
            self._arrived[pushed.shard] = data
            if len(self._arrived) < self._shards:
                return Receipt.STORED
            self._copy, self._arrived = self._arrived, {}
            self._committed, self._partial = pushed.step, None
            self._changed.notify_all()
            return Receipt.COMMITTED

    def abandoned(self, offered: Frame) -> None:
        """Release the room of a push that did not arrive."""
        with self._changed:
            if offered.epoch == self._epoch and offered.step == self._partial:
                self._coming.pop(offered.shard, None)
                if not self._coming and not self._arrived:
                    self._partial = None
                self._changed.notify_all()

    def shard(self, number: int) -> tuple[int, int, bytearray] | None:
        """Step, epoch and bytes of a shard of the complete copy; ``None`` = none."""
        with self._changed:
            if self._committed is None or number not in self._copy:
                return None
            return self._committed, self._epoch, self._copy[number]

    def _last(self) -> int:
        return NO_STEP if self._committed is None else self._committed

    def _judge(self, offered: Frame, length: int) -> Receipt:
        if offered.epoch != self._epoch or not self._shards:
            old = self._shards and offered.epoch < self._epoch
            return Receipt.OLD_EPOCH if old else Receipt.NEW_EPOCH
        if offered.shard >= self._shards or offered.step < 0:
            raise FrameError(f"step {offered.step}, shard {offered.shard} of {self._shards}")
        if offered.step <= self._last():
            return Receipt.REPEATED
        if self._partial is not None and offered.step != self._partial:
            return Receipt.REPEATED if offered.step < self._partial else Receipt.BUSY
        if offered.shard in self._arrived:
            return Receipt.REPEATED
        if offered.shard in self._coming:
            return Receipt.BUSY
        taken = sum(map(len, self._arrived.values())) + sum(self._coming.values())
        if taken + length <= self.state_bytes:
            return Receipt.GO
        self.too_large = (
            f"the state is larger than its copy may be: shard {offered.shard} of step "
            f"{offered.step} has {length} bytes, the step's other shards {taken} so far, and the "
            f"limit is {self.state_bytes} bytes; raise spec.elasticity.backup.stateBytes "
            "(--state-bytes)"
        )
        return Receipt.TOO_LARGE


class StateStoreServer(DoorwayServer[None]):
    """Serves a store on a TCP address.

    Args:
        store: The store to serve.
        listen: Host and port; port 0 = any free one.
        token: Secret that every peer must prove to hold; empty = none.
        most_links: Most concurrent connections.
    """

    def __init__(
        self,
        store: ShardStore,
        listen: tuple[str, int] = ("127.0.0.1", 0),
        *,
        token: bytes = b"",
        most_links: int = 64,
    ) -> None:
        super().__init__(listen, role=Role.STATE_STORE, token=token, most=most_links)
        self._store = store

    def prepare(self, link: socket.socket) -> None:
        """Set the timeout of a client that announced bytes and sends none."""
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        link.settimeout(PUSH_STALLED_S)

    def greet(self, link: socket.socket) -> None:
        """Send the state held."""
        self._tell(link, self._store.held())

    def talk(self, link: socket.socket, peer: None) -> NoReturn:
        """Answer a peer; a push that its disconnect interrupts is abandoned."""
        while True:
            link.settimeout(None)  # between steps a peer may be silent for long
            frame = frames.receive(link)
            link.settimeout(PUSH_STALLED_S)
            self._answer(link, frame)

    def _answer(self, link: socket.socket, frame: Frame) -> None:
        if frame.kind is FrameKind.ASK:
            waits = frame.step if frame.step != NO_STEP else None
            self._tell(link, self._store.held(waits, STORE_WAIT_S))
        elif frame.kind is FrameKind.BEGIN:
            maps = bytes(frames.payload(link, frame, frames.MAX_MAPS_BYTES))
            self._tell(link, self._store.begin(frame.epoch, frame.shard, maps))
        elif frame.kind is FrameKind.MAPS:
            epoch, maps = self._store.maps()
            frames.send(link, Frame(kind=FrameKind.STATE, epoch=epoch), maps)
        elif frame.kind is FrameKind.OFFER:
            self._take(link, frame)
        elif frame.kind is FrameKind.FETCH:
            held = self._store.shard(frame.shard)
            if held is None:
                self._tell(link, self._store.held())
            else:
                step, epoch, data = held
                reply = Frame(kind=FrameKind.STATE, shard=frame.shard, epoch=epoch, step=step)
                frames.send(link, reply, data)
        else:
            raise FrameError(f"{frame.kind.name} is not expected here")

    def _take(self, link: socket.socket, offer: Frame) -> None:
        """Process an offer, and the push if it is accepted."""
        length = int.from_bytes(frames.payload(link, offer, 8), "big")
        verdict = self._store.offer(offer, length, STORE_WAIT_S)
        try:
            self._judge(link, offer, verdict)
            if verdict is not Receipt.GO:
                return
            push = frames.receive(link)
            same = (push.kind, push.shard, push.step, push.epoch, push.length)
            if same != (FrameKind.PUSH, offer.shard, offer.step, offer.epoch, length):
                raise FrameError("what was pushed is not what was offered")
            data = frames.payload(link, push, length)
        except BaseException:  # on any error release the room
            if verdict is Receipt.GO:
                self._store.abandoned(offer)
            raise
        self._judge(link, offer, self._store.landed(push, data))

    def _judge(self, link: socket.socket, offer: Frame, verdict: Receipt) -> None:
        held = self._store.held()
        step = NO_STEP if held.committed is None else held.committed
        reply = Frame(
            kind=FrameKind.VERDICT, flags=verdict, shard=offer.shard, epoch=held.epoch, step=step
        )
        why = self._store.too_large if verdict is Receipt.TOO_LARGE else None
        frames.send(link, reply, (why or "").encode())

    def _tell(self, link: socket.socket, held: StoredCopy) -> None:
        step = NO_STEP if held.committed is None else held.committed
        frames.send(
            link, Frame(kind=FrameKind.HELD, shard=held.shards, epoch=held.epoch, step=step)
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM.

    Prints ``listening HOST PORT`` once peers can connect.

    Returns:
        0, or 2 for invalid arguments.
    """
    parser = argparse.ArgumentParser(
        prog="ullage_coordinator.state_store", description="keeps a copy of a state"
    )
    parser.add_argument("--listen", default="127.0.0.1:0", help="HOST:PORT")
    parser.add_argument("--state-bytes", type=int, required=True, help="largest size of one copy")
    parser.add_argument("--token-file", type=Path, help="what every peer must prove to hold")
    given = parser.parse_args(arguments)
    try:
        listen = frames.address_of(given.listen, "--listen")
        token = token_of(given.token_file)
        state_store = StateStoreServer(ShardStore(given.state_bytes), listen, token=token)
    except (OSError, ValueError) as error:
        print(f"state store: {error}", file=sys.stderr)
        return 2

    def stop(_number: int, _frame: FrameType | None) -> None:
        state_store.close()

    signal.signal(signal.SIGTERM, stop)
    print("listening", *state_store.address, flush=True)
    state_store.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
