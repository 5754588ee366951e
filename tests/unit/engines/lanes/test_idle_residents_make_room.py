# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""More programs than the device has memory for: those that do nothing are suspended for others."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ullage.engines.lanes.records import (
    Change,
    Granted,
    JobDemand,
    JobRefused,
    Joined,
    Opened,
    Placed,
    Queued,
    Resume,
    Suspend,
    TableRefusal,
    Turn,
    Waits,
)
from ullage.engines.lanes.settings import EXACT, LaneSettings
from ullage.engines.lanes.state import MemoryPlace
from ullage.engines.lanes.table import LaneTable

SETTINGS = LaneSettings(
    capacity_mib=1000,
    margins=EXACT,
    idle_s=5.0,
    busy_s=60.0,
    least_resident_s=10.0,
    spare_s=300.0,
)


def notebook(name: str, persistent_mib: int = 400, *, suspendable: bool = True) -> JobDemand:
    return JobDemand(
        name=name,
        persistent_mib=persistent_mib,
        ephemeral_mib=200,
        assigned=1,
        suspendable=suspendable,
    )


def a_table(*demands: JobDemand) -> LaneTable:
    table = LaneTable(settings=SETTINGS)
    for one in demands:
        assert isinstance(table.arrive(one, 0.0)[0], Opened | Joined)
    return table


def orders(changes: Iterable[Change | Turn]) -> list[Suspend | Resume]:
    return [one for one in changes if isinstance(one, Suspend | Resume)]


def suspended(table: LaneTable, name: str, now_s: float, *, wants: JobDemand) -> LaneTable:
    """A table on which a newcomer has taken the place of a resident."""
    (order,) = orders(table.arrive(wants, now_s)[1])
    assert (type(order), order.job) == (Suspend, name)
    table.has_left(order.order, now_s, done=True)
    return table


def test_nobody_is_suspended_while_nobody_waits() -> None:
    table = a_table(notebook("a"), notebook("b"))
    assert table.look(10_000.0) == ()
    assert set(table.memory.residents) == {"a", "b"}


def test_a_newcomer_gets_the_memory_of_one_that_is_idle_once_it_has_left() -> None:
    table = a_table(notebook("a"), notebook("b"))
    turn, _ = table.acquire("a", 12.0)
    assert isinstance(turn, Granted)
    table.release(turn.lease.lease, 13.0)
    answer, changes = table.arrive(notebook("c"), 14.0)
    assert isinstance(answer, Queued)
    assert orders(changes) == [Suspend(job="b", order=1)], "b did nothing for longer"
    assert "c" in table.queue, "the memory of b is its own until it has left"
    (placed,) = table.has_left(1, 15.0, done=True)
    assert isinstance(placed, Joined)
    assert set(table.memory.residents) == {"a", "c"}
    assert set(table.away.jobs) == {"b"}


@pytest.mark.parametrize(
    ("now_s", "what"), [(4.0, "idle for a moment"), (9.0, "here for less than ten seconds")]
)
def test_a_resident_is_left_alone_at_first(now_s: float, what: str) -> None:
    table = a_table(notebook("a"), notebook("b"))
    _, changes = table.arrive(notebook("c"), now_s)
    assert not orders(changes), what
    assert orders(table.look(20.0))


def test_only_those_whose_owner_permits_it_are_suspended() -> None:
    table = a_table(notebook("a", suspendable=False), notebook("b", suspendable=False))
    table.arrive(notebook("c"), 20.0)
    assert not table.look(10_000.0)


def test_nobody_is_suspended_where_it_does_not_help() -> None:
    table = a_table(notebook("a", 500, suspendable=False), notebook("b", 100))
    table.arrive(notebook("c", 700), 20.0)
    assert not table.look(10_000.0)


def test_no_more_are_suspended_than_are_needed() -> None:
    table = a_table(notebook("a", 100), notebook("b", 100), notebook("c", 500))
    _, changes = table.arrive(notebook("d", 500), 20.0)
    assert [one.job for one in orders(changes)] == ["c"]
    assert not orders(table.look(21.0)), "c is leaving already"


def test_a_suspended_job_that_asks_waits_until_its_memory_is_free_again() -> None:
    table = suspended(a_table(notebook("a"), notebook("b")), "a", 20.0, wants=notebook("c"))
    turn, changes = table.acquire("a", 21.0)
    assert isinstance(turn, Waits)
    assert [one.job for one in orders(changes)] == ["b"], "c has just come, b does nothing"
    (leaves,) = orders(changes)
    (back,) = orders(table.has_left(leaves.order, 22.0, done=True))
    assert back == Resume(job="a", order=3, lane=1, persistent_mib=400)
    assert table.memory.residents["a"].memory is MemoryPlace.COMING
    (granted,) = table.is_back(back.order, 23.0, done=True)
    assert isinstance(granted, Granted)
    assert granted.job == "a"


