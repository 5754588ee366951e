# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Members are killed, leave, and join in the middle of steps; the result stays what it was."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest

from fakes.toy_group import STATE_BYTES, ToyJob, ToyMember, expected
from ullage_coordinator.coordinator import NeverJoined
from ullage_coordinator.state_store import Store
from ullage_run.frames import Buffer, Ending, Frame, Kind
from ullage_run.orders import StoredCopy

STEPS = 40
COPIED = 4
"""From here on there is a copy: the lag is two steps."""


def crew(job: ToyJob, hook, until: int = STEPS) -> dict[str, ToyMember]:  # type: ignore[no-untyped-def]
    names = ["r0", "s1", "s2", "s3"]
    return {name: job.member(name, until=until, reliable=name == "r0", hook=hook) for name in names}


def test_undisturbed_members_share_the_state_and_end_together() -> None:
    with ToyJob() as job:
        members = crew(job, lambda *_: None)
        assert job.finish() == expected(STEPS)
        assert job.ending is Ending.FINISHED
        owners = [name for name, one in members.items() if one.state.shards]
        assert len(owners) == 2
        assert "r0" not in owners
        assert {one.ending for one in members.values()} == {Ending.FINISHED}


@pytest.mark.parametrize("moment", ["before", "between", "after"])
@pytest.mark.parametrize("owner", [True, False])
def test_a_member_killed_in_the_middle_of_a_step_costs_two_steps_at_most(
    moment: str, owner: bool
) -> None:
    struck = threading.Event()

    def strike(one: ToyMember, step: int, now: str) -> None:
        fits = bool(one.group.shards) == owner and not one.reliable
        if step >= 15 and now == moment and fits and not struck.is_set():
            struck.set()
            one.die()

    with ToyJob() as job:
        crew(job, strike)
        assert job.finish() == expected(STEPS)
        assert struck.is_set()
        lost = [int(str(one["lostSteps"])) for one in job.seen("Recovered")]
        assert all(steps <= 2 for steps in lost)
        if owner:
            assert lost


def test_all_transient_members_die_at_once_and_others_go_on_from_the_copy() -> None:
    struck = threading.Event()

    def strike(one: ToyMember, step: int, now: str) -> None:
        if step == 20 and now == "between" and one.name == "s1" and not struck.is_set():
            struck.set()
            for other in job.members:
                if not other.reliable:
                    other.die()

    with ToyJob() as job:
        crew(job, strike)
        job.await_event("AllOwnersLost")
        assert job.finish() == expected(STEPS)
        assert max(int(str(one["lostSteps"])) for one in job.seen("Recovered")) <= 2


@pytest.mark.parametrize("apart", [0, 1])
def test_a_reliable_member_and_an_owner_die_together_and_the_copy_holds(apart: int) -> None:
    first, second = threading.Event(), threading.Event()

    def strike(one: ToyMember, step: int, now: str) -> None:
        if step >= 15 and now == "between" and one.reliable and not first.is_set():
            first.set()
            one.die()
        owner = bool(one.group.shards) and not one.reliable
        if first.is_set() and step >= 15 + apart and owner and not second.is_set():
            second.set()
            one.die()

    with ToyJob() as job:
        crew(job, strike)
        assert job.finish() == expected(STEPS)
        assert first.is_set()
        assert second.is_set()
        assert max(int(str(one["lostSteps"])) for one in job.seen("Recovered")) <= 2


def test_all_members_die_at_once_and_those_that_come_go_on_from_the_copy() -> None:
    struck = threading.Event()

    def strike(one: ToyMember, step: int, now: str) -> None:
        if step == 20 and now == "between" and not struck.is_set():
            struck.set()
            for other in job.members:
                other.die()

    with ToyJob() as job:
        crew(job, strike)
        assert struck.wait(20)
        for name in ("r9", "s8", "s9"):
            job.member(name, until=STEPS, reliable=name == "r9")
        assert job.finish() == expected(STEPS)
        assert max(int(str(one["lostSteps"])) for one in job.seen("Recovered")) <= 2


