# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""An owner's connection to the state store: idempotent calls, clear errors.

It must never pass on corrupted bytes, nor wait without a limit.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, TypeVar

from ullage_run import frames
from ullage_run.frames import NO_STEP, Buffer, BytePace, Frame, FrameError, FrameKind, Receipt
from ullage_run.handshake import NotThisJob, Role, introduce
from ullage_run.orders import StoredCopy
from ullage_run.times import STORE_S

T = TypeVar("T")


class StateStoreUnavailable(ConnectionError):
    """The state store does not answer; the state has no copy until it or another one does."""


class StateStoreRefused(ValueError):
    """The state store refuses the request, or is not this job's: the text says why."""


class StateTooLarge(StateStoreRefused):
    """The state does not fit into its copy: the text names the limit and the setting."""


class NothingHeld(LookupError):
    """The state store has no complete copy to recover from: use a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """A shard as of the last consistent step."""

    shard: int
    step: int
    epoch: int
    data: bytearray


class StateStoreLink:
    """One connection to a state store; opened on demand, and reopened after a failure.

    Every call may be repeated: the state store counts a push once. Used by one thread at a time.

    Args:
        host: Host of the state store.
        port: Port of the state store.
        token: The job's token.
        timeout_s: Timeout of connecting and of each read or write.
        bytes_per_s: Rate limit of both directions; ``None`` = as fast as the link.
        shard_bytes: Largest shard that is recovered.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        token: bytes = b"",
        timeout_s: float = STORE_S,
        bytes_per_s: float | None = None,
        shard_bytes: int = 1 << 34,
    ) -> None:
        self._address = (host, port)
        self._token = token
        self._timeout_s = timeout_s
        self._pace = BytePace(bytes_per_s)
        self._shard_bytes = shard_bytes
        self._lock = threading.Lock()
        self._link: socket.socket | None = None
        self._aborted = False

    def close(self) -> None:
        """End the connection; the next call opens another."""
        with self._lock:
            self._drop()

    def abort(self) -> None:
        """Abort a transfer of another thread; this link is not used again."""
        self._aborted = True
        link = self._link
        if link is not None:
            with contextlib.suppress(OSError):  # the other thread has just closed it
                link.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def held(self, *, wait_for: int | None = None) -> StoredCopy:
        """The state held; with a step it waits up to a second until that is committed."""
        step = NO_STEP if wait_for is None else wait_for
        return _held(self._ask(Frame(kind=FrameKind.ASK, step=step))[0])

    def begin(self, epoch: int, shards: int, maps: Buffer = b"") -> StoredCopy:
        """Begin new maps; pushes of older ones are dropped from now on.

        A rollback must begin an epoch first and use the cut from the answer: a cut read before may
        be outdated.

        Args:
            epoch: Epoch of the maps; one older than the state store's has no effect.
            shards: Their number.
            maps: Returned by :meth:`maps`, in any form; at most 1 MiB.

        Raises:
            StateStoreRefused: the copy has another number of shards, or the maps are too large.
            StateStoreUnavailable: no answer.
        """
        return _held(self._ask(Frame(kind=FrameKind.BEGIN, epoch=epoch, shard=shards), maps)[0])

    def maps(self) -> tuple[int, bytes]:
        """Epoch and maps of the state store; epoch 0 = none yet.

        Raises:
            StateStoreUnavailable: no answer.
        """
        frame, maps = self._ask(Frame(kind=FrameKind.MAPS))
        return frame.epoch, bytes(maps)

    def push(self, shard: int, step: int, data: Buffer, *, epoch: int) -> Receipt:
        """Offer a shard and send it if accepted; does not wait for the other shards.

        Raises:
            StateTooLarge: it does not fit into the state store.
            StateStoreRefused: there is no such shard or step.
            StateStoreUnavailable: no answer.
        """
        size = memoryview(data).nbytes
        offer = Frame(kind=FrameKind.OFFER, shard=shard, step=step, epoch=epoch)
        with self._lock:
            return self._twice(lambda link: self._push(link, offer, size, data))

    def recover(self, shard: int) -> Recovered:
        """A shard as of the last consistent step.

        Raises:
            NothingHeld: there is no complete copy.
            StateStoreUnavailable: no answer.
        """
        frame, data = self._ask(Frame(kind=FrameKind.FETCH, shard=shard))
        if frame.kind is not FrameKind.STATE:
            raise NothingHeld(f"the state store has no complete copy with a shard {shard}")
        return Recovered(shard=shard, step=frame.step, epoch=frame.epoch, data=data)

    def _push(self, link: socket.socket, offer: Frame, size: int, data: Buffer) -> Receipt:
        frames.send(link, offer, size.to_bytes(8, "big"))
        reply, why = self._reply(link)
        verdict = Receipt(reply.flags)
        if verdict is Receipt.TOO_LARGE:
            raise StateTooLarge(why.decode(errors="replace"))
        if verdict is not Receipt.GO:
            return verdict
        push = Frame(kind=FrameKind.PUSH, shard=offer.shard, step=offer.step, epoch=offer.epoch)
        frames.send(link, push, data, self._pace)
        return Receipt(self._reply(link)[0].flags)

    def _ask(self, frame: Frame, data: Buffer = b"") -> tuple[Frame, bytearray]:
        def ask(link: socket.socket) -> tuple[Frame, bytearray]:
            frames.send(link, frame, data)
            return self._reply(link)

        with self._lock:
            return self._twice(ask)

    def _twice(self, call: Callable[[socket.socket], T]) -> T:
        """Make a call, on a new connection if the current one is dead."""
        fresh = self._link is None
        try:
            return call(self._open())
        except OSError as error:
            self._drop()
            if fresh or self._aborted or isinstance(error, TimeoutError):
                raise self._unavailable(error) from error
        try:
            return call(self._open())
        except OSError as error:
            self._drop()
            raise self._unavailable(error) from error

    def _open(self) -> socket.socket:
        if self._aborted:
            raise ConnectionAbortedError("the link was broken off here")
        if self._link is None:
            link = socket.create_connection(self._address, self._timeout_s)
            self._link = link
            if self._aborted:  # aborted while connecting: there was no link yet
                raise ConnectionAbortedError("the link was broken off here")
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                introduce(link, self._token, Role.STATE_STORE)
            except NotThisJob as error:
                self._drop()
                host, port = self._address
                raise StateStoreRefused(f"state store {host}:{port}: {error}") from error
            self._reply(link)
        return self._link

    def _reply(self, link: socket.socket) -> tuple[Frame, bytearray]:
        frame = frames.receive(link)
        most = self._shard_bytes if frame.kind is FrameKind.STATE else frames.MAX_TEXT_BYTES
        data = frames.payload(link, frame, most, self._pace)
        if frame.kind is FrameKind.REFUSED:
            self._drop()
            raise StateStoreRefused(f"the state store refuses: {bytes(data).decode()}")
        return frame, data

    def _drop(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _unavailable(self, error: OSError) -> StateStoreUnavailable:
        host, port = self._address
        return StateStoreUnavailable(f"state store {host}:{port} does not answer: {error}")


def _held(frame: Frame) -> StoredCopy:
    if frame.kind is not FrameKind.HELD:
        raise FrameError(f"{frame.kind.name} is no answer to a question")
    committed = None if frame.step == NO_STEP else frame.step
    return StoredCopy(epoch=frame.epoch, committed=committed, shards=frame.shard)