def test_no_restore_is_tried_while_the_memory_is_not_there() -> None:
    table = suspended(a_table(notebook("a"), notebook("b")), "a", 20.0, wants=notebook("c"))
    for job in ("b", "c"):
        table.acquire(job, 20.0)
    _, changes = table.acquire("a", 21.0)
    assert not orders(changes)
    assert table.place("a").missing_mib == 400
    assert not orders(table.look(79.0)), "both work, and a has not waited for a minute"
    assert not any(one.leaves for one in table.memory.residents.values())


def test_a_job_that_waits_for_long_gets_its_turn_from_those_that_work() -> None:
    table = suspended(a_table(notebook("a"), notebook("b")), "a", 20.0, wants=notebook("c"))
    first, _ = table.acquire("b", 20.0)
    table.acquire("c", 20.0)
    table.acquire("a", 21.0)
    assert isinstance(first, Granted)
    assert not orders(table.look(81.0)), "b is in its step"
    assert table.memory.residents["b"].leaves
    changes = table.release(first.lease.lease, 82.0, again=True)
    assert [one.job for one in orders(changes)] == ["b"]
    assert [one.job for one in changes if isinstance(one, Granted)] == ["c"]


def test_a_job_that_came_back_has_a_step_before_it_leaves_again() -> None:
    table = suspended(a_table(notebook("a"), notebook("b")), "a", 20.0, wants=notebook("c"))
    turn, _ = table.acquire("c", 20.0)
    assert isinstance(turn, Granted)
    (leaves,) = orders(table.acquire("a", 21.0)[1])
    (back,) = orders(table.has_left(leaves.order, 22.0, done=True))
    table.is_back(back.order, 23.0, done=True)
    table.acquire("b", 24.0)
    (order,) = orders(table.look(500.0)) or (None,)
    assert order is None, "a waits for its lane, c is in its step"
    changes = table.release(turn.lease.lease, 501.0)
    assert [one.job for one in changes if isinstance(one, Granted)] == ["a"]
    assert [one.job for one in orders(changes)] == ["c"]


def test_a_job_that_cannot_be_suspended_stays_and_is_spared() -> None:
    table = a_table(notebook("a"), notebook("b", suspendable=False))
    (order,) = orders(table.arrive(notebook("c"), 20.0)[1])
    assert not table.has_left(order.order, 21.0, done=False)
    assert table.memory.residents["a"].may_run
    assert not table.look(320.0)
    assert orders(table.look(321.0))


def test_a_job_that_asks_while_it_leaves_is_the_next_to_come_back() -> None:
    table = a_table(notebook("a"), notebook("b"))
    (order,) = orders(table.arrive(notebook("c"), 20.0)[1])
    turn, _ = table.acquire("a", 20.5)
    assert isinstance(turn, Waits), "its memory is on its way out"
    changes = table.has_left(order.order, 21.0, done=True)
    assert list(table.queue) == ["a"]
    assert [one.job for one in orders(changes)] == ["b"]


def test_a_job_that_cannot_be_resumed_runs_no_step_and_keeps_its_memory_reserved() -> None:
    table = suspended(a_table(notebook("a"), notebook("b")), "a", 20.0, wants=notebook("c"))
    (leaves,) = orders(table.acquire("a", 21.0)[1])
    (back,) = orders(table.has_left(leaves.order, 22.0, done=True))
    assert not table.is_back(back.order, 23.0, done=False)
    assert table.acquire("a", 24.0) == (
        JobRefused(job="a", reason=TableRefusal.STUCK, usable_mib=1000),
        (),
    )
    assert table.memory.free_mib == 0
    assert not table.look(10_000.0)
    table.leave("a", 10_001.0)
    assert table.memory.free_mib == 400


def test_an_outcome_that_comes_too_late_changes_nothing() -> None:
    table = a_table(notebook("a"), notebook("b"))
    (order,) = orders(table.arrive(notebook("c"), 20.0)[1])
    table.leave("a", 21.0)
    table.arrive(notebook("a", 10), 22.0)
    before = table.record()
    for done in (True, False):
        assert table.has_left(order.order, 23.0, done=done) == ()
        assert table.is_back(order.order, 23.0, done=done) == ()
    assert table.record() == before


