# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A member's shards of the job's state: loaded from the copy, pushed to it, handed over.

Shards are loaded while the program still computes an already void step: recovery takes the longer
of the two times, not their sum. It must never hand a shard over before all members have the new
maps, nor give the program values of another step than these name.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Protocol

from ullage_run.backup import Backup, EpochChanged, StateStoreLink, StateStoreUnavailable
from ullage_run.frames import Buffer
from ullage_run.orders import MemberAssignment


class State(Protocol):
    """The part of a job's state that this member owns, by shard."""

    def values(self, shard: int) -> Buffer:
        """Bytes of an owned shard after the last finished step."""
        ...

    def take(self, shard: int, data: Buffer | None) -> None:
        """Own a shard from now on, with these values; ``None`` = the program's initial ones."""
        ...

    def drop(self, shard: int) -> None:
        """Stop owning it."""
        ...


class StateFetch:
    """Fetches shards of a consistent step from the copy, in the background.

    Args:
        link: Link to the state store; used exclusively.
        step: Required step of the copy.
        shards: Shards to fetch.
        kept: Shards of that step still held locally, as pushed.
    """

    def __init__(
        self, link: StateStoreLink, step: int, shards: Iterable[int], kept: Mapping[int, bytes]
    ) -> None:
        self._link = link
        self._step = step
        self._found = {number: bytearray(kept[number]) for number in shards if number in kept}
        self._missing = [number for number in shards if number not in kept]
        self._error: Exception | None = None
        self._cancelled = False
        self._thread = threading.Thread(target=self._load, name="ullage-fetch", daemon=True)
        self._thread.start()

    def result(self) -> dict[int, bytearray]:
        """All of them, once received.

        Raises:
            EpochChanged: newer maps are in force.
            StateStoreUnavailable: the state store does not answer.
            RuntimeError: the copy is of another step.
        """
        self._thread.join()
        if self._cancelled:
            raise EpochChanged("newer maps hold")
        if self._error is not None:
            raise self._error
        return self._found

    def cancel(self) -> None:
        """Cancel the fetch."""
        self._cancelled = True
        self._link.abort()

    def _load(self) -> None:
        try:
            for number in self._missing:
                recovered = self._link.recover(number)
                if recovered.step != self._step:
                    raise RuntimeError(f"the copy is of step {recovered.step}, not {self._step}")
                self._found[number] = recovered.data
        except (StateStoreUnavailable, LookupError, RuntimeError, ValueError) as error:
            self._error = error  # raised by result()
        finally:
            self._link.close()


class HeldShards:
    """This member's shards, and their transfer from and to the state store.

    :meth:`prepare` and :meth:`break_off` may be called from a different thread than the rest.

    Args:
        state: The program's state.
        state_store: Host and port of the state store.
        token: The job's token.
        every_steps: Steps between two pushes.
        max_lag_steps: Most steps by which the job may be ahead of the copy.
        bytes_per_s: Most that is sent to the state store; ``None`` = as fast as the link.
    """

    def __init__(
        self,
        state: State,
        state_store: tuple[str, int],
        *,
        token: bytes,
        every_steps: int,
        max_lag_steps: int,
        bytes_per_s: float | None,
    ) -> None:
        self._state = state
        self._address = state_store
        self._token = token
        self._every_steps = every_steps
        self._max_lag_steps = max_lag_steps
        self._bytes_per_s = bytes_per_s
        self._backup: Backup | None = None
        self._fetch: StateFetch | None = None
        self._here: set[int] = set()
        self._mine: tuple[int, ...] = ()

    def prepare(self, step: int, given: MemberAssignment) -> StateFetch:
        """Abort transfers under way and begin to load the shards of new maps.

        Args:
            step: After which the maps are in force.
            given: This member's part of them.
        """
        self.break_off()
        backup = self._backup
        kept = backup.copies(step) if backup is not None else {}
        self._fetch = StateFetch(self._link(), step, given.load, kept)
        return self._fetch

    def break_off(self) -> None:
        """End a push that waits for lost owners, and a load that is no longer needed."""
        if self._backup is not None:
            self._backup.close()
        if self._fetch is not None:
            self._fetch.cancel()

    def take(self, step: int, epoch: int, given: MemberAssignment, fetch: StateFetch) -> None:
        """Own the shards of the maps, with the values of their step.

        Shards now owned by others stay until :meth:`settle`: if a member is lost before all have
        these maps, the previous ones are in force again.

        Raises:
            EpochChanged: newer maps are in force; nothing has changed.
            StateStoreUnavailable: the state store does not answer.
            RuntimeError: the copy is of another step.
        """
        loaded = fetch.result()
        if self._backup is not None:
            self._backup.close()
            self._backup = None
        for number, data in sorted(loaded.items()):
            self._state.take(number, data)
        for number in sorted(set(given.shards) - self._here - loaded.keys()):
            self._state.take(number, None)
        self._here |= set(given.shards)
        self._mine = given.shards
        if given.push and given.shards:
            self._start_backup(step, epoch, given.committed)
            behind = given.committed is None or given.committed < step
            if behind and not given.load:
                self.push(step, now=True)

    def settle(self) -> None:
        """Drop shards no longer owned: all members have the maps."""
        for number in sorted(self._here - set(self._mine)):
            self._state.drop(number)
        self._here &= set(self._mine)

    def push(self, step: int, *, now: bool = False) -> None:
        """Record a finished step, and push it if due and there is a copy.

        Args:
            step: Its number.
            now: Push regardless of the interval.

        Raises:
            EpochChanged: new maps are in force.
            StateStoreUnavailable: the copy did not follow in time.
            StateTooLarge: it does not fit.
        """
        if self._backup is not None and self._mine:
            values = {number: self._state.values(number) for number in self._mine}
            self._backup.push(step, values, now=now)

    def flush(self, step: int, epoch: int, committed: int | None, *, whole: bool) -> None:
        """Wait until the copy has all pushes.

        Args:
            step: The last finished one.
            epoch: Epoch of the maps.
            committed: Step of the copy when they began.
            whole: The copy must be of exactly that step.

        Raises:
            EpochChanged: new maps are in force.
            StateStoreUnavailable: it was not complete in time.
        """
        if not self._mine:
            return
        if whole:
            if self._backup is None:
                self._start_backup(step, epoch, committed)
            self.push(step, now=True)
        if self._backup is not None:
            self._backup.flush()

    def _start_backup(self, step: int, epoch: int, committed: int | None) -> None:
        if committed is not None and committed < step - self._max_lag_steps:
            committed = None  # from before the pushes: nothing waits for such an old copy
        self._backup = Backup(
            self._link(),
            epoch=epoch,
            committed=committed,
            every_steps=self._every_steps,
            max_lag_steps=self._max_lag_steps,
        )

    def _link(self) -> StateStoreLink:
        return StateStoreLink(*self._address, token=self._token, bytes_per_s=self._bytes_per_s)
