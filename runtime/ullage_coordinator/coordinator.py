# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Coordinates a job in tiers: assigns owners and blocks, and begins each step.

It runs beside the state store, on a machine that is not preempted, and decides by
``engines.tiers``. A step is complete when all members have finished it. It must never begin a step
under maps that a member has not applied, and never roll back further than the state store's last
complete copy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final

from ullage.engines.tiers.decide import decide
from ullage.engines.tiers.records import Maps, Situation, StateSource, TierDecision
from ullage.engines.tiers.stages import TierStage
from ullage_coordinator.maps import CoordinatorSettings, assignment_of, member_of
from ullage_coordinator.roster import MemberMessage, Roster, left
from ullage_coordinator.state_store import ShardStore
from ullage_coordinator.status import CoordinatorState
from ullage_coordinator.times import LEAVE_S, ORDER_S
from ullage_run.frames import Ending, Frame, FrameKind
from ullage_run.orders import encode_parts, milliseconds

MOST_GATHERINGS: Final = 64
"""Most pending gatherings of one step; a member waits for one before it begins the next."""

Report = Callable[[str, Mapping[str, object]], None]
"""Takes the name of an event and its figures."""


class Lost(Exception):
    """Members with a part in the maps are gone."""


class NeverJoined(RuntimeError):
    """The job cannot begin; the text names the missing members."""


