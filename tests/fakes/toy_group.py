# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A job whose result hangs on every step of every shard, with members that are threads.

A death is the end of a connection, as the coordinator sees it when a process is killed.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

from ullage.engines.tiers.flush import Link
from ullage.engines.tiers.records import TierSettings
from ullage.engines.tiers.stages import TierStage
from ullage_coordinator.coordinator import Coordinator
from ullage_coordinator.maps import CoordinatorSettings
from ullage_coordinator.roster import Roster
from ullage_coordinator.state_store import ShardStore, StateStoreServer
from ullage_run.backup import EpochChanged, StateStoreUnavailable, StateTooLarge
from ullage_run.frames import Buffer, Ending
from ullage_run.group import Group
from ullage_run.orders import Identity

SHARDS = 6
BYTES = 16
PRIME = 2**61 - 1
STATE_BYTES = SHARDS * BYTES


def begin(shard: int) -> int:
    """A shard's value before the first step."""
    return shard + 1


def follow(value: int, total: int, shard: int, step: int) -> int:
    """A shard's value after a step, which needs all shards' values before it."""
    return (value * 3 + total * 7 + shard + step) % PRIME


def expected(steps: int) -> dict[int, int]:
    """All shards after so many steps, as one process computes them."""
    values = {shard: begin(shard) for shard in range(SHARDS)}
    for step in range(1, steps + 1):
        total = sum(values.values()) % PRIME
        values = {shard: follow(value, total, shard, step) for shard, value in values.items()}
    return values


class ToyState:
    """Shards as whole numbers."""

    def __init__(self) -> None:
        self.shards: dict[int, int] = {}

    def values(self, shard: int) -> Buffer:
        return self.shards[shard].to_bytes(BYTES, "big")

    def take(self, shard: int, data: Buffer | None) -> None:
        self.shards[shard] = begin(shard) if data is None else int.from_bytes(data, "big")

    def drop(self, shard: int) -> None:
        del self.shards[shard]


@dataclass
class ToyMember:
    """One member in a thread of its own; ``hook`` is called in the middle of every step."""

    rig: ToyJob
    name: str
    reliable: bool
    until: int
    hook: Callable[[ToyMember, int, str], None]
    state: ToyState = field(default_factory=ToyState)
    ending: Ending | None = None
    error: BaseException | None = None
    steps: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        who = Identity(name=self.name, node=f"node-{self.name}", reliable=self.reliable)
        self.group = Group(
            self.rig.coordinator_at,
            self.rig.state_store_at,
            who,
            self.state,
            every_steps=self.rig.every_steps,
            max_lag_steps=max(2, self.rig.every_steps),
        )
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def die(self) -> None:
        """As SIGKILL does it: connections end, nothing is said."""
        self.group._holding.break_off()
        try:
            self.group._link.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def leave(self, left_s: float = 20.0) -> None:
        """As SIGTERM does it."""
        self.group._say_leaving(str(int(left_s * 1000)).encode())

    def _run(self) -> None:
        try:
            self.ending = self.group.run(self._train, until=self.until)
        except (StateTooLarge, StateStoreUnavailable, EpochChanged, OSError) as error:
            self.error = error
        finally:
            self.die()

    def _train(self, step: int) -> None:
        self.hook(self, step, "before")
        mine = sum(self.state.shards.values())
        parts = self.group.gather(mine.to_bytes(BYTES, "big"))
        self.hook(self, step, "between")
        total = sum(int.from_bytes(one, "big") for one in parts.values()) % PRIME
        for shard, value in self.state.shards.items():
            self.state.shards[shard] = follow(value, total, shard, step)
        self.steps.append(step)
        self.hook(self, step, "after")


class ToyJob:
    """State store, coordinator and members."""

    def __init__(self, *, members: int = 4, blocks: int = SHARDS, silent_s: float = 30.0,
                 copy: bool = True, join_s: float = 20.0, pinned: TierStage | None = None,
                 every_steps: int = 1, store: ShardStore | None = None) -> None:  # fmt: skip
        self.events: list[tuple[str, Mapping[str, object]]] = []
        self.members: list[ToyMember] = []
        self.every_steps = every_steps
        self.store = store or ShardStore(STATE_BYTES)
        self._state_store = StateStoreServer(self.store)
        self._roster = Roster(("127.0.0.1", 0), silent_s=silent_s)
        self.coordinator_at, self.state_store_at = self._roster.address, self._state_store.address
        link = Link(
            state_bytes=STATE_BYTES,
            dirty_bytes_per_step=STATE_BYTES,
            host_bytes_per_s=1e8,
            state_store_bytes_per_s=1e8,
            every_steps=every_steps,
            max_lag_steps=max(2, every_steps),
        )
        settings = TierSettings(owner_part=0.6, shards=SHARDS, blocks=blocks, pinned=pinned)
        terms = CoordinatorSettings(
            members=members, link=link, settings=settings, notice_s=30.0, copy=copy, join_s=join_s
        )
        self._coordinator = Coordinator(self._roster, self.store, terms, self._note)
        self.ending: Ending | None = None
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        threading.Thread(target=self._state_store.serve, daemon=True).start()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.members:
            one.die()
        self._roster.close()
        self._state_store.close()
        for one in self.members:
            one.thread.join(10)

    def member(
        self,
        name: str,
        *,
        until: int,
        reliable: bool = False,
        hook: Callable[[ToyMember, int, str], None] = lambda *_: None,
    ) -> ToyMember:
        """Start a member."""
        made = ToyMember(rig=self, name=name, reliable=reliable, until=until, hook=hook)
        self.members.append(made)
        return made

    def finish(self, wait_s: float = 60.0) -> dict[int, int]:
        """Wait for the end; all shards, as their owners have them."""
        self._thread.join(wait_s)
        assert not self._thread.is_alive(), f"the job hangs: {self.events[-5:]}"
        if self.error is not None:
            raise self.error
        found: dict[int, int] = {}
        for one in self.members:
            one.thread.join(10)
            if one.ending is Ending.FINISHED:
                assert not found.keys() & one.state.shards.keys(), "two own a shard"
                found |= one.state.shards
        return found

    def seen(self, event: str) -> list[Mapping[str, object]]:
        """Figures of all events of a name."""
        return [figures for name, figures in list(self.events) if name == event]

    def await_event(self, event: str, count: int = 1, wait_s: float = 20.0) -> None:
        """Until it happened so often."""
        until = time.monotonic() + wait_s
        while len(self.seen(event)) < count:
            assert time.monotonic() < until, f"no {event}: {self.events[-5:]}"
            time.sleep(0.005)

    def _run(self) -> None:
        try:
            self.ending = self._coordinator.run()
        except Exception as error:  # told by finish()
            self.error = error

    def _note(self, event: str, figures: Mapping[str, object]) -> None:
        self.events.append((event, figures))