class StoreAtWhichAllDie(Store):
    """When the coordinator fences it for the n-th time, every member's connection ends."""

    def __init__(self, fence: int) -> None:
        super().__init__(STATE_BYTES)
        self.fences, self.fence, self.struck = 0, fence, threading.Event()
        self.kill: Callable[[], None] = lambda: None

    def begin(self, epoch: int, shards: int, maps: bytes = b"") -> StoredCopy:
        self.fences += 1
        if self.fences == self.fence:
            self.kill()
            self.struck.set()
        return super().begin(epoch, shards, maps)


@pytest.mark.parametrize("fence", [1, 2, 3])
def test_all_members_die_while_their_parts_are_decided(fence: int) -> None:
    store = StoreAtWhichAllDie(fence)

    def strike(one: ToyMember, step: int, now: str) -> None:
        if step == 9 and now == "before" and one.name == "s1":
            one.die()

    with ToyJob(store=store) as job:

        def kill() -> None:
            while job._roster.peers():  # one may still be joining
                for other in job.members:
                    other.die()
                time.sleep(0.001)

        store.kill = kill
        crew(job, strike)
        assert store.struck.wait(20)
        for name in ("r9", "s7", "s8", "s9"):
            job.member(name, until=STEPS, reliable=name == "r9")
        assert job.finish() == expected(STEPS)


def test_without_any_reliable_member_owners_push_on() -> None:
    gone, struck = threading.Event(), threading.Event()

    def strike(one: ToyMember, step: int, now: str) -> None:
        if step >= 10 and now == "before" and one.reliable and not gone.is_set():
            gone.set()
            one.leave()
        if step >= 25 and now == "between" and one.group.shards and not struck.is_set():
            struck.set()
            one.die()

    with ToyJob() as job:
        crew(job, strike)
        assert job.finish() == expected(STEPS)
        assert gone.is_set()
        assert struck.is_set()
        assert max(int(str(one["lostSteps"])) for one in job.seen("Recovered")) <= 2


def test_who_has_notice_hands_over_and_nothing_is_lost() -> None:
    struck = threading.Event()

    def strike(one: ToyMember, step: int, now: str) -> None:
        if step >= 10 and now == "before" and one.group.shards and not struck.is_set():
            struck.set()
            one.leave()

    with ToyJob() as job:
        members = crew(job, strike)
        assert job.finish() == expected(STEPS)
        assert [one.ending for one in members.values()].count(Ending.MOVED) == 1
        assert not job.seen("Recovered")
        gone = next(one for one in members.values() if one.ending is Ending.MOVED)
        assert len(set(gone.steps)) == len(gone.steps)


@pytest.mark.parametrize("moment", ["before", "between", "after"])
def test_all_who_leave_together_end_with_the_whole_state_and_nothing_is_lost(moment: str) -> None:
    """As a deletion or a preemption asks them to; those that come later go on from there."""
    struck = threading.Event()

    def strike(one: ToyMember, step: int, now: str) -> None:
        if step >= 10 and now == moment and not struck.is_set():
            struck.set()
            for other in job.members:
                other.leave()

    with ToyJob() as job:
        members = crew(job, strike).values()
        for one in members:
            one.thread.join(20)
        assert {one.ending for one in members} == {Ending.MOVED}
        owners = [one for one in members if one.group.shards]
        (at,) = {one.group.step for one in owners}
        state = {shard: value for one in owners for shard, value in one.state.shards.items()}
        assert state == expected(at)
        assert job.store.held().committed == at
        for name in ("r9", "s7", "s8", "s9"):
            job.member(name, until=STEPS, reliable=name == "r9")
        assert job.finish() == expected(STEPS)
        assert {one["lostSteps"] for one in job.seen("Recovered")} == {0}