class Coordinator:
    """The loop of one job.

    Args:
        roster: Its members.
        store: The state store's copies.
        terms: Its settings.
        report: Receives events.
    """

    def __init__(
        self, roster: Roster, store: ShardStore, terms: CoordinatorSettings, report: Report
    ) -> None:
        self._roster = roster
        self._store = store
        self._terms = terms
        self._report = report
        self._maps: Maps | None = None
        self._epoch = 0
        self._changed_at = time.monotonic()
        self._leaves_at: dict[str, float] = {}
        self._ended: set[str] = set()
        self._assigned: set[str] = set()
        self._step_s = 0.0
        self._last = 0

    def progress(self) -> CoordinatorState | None:
        """Progress of the job, from any thread; ``None`` before its first maps."""
        maps = self._maps
        if maps is None:
            return None
        here = [
            peer.identity for name, peer in self._roster.peers().items() if name in self._assigned
        ]
        return CoordinatorState(
            stage=int(maps.stage),
            epoch=maps.epoch,
            step=self._last,
            committed=self._store.held().committed,
            copied=maps.stage is not TierStage.RELIABLE,
            reliable=sum(identity.reliable for identity in here),
            transient=sum(not identity.reliable for identity in here),
        )

    def run(self) -> Ending:
        """Coordinate until the last step is finished.

        Raises:
            NeverJoined: too few members joined.
        """
        last = self._await_members()
        try:
            while True:
                self._last = last
                try:
                    if self._maps is None:
                        last = self._move(last)
                    last, finished = self._advance(last)
                except Lost as lost:
                    never_began = self._maps is None
                    last = self._await_members() if never_began else self._recover(last, str(lost))
                    continue
                if finished:
                    return self._dismiss_all(Ending.FINISHED)
        except _StateLost as lost:
            self._report("StateLost", {"reason": str(lost)})
            return self._dismiss_all(Ending.STATE_LOST)
        except _StateTooLarge as lost:
            self._report("StateTooLarge", {"reason": str(lost)})
            return self._dismiss_all(Ending.TOO_LARGE, str(lost))

    def _advance(self, last: int) -> tuple[int, bool]:
        """Do the due work between two steps, and begin the next step."""
        while self._watch(0.0) is not None:
            continue
        if self._present() != self._assigned and self._present():
            self._move(last)
        elif not self._present() and self._leaves_at:
            self._let_all_go(last)
        began = time.monotonic()
        step = last + 1
        finished = self._do(step)
        took_s = time.monotonic() - began
        self._step_s = took_s if not self._step_s else 0.9 * self._step_s + 0.1 * took_s
        return step, finished

    def _do(self, step: int) -> bool:
        """Run one step of all members; true if it was the last.

        A member that owns nothing may leave during the step: the step is finished without it if it
        has delivered its part, and restarted if others wait for it. Those have changed nothing
        then.
        """
        active, owners = set(self._known()), self._owners()
        self._tell_in_step(active, Frame(kind=FrameKind.GO, epoch=self._epoch, step=step))
        parts: dict[int, dict[str, bytes]] = {}
        done: dict[str, bool] = {}
        gone: set[str] = set()
        while len(done) < len(active - gone):
            heard = self._watch(ORDER_S, bear=active - owners)
            if heard is None:
                continue
            if heard.frame is None:
                gone |= {heard.name} & active
                done.pop(heard.name, None)
            elif heard.name not in active or (
                heard.frame.epoch,
                heard.frame.step,
            ) != (self._epoch, step):
                continue
            elif heard.frame.kind is FrameKind.DONE:
                done[heard.name] = bool(heard.frame.flags)
            elif heard.frame.kind is FrameKind.PART:
                number = heard.frame.shard
                if number not in parts and len(parts) == MOST_GATHERINGS:
                    self._roster.dismiss(heard.name)  # exceeds the limit of a valid member
                    continue
                given = parts.setdefault(number, {})
                given[heard.name] = heard.data
                if given.keys() >= active:
                    self._answer(active - gone, number, step, parts.pop(number))
            if any(gone - given.keys() for given in parts.values()):
                raise Lost(", ".join(sorted(gone)))
        return bool(done) and all(done.values())

    def _answer(self, active: set[str], number: int, step: int, given: dict[str, bytes]) -> None:
        frame = Frame(kind=FrameKind.PARTS, shard=number, epoch=self._epoch, step=step)
        self._tell_in_step(active, frame, encode_parts(given))

    def _tell_in_step(self, active: set[str], frame: Frame, data: bytes = b"") -> None:
        """Send within a step; the loss of a member that owns nothing does not end the step."""
        for name in sorted(active):
            if not self._roster.tell(name, frame, data) and name in self._owners():
                raise Lost(name)

    def _make_copy_whole(self, last: int) -> None:
        """Complete the copy before shards move through it: pending data is pushed first.

        Raises:
            Lost: a member that has to push is gone.
            _StateLost: no copy is kept.
        """
        old = self._maps
        seen = self._situation(last, committed=self._store.held().committed, heard=0)
        before = decide(seen, self._terms.settings)
        if old is None or before.maps.owners == old.owners or before.source is not StateSource.NONE:
            return
        if not self._terms.copy:
            raise _StateLost("shards have to move and no copy is kept")
        self._flush(last)

    def _flush(self, last: int) -> None:
        """Bring the copy to the last step."""
        names = sorted(self._owners())
        for name in names:
            self._tell(name, Frame(kind=FrameKind.FLUSH, flags=1, epoch=self._epoch, step=last))
        self._gather(names, FrameKind.FLUSHED, last)

    def _let_all_go(self, last: int) -> None:
        """Complete the copy and end all members after the same step, as no successor remains.

        Raises:
            Lost: always; later members continue from the copy.
        """
        if self._terms.copy:
            self._flush(last)
        for name in sorted(self._roster.peers().keys() - self._ended):
            self._roster.tell(name, Frame(kind=FrameKind.LEAVE, flags=Ending.MOVED))
            self._ended.add(name)
        raise Lost("all members")

    def _recover(self, last: int, who: str) -> int:
        """Recover after a loss; returns the last valid step, where the loop resumes."""
        began = time.monotonic()
        while True:
            try:
                back = self._move(last)
            except Lost:
                continue  # more of the same event: decide again
            self._report(
                "Recovered",
                {
                    "members": who,
                    "step": back,
                    "lostSteps": max(0, last - back),
                    "seconds": round(time.monotonic() - began, 3),
                },
            )
            return back

    def _move(self, last: int) -> int:
        """Get maps from the engine and apply them; returns the step valid afterwards.

        A transition interrupted by a loss has changed nothing: it is decided again from the maps
        that all members had, under an unused epoch. The state store is fenced first: otherwise a
        push could complete a later step after the cut was read.
        """
        self._await_someone()
        self._make_copy_whole(last)
        self._epoch += 1
        shards = self._terms.settings.shards
        held = self._store.begin(self._epoch, shards)
        # owners push before they report: a copy of the step means that all of them finished it
        last = max(last, held.committed or 0)
        decision = decide(
            self._situation(last, committed=held.committed, heard=self._epoch),
            self._terms.settings,
        )
        if decision.source is StateSource.CHECKPOINT or (
            decision.source is StateSource.STATE_STORE and held.committed is None
        ):
            raise _StateLost(decision.text)
        back = held.committed if decision.source is StateSource.STATE_STORE else last
        assert back is not None
        self._epoch = decision.maps.epoch
        self._store.begin(self._epoch, shards)
        self._carry_out(decision, back)
        return back

    def _carry_out(self, decision: TierDecision, back: int) -> None:
        """Send every member its part and wait until all have applied it."""
        old, maps = self._maps, decision.maps
        leaving = (self._roster.peers().keys() & self._known()) - self._ended
        names = sorted(self._present() | leaving)
        gone = _parts_of(maps) - set(names)
        if gone:
            raise Lost(", ".join(sorted(gone)))
        committed, push = self._store.held().committed, self._terms.copy
        order = Frame(kind=FrameKind.ASSIGN, epoch=maps.epoch, step=back)
        for name in names:
            part = assignment_of(decision, old, name, names)
            self._tell(name, order, replace(part, push=push, committed=committed).encode())
        self._gather(names, FrameKind.READY, back)
        if old is None or maps.stage is not old.stage:
            self._changed_at = time.monotonic()
        self._maps, self._assigned = maps, self._present() & set(names)
        for name in sorted(set(names) - self._assigned):
            self._roster.tell(name, Frame(kind=FrameKind.LEAVE, flags=Ending.MOVED))
            self._ended.add(name)
        self._report(
            decision.reason.value,
            {
                "epoch": maps.epoch,
                "stage": int(maps.stage),
                "step": back,
                "owners": sorted(set(maps.owners)),
                "text": decision.text,
            },
        )

    def _situation(self, last: int, *, committed: int | None, heard: int) -> Situation:
        """The current state of the job.

        Raises:
            Lost: no member is left; connections may end at any time, not only during a receive.
        """
        now = time.monotonic()
        peers = self._roster.peers()
        names = sorted(peers.keys() - self._ended)
        if not names:
            raise Lost("all members")
        return Situation(
            members=tuple(
                member_of(peers[name].identity, self._leaves_at.get(name), now) for name in names
            ),
            link=self._terms.link,
            notice_s=self._terms.notice_s,
            maps=self._maps,
            since_s=now - self._changed_at,
            step=last,
            step_s=self._step_s,
            committed=committed,
            heard=heard,
        )

    def _await_members(self) -> int:
        """Wait for the first members; returns the step of their own state.

        Raises:
            NeverJoined: too few joined, or they begin at different steps.
        """
        began = time.monotonic()
        until = began + self._terms.join_s
        while not self._terms.enough(len(peers := self._roster.peers()), time.monotonic() - began):
            if not left(until):
                there = ", ".join(sorted(peers)) or "no one"
                raise NeverJoined(
                    f"{there} joined in {self._terms.join_s:g} s; the job begins with "
                    f"{self._terms.members} members"
                )
            self._watch(min(1.0, left(until)))
        begins = {peer.at_step for peer in peers.values()}
        if len(begins) > 1:
            raise NeverJoined(f"members begin at different steps: {sorted(begins)}")
        return begins.pop()

    def _await_someone(self) -> None:
        """Wait for a first member after all are gone, as long as the copy exists.

        Raises:
            _StateLost: no member joined in time.
        """
        until = time.monotonic() + self._terms.join_s
        while not self._present():
            if not left(until):
                raise _StateLost(f"no member came back within {self._terms.join_s:g} s")
            self._watch(min(1.0, left(until)))

    def _gather(self, names: list[str], answer: FrameKind, step: int) -> None:
        """Wait for all to answer this order; late answers of old maps are dropped.

        Raises:
            Lost: one of them is gone, or does not answer.
        """
        missing, epoch = set(names), self._epoch
        until = time.monotonic() + ORDER_S + 2 * self._push_s()
        while missing:
            heard = self._watch(left(until), among=missing)
            if heard is None:
                stuck = sorted(missing)
                self._roster.dismiss(stuck[0])
                raise Lost(f"{', '.join(stuck)} did not say {answer.name}")
            if heard.frame is None or heard.frame.kind is not answer:
                continue
            if (heard.frame.epoch, heard.frame.step) == (epoch, step):
                missing.discard(heard.name)

    def _push_s(self) -> float:
        """Seconds to push the whole state to the state store."""
        link = self._terms.link
        return link.state_bytes / min(link.host_bytes_per_s, link.state_store_bytes_per_s)

    def _tell(self, name: str, frame: Frame, data: bytes = b"") -> None:
        if not self._roster.tell(name, frame, data):
            raise Lost(name)

    def _watch(
        self, wait_s: float, *, among: Collection[str] = (), bear: Collection[str] = ()
    ) -> MemberMessage | None:
        """Process one message, if one arrives within a time.

        Args:
            wait_s: Seconds.
            among: Members that must not leave, beside those with a part in the maps.
            bear: Exceptions.

        Raises:
            Lost: one of them left.
            _StateTooLarge: the copy cannot be updated any more; the pushing member has ended, or
                soon will.
        """
        heard = self._roster.hear(wait_s)
        if self._store.too_large is not None:
            raise _StateTooLarge(self._store.too_large)
        if heard is None:
            return None
        if heard.frame is None:
            self._report("MemberGone", {"member": heard.name})
            left_alone = heard.name in self._ended
            self._leaves_at.pop(heard.name, None)
            self._ended.discard(heard.name)
            needed = heard.name in among or heard.name in self._known()
            if needed and not left_alone and heard.name not in bear:
                raise Lost(heard.name)
        elif heard.frame.kind is FrameKind.LEAVING:
            left_s = milliseconds(heard.data) / 1000
            self._leaves_at.setdefault(heard.name, time.monotonic() + left_s)
            self._report("EvictionNotice", {"member": heard.name, "seconds": left_s})
        elif heard.frame.kind is FrameKind.JOIN:
            self._report("MemberJoined", {"member": heard.name})
        return heard

    def _present(self) -> set[str]:
        """Members that run and are not leaving."""
        return self._roster.peers().keys() - self._leaves_at.keys() - self._ended

    def _known(self) -> set[str]:
        """Members with a part in the maps."""
        return set() if self._maps is None else _parts_of(self._maps)

    def _owners(self) -> set[str]:
        return set() if self._maps is None else set(self._maps.owners)

    def _dismiss_all(self, ending: Ending, why: str = "") -> Ending:
        for name in self._roster.peers():
            self._roster.tell(name, Frame(kind=FrameKind.LEAVE, flags=ending), why.encode())
        until = time.monotonic() + LEAVE_S
        while self._roster.peers() and left(until):
            self._roster.hear(min(0.2, left(until)))
        return ending


def _parts_of(maps: Maps) -> set[str]:
    """Members with a part in some maps."""
    return {*maps.owners, *maps.backups, *maps.workers}


class _StateLost(Exception):
    """Shards are gone and no complete copy is left."""


class _StateTooLarge(Exception):
    """The state does not fit into its copy."""