def test_what_a_job_keeps_beyond_its_word_is_its_own_part_when_it_comes_back() -> None:
    table = a_table(notebook("a"), notebook("b"))
    (order,) = orders(table.arrive(notebook("c"), 20.0)[1])
    table.has_left(order.order, 21.0, done=True, holds_mib=5000)
    away = table.away.jobs["a"]
    assert (away.persistent_mib, away.ephemeral_mib) == (600, 0), "never more than it was promised"


def test_a_job_that_asks_no_longer_is_not_resumed() -> None:
    table = suspended(a_table(notebook("a"), notebook("b")), "a", 20.0, wants=notebook("c"))
    table.acquire("b", 20.5)
    table.acquire("a", 21.0)
    table.withdraw("a", 22.0)
    assert not table.look(10_000.0)
    assert set(table.away.jobs) == {"a"}


def test_another_keeper_goes_on_with_what_is_away_and_on_its_way() -> None:
    table = suspended(a_table(notebook("a"), notebook("b")), "a", 20.0, wants=notebook("c"))
    table.acquire("a", 21.0)
    after = LaneTable.restored(SETTINGS, table.record(), 22.0)
    assert set(after.away.jobs) == {"a"}
    assert not after.queue, "who asks must ask again"
    (order,) = after.orders_again()
    assert isinstance(order, Suspend)
    assert order.job == "b"
    after.has_left(order.order, 23.0, done=True)
    (back,) = orders(after.recall("a", 24.0))
    later = LaneTable.restored(SETTINGS, after.record(), 25.0)
    (same,) = later.orders_again()
    assert isinstance(same, Resume)
    assert (same.job, same.persistent_mib) == (back.job, 400)
    later.is_back(same.order, 26.0, done=True)
    assert isinstance(later.acquire("a", 27.0)[0], Granted)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(50, 800), st.integers(10, 200)), min_size=2, max_size=7),
    st.lists(st.tuples(st.integers(0, 6), st.floats(0.1, 40.0)), max_size=30),
)
def test_everyone_who_asks_runs_in_the_end_however_little_memory_there_is(
    sizes: list[tuple[int, int]], asks: list[tuple[int, float]]
) -> None:
    world = _World(sizes)
    for at, pause_s in asks:
        world.ask(f"job-{at % len(sizes)}")
        world.later(pause_s)
    for name in list(world.pending):
        world.ask(name)
    for _ in range(4 * len(sizes)):
        world.later(70.0)
    assert not world.pending
    assert world.most_mib <= SETTINGS.capacity_mib


class _World:
    """Programs that work now and then; a step, and each suspend and resume, ends at the next look.

    Each fits the device alone; what is on it is counted here, from orders and answers alone.
    """

    def __init__(self, sizes: list[tuple[int, int]]) -> None:
        self.table = LaneTable(settings=SETTINGS)
        self.now_s = 0.0
        self.kept: dict[str, int] = {}
        self.leases: dict[str, Granted] = {}
        self.orders: dict[str, Suspend | Resume] = {}
        self.pending: set[str] = set()
        self.most_mib = 0
        self.sizes = {f"job-{at}": size for at, size in enumerate(sizes)}
        for name, (persistent, ephemeral) in self.sizes.items():
            demand = JobDemand(
                name=name,
                persistent_mib=persistent,
                ephemeral_mib=ephemeral,
                assigned=1,
                suspendable=True,
            )
            answer, changes = self.table.arrive(demand, 0.0)
            self.pending.add(name)
            self.see((answer, *changes))

    def ask(self, name: str) -> None:
        if name in self.leases or (name in self.table.queue and name not in self.table.away.jobs):
            return
        self.pending.add(name)
        turn, changes = self.table.acquire(name, self.now_s)
        self.see((turn, *changes))

    def later(self, seconds: float) -> None:
        self.now_s += seconds
        for name, granted in list(self.leases.items()):
            del self.leases[name]
            self.see(self.table.release(granted.lease.lease, self.now_s))
        for name, order in list(self.orders.items()):
            del self.orders[name]
            if isinstance(order, Suspend):
                del self.kept[name]
                self.see(self.table.has_left(order.order, self.now_s, done=True))
            else:
                self.see(self.table.is_back(order.order, self.now_s, done=True))
        self.see(self.table.look(self.now_s))

    def see(self, changes: Iterable[Change | Turn]) -> None:
        for one in changes:
            if isinstance(one, Placed | Resume):
                self.kept[one.job] = self.sizes[one.job][0]
            if isinstance(one, Suspend | Resume):
                self.orders[one.job] = one
            elif isinstance(one, Granted):
                self.leases[one.job] = one
                self.pending.discard(one.job)
            elif isinstance(one, Placed):
                self.ask(one.job)
        steps = sum(self.sizes[name][1] for name in self.leases)
        self.most_mib = max(self.most_mib, sum(self.kept.values()) + steps)
