# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pushes an owner's shards to the state keeper behind the steps, and recovers them.

::

    keeper = KeeperLink("keeper.my-job", 7070)
    backup = Backup(keeper, epoch=held.epoch, max_lag_steps=2)
    for step in steps:
        train(step)
        backup.push(step, {shard: values})  # copies, returns at once, waits only for the lag
    backup.flush()  # on notice

It must never run further ahead of the copy than the lag, never skip a step (the other owners'
shards of it would wait for ever), and never hold more copies in memory than the lag has pushes.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Self, TypeVar

from ullage_run import frames
from ullage_run.frames import NO_STEP, Buffer, Frame, FrameError, Kind, Pace, Receipt
from ullage_run.keeper import Held

TIMEOUT_S: Final = 10.0

T = TypeVar("T")


class KeeperUnavailable(ConnectionError):
    """The keeper does not answer; the state has no copy until another one does."""


class KeeperRefused(ValueError):
    """The keeper refuses what was asked: it says why."""


class EpochChanged(RuntimeError):
    """New maps hold: this owner's pushes count no more until it has them."""


class NothingHeld(LookupError):
    """The keeper has no complete copy to recover from: use a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """A shard as of the last consistent step."""

    shard: int
    step: int
    epoch: int
    data: bytearray


class KeeperLink:
    """One connection to a keeper; opened when it is needed, again after it broke.

    Every call may be repeated: the keeper counts a push once. One thread at a time is served.

    Args:
        host: Of the keeper.
        port: Of the keeper.
        token: Of the job.
        timeout_s: For connecting and for each silence.
        bytes_per_s: Most that is sent or recovered; ``None`` = as fast as the link.
        shard_bytes: Largest shard that is recovered.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        token: bytes = b"",
        timeout_s: float = TIMEOUT_S,
        bytes_per_s: float | None = None,
        shard_bytes: int = 1 << 34,
    ) -> None:
        self._address = (host, port)
        self._token = token
        self._timeout_s = timeout_s
        self._pace = Pace(bytes_per_s)
        self._shard_bytes = shard_bytes
        self._lock = threading.Lock()
        self._link: socket.socket | None = None
        self._aborted = False

    def close(self) -> None:
        """End the connection; the next call opens another."""
        with self._lock:
            self._drop()

    def abort(self) -> None:
        """Break off what another thread is sending; this link is not used again."""
        self._aborted = True
        link = self._link
        if link is not None:
            with contextlib.suppress(OSError):  # the other thread has closed it just now
                link.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def held(self, *, wait_for: int | None = None) -> Held:
        """What the keeper has; with a step it waits up to a second until that is committed."""
        step = NO_STEP if wait_for is None else wait_for
        return _held(self._ask(Frame(kind=Kind.ASK, step=step))[0])

    def begin(self, epoch: int, shards: int) -> Held:
        """Tell new maps; pushes of older ones are dropped from now on.

        Raises:
            KeeperRefused: the copy has another number of shards.
            KeeperUnavailable: no answer.
        """
        return _held(self._ask(Frame(kind=Kind.BEGIN, epoch=epoch, shard=shards))[0])

    def push(self, shard: int, step: int, data: Buffer, *, epoch: int) -> Receipt:
        """Offer a shard and send it if it is welcome; does not wait for the other shards.

        Raises:
            KeeperRefused: it does not fit into the keeper.
            KeeperUnavailable: no answer.
        """
        size = memoryview(data).nbytes
        offer = Frame(kind=Kind.OFFER, shard=shard, step=step, epoch=epoch)
        with self._lock:
            verdict = self._twice(lambda link: self._push(link, offer, size, data))
        if verdict is Receipt.TOO_LARGE:
            raise KeeperRefused(
                f"shard {shard} with {size} bytes does not fit: raise the keeper's --state-bytes"
            )
        return verdict

    def recover(self, shard: int) -> Recovered:
        """A shard as of the last consistent step.

        Raises:
            NothingHeld: there is no complete copy.
            KeeperUnavailable: no answer.
        """
        frame, data = self._ask(Frame(kind=Kind.FETCH, shard=shard))
        if frame.kind is not Kind.STATE:
            raise NothingHeld(f"the keeper has no complete copy with a shard {shard}")
        return Recovered(shard=shard, step=frame.step, epoch=frame.epoch, data=data)

    def _push(self, link: socket.socket, offer: Frame, size: int, data: Buffer) -> Receipt:
        frames.send(link, offer, size.to_bytes(8, "big"))
        verdict = Receipt(self._reply(link)[0].flags)
        if verdict is not Receipt.GO:
            return verdict
        push = Frame(kind=Kind.PUSH, shard=offer.shard, step=offer.step, epoch=offer.epoch)
        frames.send(link, push, data, self._pace)
        return Receipt(self._reply(link)[0].flags)

    def _ask(self, frame: Frame) -> tuple[Frame, bytearray]:
        def ask(link: socket.socket) -> tuple[Frame, bytearray]:
            frames.send(link, frame)
            return self._reply(link)

        with self._lock:
            return self._twice(ask)

    def _twice(self, call: Callable[[socket.socket], T]) -> T:
        """Make a call, on a new connection if the present one turns out to be dead."""
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
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            frames.send(link, Frame(kind=Kind.HELLO), self._token)
            self._reply(link)
        return self._link

    def _reply(self, link: socket.socket) -> tuple[Frame, bytearray]:
        frame = frames.receive(link)
        most = self._shard_bytes if frame.kind is Kind.STATE else frames.MAX_TEXT_BYTES
        data = frames.payload(link, frame, most, self._pace)
        if frame.kind is Kind.REFUSED:
            self._drop()
            raise KeeperRefused(f"the state keeper refuses: {bytes(data).decode()}")
        return frame, data

    def _drop(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _unavailable(self, error: OSError) -> KeeperUnavailable:
        host, port = self._address
        return KeeperUnavailable(f"state keeper {host}:{port} does not answer: {error}")


def _held(frame: Frame) -> Held:
    if frame.kind is not Kind.HELD:
        raise FrameError(f"{frame.kind.name} is no answer to a question")
    committed = None if frame.step == NO_STEP else frame.step
    return Held(epoch=frame.epoch, committed=committed, shards=frame.shard)


class Backup:
    """Sends shards in the background, in the order of steps; one for each epoch of this owner.

    New maps drop what was on its way under the old ones. Before they hold, either :meth:`flush`, or
    push the last finished step again under the new ones; else the lag would wait for it.

    Args:
        keeper: Used by the background thread alone from now on.
        epoch: Of the maps that this owner has.
        committed: The copy's step when these maps began; ``None`` = there was no copy.
        every_steps: A push every so many steps.
        max_lag_steps: Most steps by which the job may be ahead of the copy.
        patience_s: How long a job waits for the copy before it is told.
    """

    def __init__(
        self,
        keeper: KeeperLink,
        *,
        epoch: int,
        committed: int | None = None,
        every_steps: int = 1,
        max_lag_steps: int = 2,
        patience_s: float = 30.0,
    ) -> None:
        if not 1 <= every_steps <= max_lag_steps:
            raise ValueError(
                f"max_lag_steps {max_lag_steps} is below every_steps {every_steps}: the job would "
                "wait for a push that is not due"
            )
        self._keeper = keeper
        self._epoch = epoch
        self._every_steps = every_steps
        self._max_lag_steps = max_lag_steps
        self._patience_s = patience_s
        self._changed = threading.Condition()
        self._queue: deque[tuple[int, dict[int, bytes]]] = deque()
        self._first: int | None = None
        self._committed = committed
        self._error: Exception | None = None
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="ullage-backup", daemon=True)
        self._thread.start()

    @property
    def committed(self) -> int | None:
        """The last consistent step that this owner knows of."""
        with self._changed:
            return self._committed

    def push(self, step: int, shards: Mapping[int, Buffer]) -> None:
        """Note a finished step and, if one is due, copy its values for sending.

        Returns once the copy is at most the lag behind this step: only then the step counts.

        Args:
            step: Its number; steps come in order and none is left out.
            shards: Values of this owner's shards; copied here.

        Raises:
            EpochChanged: new maps hold.
            KeeperUnavailable: the copy did not follow in time.
            KeeperRefused: it does not fit.
        """
        due = step % self._every_steps == 0
        copied = {number: bytes(data) for number, data in sorted(shards.items())} if due else {}
        with self._changed:
            if self._first is None:
                self._first = step
            self._await(step - self._max_lag_steps)
            if due:
                self._queue.append((step, copied))
                self._changed.notify_all()

    def flush(self, timeout_s: float | None = None) -> int | None:
        """Wait until everything noted is complete in the copy; on notice, and before leaving.

        Args:
            timeout_s: Of the notice; ``None`` = the usual patience.

        Returns:
            The last committed step that is known here.

        Raises:
            EpochChanged: new maps hold.
            KeeperUnavailable: it was not complete in time.
        """
        limit_s = self._patience_s if timeout_s is None else timeout_s
        with self._changed:
            done = self._changed.wait_for(lambda: self._error or not self._queue, limit_s)
            self._raise()
            if not done:
                raise KeeperUnavailable(
                    f"{len(self._queue)} pushes are incomplete after {limit_s} s"
                )
            return self._committed

    def close(self) -> None:
        """End at once: what is not sent is dropped, who waits in a push is told."""
        with self._changed:
            self._ending = True
            self._error = self._error or EpochChanged(f"epoch {self._epoch} was given up")
            self._changed.notify_all()
        self._keeper.abort()
        self._thread.join()
        self._keeper.close()

    def _await(self, needed: int) -> None:
        """Wait until the copy has a step; without any copy the first ones wait for nothing."""
        # the first push at or after what is needed: an earlier one would be too far behind
        last_due = needed + -needed % self._every_steps
        none_before = self._first is None or last_due < self._first
        if none_before and self._committed is None:
            self._raise()
            return
        done = self._changed.wait_for(
            lambda: self._error or (self._committed is not None and self._committed >= last_due),
            self._patience_s,
        )
        self._raise()
        if not done:
            raise KeeperUnavailable(
                f"the copy is behind step {last_due} after {self._patience_s} s; another owner or "
                "the keeper is stuck"
            )

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ending or bool(self._queue))
                if self._ending:
                    return
                step, shards = self._queue[0]
            try:
                self._send(step, shards)
            except (EpochChanged, KeeperUnavailable, KeeperRefused) as error:
                with self._changed:
                    self._error = error
                    self._changed.notify_all()
                return
            with self._changed:
                self._queue.popleft()
                self._changed.notify_all()

    def _send(self, step: int, shards: dict[int, bytes]) -> None:
        for shard, data in shards.items():
            until = time.monotonic() + self._patience_s
            while (verdict := self._keeper.push(shard, step, data, epoch=self._epoch)) in (
                Receipt.BUSY,
                Receipt.NEW_EPOCH,
            ):
                if self._ending:
                    return
                if time.monotonic() > until:
                    raise KeeperUnavailable(f"shard {shard} of step {step} waits for other owners")
                time.sleep(0.01)
            if verdict is Receipt.OLD_EPOCH:
                raise EpochChanged(f"epoch {self._epoch} holds no more")
        self._follow(step)

    def _follow(self, step: int) -> None:
        """Wait until a step is complete: the keeper takes no later one before."""
        until = time.monotonic() + self._patience_s
        while not self._ending:
            held = self._keeper.held(wait_for=step)
            if held.epoch != self._epoch:
                raise EpochChanged(f"epoch {held.epoch} holds, not {self._epoch}")
            with self._changed:
                self._committed = held.committed
                self._changed.notify_all()
            if held.committed is not None and held.committed >= step:
                return
            if time.monotonic() > until:
                raise KeeperUnavailable(f"other owners' shards of step {step} are missing")
