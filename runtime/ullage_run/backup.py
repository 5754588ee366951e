# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pushes an owner's shards to the state store in the background, and recovers them.

::

    state_store = StateStoreLink("my-job-lead", 7071)
    backup = Backup(state_store, epoch=held.epoch, max_lag_steps=2)
    for step in steps:
        train(step)
        backup.push(step, {shard: values})  # copies, returns at once, waits only for the lag
    backup.flush()  # on notice

It must never run further ahead of the copy than the lag, never skip a step (the other owners'
shards of it would wait for ever), and never hold more copies in memory than the pushes of the lag
and the last complete one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping

from ullage_run.frames import Buffer, Receipt
from ullage_run.link import (
    NothingHeld,
    Recovered,
    StateStoreLink,
    StateStoreRefused,
    StateStoreUnavailable,
    StateTooLarge,
)

__all__ = [
    "Backup",
    "EpochChanged",
    "NothingHeld",
    "Recovered",
    "StateStoreLink",
    "StateStoreRefused",
    "StateStoreUnavailable",
    "StateTooLarge",
]


class EpochChanged(RuntimeError):
    """New maps are in force: this owner's pushes are ignored until it has them."""


class Backup:
    """Sends shards in the background, in step order; one instance for each epoch of this owner.

    New maps drop pushes under way of the old ones. Before they are in force, either :meth:`flush`,
    or push the last finished step again under the new ones; else the lag would wait for it.

    Args:
        state_store: Used only by the background thread from now on.
        epoch: Epoch of this owner's maps.
        committed: The copy's step when these maps began; ``None`` = no copy.
        every_steps: Steps between two pushes.
        max_lag_steps: Most steps by which the job may be ahead of the copy.
        patience_s: Longest wait of a job for the copy before an error.
    """

    def __init__(
        self,
        state_store: StateStoreLink,
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
        self._state_store = state_store
        self._epoch = epoch
        self._every_steps = every_steps
        self._max_lag_steps = max_lag_steps
        self._patience_s = patience_s
        self._changed = threading.Condition()
        self._queue: deque[tuple[int, dict[int, bytes]]] = deque()
        self._complete: tuple[int, dict[int, bytes]] | None = None
        self._first: int | None = None
        self._committed = committed
        self._error: Exception | None = None
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="ullage-backup", daemon=True)
        self._thread.start()

    @property
    def committed(self) -> int | None:
        """The last consistent step known to this owner."""
        with self._changed:
            return self._committed

    def copies(self, step: int) -> dict[int, bytes]:
        """This owner's shards as pushed after a step; empty if no longer held.

        An owner that rolls back to a step of the state store need not fetch its own shards.
        """
        with self._changed:
            known = [*self._queue] if self._complete is None else [self._complete, *self._queue]
            return next((shards for number, shards in known if number == step), {})

    def push(self, step: int, shards: Mapping[int, Buffer], *, now: bool = False) -> None:
        """Record a finished step and, if a push is due, copy its values for sending.

        Returns once the copy is at most the lag behind this step: only then the step is valid.

        Args:
            step: Its number; steps are in order without gaps.
            shards: Values of this owner's shards; copied here.
            now: Send it regardless of the interval: all owners do, the copy must be of this step.

        Raises:
            EpochChanged: new maps are in force.
            StateStoreUnavailable: the copy did not follow in time.
            StateTooLarge: it does not fit.
        """
        due = now or step % self._every_steps == 0
        copied = {number: bytes(data) for number, data in sorted(shards.items())} if due else {}
        with self._changed:
            if self._first is None:
                self._first = step
            self._await(step - self._max_lag_steps)
            if due:
                self._queue.append((step, copied))
                self._changed.notify_all()

    def flush(self, timeout_s: float | None = None) -> int | None:
        """Wait until the copy has all recorded steps; on notice, and before leaving.

        Args:
            timeout_s: Time left by the notice; ``None`` = the usual patience.

        Returns:
            The last known committed step.

        Raises:
            EpochChanged: new maps are in force.
            StateStoreUnavailable: it was not complete in time.
        """
        limit_s = self._patience_s if timeout_s is None else timeout_s
        with self._changed:
            done = self._changed.wait_for(lambda: self._error or not self._queue, limit_s)
            self._raise()
            if not done:
                raise StateStoreUnavailable(
                    f"{len(self._queue)} pushes are incomplete after {limit_s} s"
                )
            return self._committed

    def close(self) -> None:
        """Stop at once: drops unsent pushes; a waiting push raises."""
        with self._changed:
            self._ending = True
            self._error = self._error or EpochChanged(f"epoch {self._epoch} was given up")
            self._changed.notify_all()
        self._state_store.abort()
        self._thread.join()
        self._state_store.close()

    def _await(self, needed: int) -> None:
        """Wait until the copy has a step; without any copy the first ones do not wait."""
        # the first push at or after the needed step: an earlier one would be too far behind
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
            raise StateStoreUnavailable(
                f"the copy is behind step {last_due} after {self._patience_s} s; another owner or "
                "the state store is stuck"
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
            except (EpochChanged, StateStoreUnavailable, StateStoreRefused) as error:
                with self._changed:
                    self._error = self._error or error  # closing takes precedence
                    self._changed.notify_all()
                return
            with self._changed:
                self._complete = self._queue.popleft()
                self._changed.notify_all()

    def _send(self, step: int, shards: dict[int, bytes]) -> None:
        for shard, data in shards.items():
            until = time.monotonic() + self._patience_s
            while (verdict := self._state_store.push(shard, step, data, epoch=self._epoch)) in (
                Receipt.BUSY,
                Receipt.NEW_EPOCH,
            ):
                if self._ending:
                    return
                if time.monotonic() > until:
                    raise StateStoreUnavailable(
                        f"shard {shard} of step {step} waits for other owners"
                    )
                time.sleep(0.01)
            if verdict is Receipt.OLD_EPOCH:
                raise EpochChanged(f"epoch {self._epoch} holds no more")
        self._follow(step)

    def _follow(self, step: int) -> None:
        """Wait until a step is complete: the state store accepts no later one before."""
        until = time.monotonic() + self._patience_s
        while not self._ending:
            held = self._state_store.held(wait_for=step)
            if held.epoch != self._epoch:
                raise EpochChanged(f"epoch {held.epoch} holds, not {self._epoch}")
            with self._changed:
                self._committed = held.committed
                self._changed.notify_all()
            if held.committed is not None and held.committed >= step:
                return
            if time.monotonic() > until:
                raise StateStoreUnavailable(f"other owners' shards of step {step} are missing")