def test_who_dies_while_it_takes_over_leaves_the_state_where_it_was() -> None:
    """The maps of before hold again: who was about to give its shards away still has them."""
    joined, heard, struck = threading.Event(), threading.Event(), threading.Event()

    def strike(one: ToyMember, step: int, now: str) -> None:
        if step >= 10 and now == "after" and not joined.is_set():
            joined.set()
            job.member("s4", until=STEPS)
        if joined.is_set() and now == "before":
            struck.wait(0.1)  # no one is through before the newcomer is in

    def dies(one: ToyMember) -> Callable[[int, Buffer | None], None]:
        take = one.state.take

        def taken(shard: int, data: Buffer | None) -> None:
            if joined.is_set() and not struck.is_set():
                struck.set()
                assert heard.wait(10)
                one.die()
            take(shard, data)

        return taken

    with ToyJob() as job:
        for one in crew(job, strike).values():
            one.state.take = dies(one)  # type: ignore[method-assign]
            ready(one, lambda: joined.is_set() and heard.set())
        assert job.finish() == expected(STEPS)
        assert struck.is_set()
        assert {one["lostSteps"] for one in job.seen("Recovered")} == {0}


def ready(one: ToyMember, call: Callable[[], object]) -> None:
    """Call when the member says that it has new maps."""
    send = one.group._send

    def sent(frame: Frame, data: Buffer = b"") -> None:
        send(frame, data)
        if frame.kind is Kind.READY:
            call()

    one.group._send = sent  # type: ignore[method-assign]


def test_who_comes_again_is_someone_else_and_owns_nothing_it_has_not() -> None:
    struck = threading.Event()

    def strike(one: ToyMember, step: int, now: str) -> None:
        if step >= 12 and now == "after" and one.group.shards and not struck.is_set():
            struck.set()
            one.die()
            again.append(job.member(one.name, until=STEPS))

    again: list[ToyMember] = []
    with ToyJob() as job:
        crew(job, strike)
        assert job.finish() == expected(STEPS)
        assert again[0].ending is Ending.FINISHED
        assert again[0].group.identity.name in ("s1", "s2", "s3")
        joined = [str(one["member"]) for one in job.seen("MemberJoined")]
        assert f"{again[0].group.identity.name}#2" in joined


@pytest.mark.slow
def test_a_machine_that_falls_silent_is_given_up() -> None:
    silent = threading.Event()

    def hang(one: ToyMember, step: int, now: str) -> None:
        if step >= 10 and now == "before" and one.group.shards and not silent.is_set():
            silent.set()
            one.group._lost = OSError("no more beats")
            threading.Event().wait(2)

    with ToyJob(silent_s=0.7) as job:
        crew(job, hang)
        found = job.finish()
        assert found == expected(STEPS)
        assert job.seen("Recovered")


def test_without_a_copy_a_lost_owner_ends_the_job_for_a_new_beginning() -> None:
    def strike(one: ToyMember, step: int, now: str) -> None:
        if step == 5 and now == "after" and one.group.shards:
            one.die()

    with ToyJob(copy=False) as job:
        members = crew(job, strike)
        job.finish()
        assert job.ending is Ending.STATE_LOST
        assert Ending.STATE_LOST in {one.ending for one in members.values()}


def test_a_job_whose_members_do_not_come_says_who_came() -> None:
    with ToyJob(join_s=0.3) as job:
        job.member("s1", until=STEPS)
        with pytest.raises(NeverJoined, match=r"s1 joined in 0\.3 s; the job begins with 4"):
            job.finish()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_the_result_is_the_same(seed: int) -> None:
    draw = random.Random(seed)
    lock = threading.Lock()
    count = 0

    def strike(one: ToyMember, step: int, now: str) -> None:
        nonlocal count
        with lock:
            if one.reliable or step < COPIED or count >= 12 or draw.random() > 0.02:
                return
            count += 1
            what, number = draw.choice(["die", "die", "leave", "join"]), count
        if what == "die":
            one.die()
        elif what == "leave":
            one.leave()
        if what != "join" or draw.random() < 0.7:
            job.member(f"n{number}", until=120, hook=strike)

    with ToyJob() as job:
        crew(job, strike, until=120)
        assert job.finish() == expected(120)
        lost = [int(str(one["lostSteps"])) for one in job.seen("Recovered")]
        assert all(steps <= 2 for steps in lost)
