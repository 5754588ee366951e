# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks that run in any order, ahead of each other, agree on the sizes of every batch."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from ullage.api.rebalancing import EvenReason
from ullage_run.uneven_agreement import Agreement, Position, Report, SizePlan

EVEN = 8
EPOCH = 40


class Waits(Exception):
    """The key that a rank waits for is not there."""


class Memory:
    """A store; a missing key raises instead of blocking."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)

    def get(self, key: str) -> bytes:
        if key not in self.values:
            raise Waits(key)
        return self.values[key].encode()

    def set(self, key: str, value: str) -> None:
        self.values[key] = value


class Program:
    """A rank's loop with a loader that takes batches ahead."""

    def __init__(self, store: Memory, rank: int, world: int, ahead: int, units: list[float]):
        self.side = Agreement(
            store, rank, world, EVEN, poll_s=0.5, session="word" if rank == 0 else ""
        )
        self.rank, self.units, self.ahead = rank, units, ahead
        self.steps = self.taken = 0
        self.plans: list[SizePlan] = []
        self.refusal = EvenReason.NONE
        self.silent = False
        self.skipped = 0
        self.data = "same"

    def position(self, batch: int) -> Position:
        return Position(*divmod(batch + self.skipped, EPOCH))

    def advance(self, *, talk: bool) -> None:
        """Take batches, step, and report where it is time."""
        while self.taken <= self.steps + self.ahead:
            self.plans.append(self.side.plan_at(self.position(self.taken)))
            self.taken += 1
        at, plan = self.position(self.steps), self.plans[self.steps]
        self.steps += 1
        data = f"{self.data} in epoch {at.epoch}"
        self.side.note(self.steps, at, plan.number, data)
        if talk and not self.silent:
            unit = self.units[self.rank] if plan.number == self.side.current.number else 0.0
            following = self.position(self.taken)
            report = Report(self.steps, at, plan.number, following, data, unit, 0.3, self.refusal)
            self.side.exchange(report)


def run(programs: Sequence[Program], order: Sequence[tuple[int, bool]], lead: int) -> None:
    """Let ranks advance in an order, none more than ``lead`` steps ahead of another."""
    for number, talk in order:
        slowest = min(program.steps for program in programs)
        program = programs[number % len(programs)]
        if program.steps - slowest >= lead:
            program = min(programs, key=lambda each: each.steps)
        try:
            program.advance(talk=talk)
        except Waits:
            # only a decision is waited for, and rank 0 never waits
            assert program.rank
            programs[0].advance(talk=talk)


def agree(programs: Sequence[Program]) -> int:
    """All ranks cut every batch alike; the number of plans that were used."""
    shared = min(len(program.plans) for program in programs)
    for batch in range(shared):
        assert len({program.plans[batch].sizes for program in programs}) == 1
        assert sum(programs[0].plans[batch].sizes) == EVEN * len(programs)
    return len({plan.number for plan in programs[0].plans[:shared]})


ORDER = st.lists(st.tuples(st.integers(0, 7), st.booleans()), max_size=120)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(2, 4),
    ORDER,
    st.integers(1, 6),
    st.integers(0, 8),
    st.lists(st.sampled_from([1.0, 1.1, 2.0, 5.0]), min_size=4, max_size=4),
    st.data(),
)
def test_every_batch_is_cut_alike_in_any_order(
    world: int,
    order: list[tuple[int, bool]],
    lead: int,
    ahead: int,
    units: list[float],
    data: st.DataObject,
) -> None:
    store = Memory()
    programs = [Program(store, rank, world, ahead, units) for rank in range(world)]
    run(programs, order, lead)
    units[data.draw(st.integers(0, 3))] *= data.draw(st.sampled_from([0.2, 1.0, 3.0]))
    run(programs, data.draw(ORDER), lead)
    agree(programs)


def regular(programs: Sequence[Program], rounds: int) -> None:
    run(programs, [(rank, True) for _ in range(rounds) for rank in range(len(programs))], 1)


def four(units: list[float]) -> list[Program]:
    store = Memory()
    return [Program(store, rank, 4, 2, units) for rank in range(4)]


def test_a_slow_rank_gets_less_soon_and_as_much_again_later() -> None:
    units = [1.0, 1.0, 2.0, 1.0]
    programs = four(units)
    regular(programs, 20)
    assert programs[3].side.current.sizes == (9, 9, 5, 9)
    units[2] = 1.0
    regular(programs, 20)
    assert programs[3].side.current.sizes == (8, 8, 8, 8)
    assert agree(programs) == 3


def test_a_small_difference_changes_nothing() -> None:
    programs = four([1.0, 1.0, 1.03, 1.0])
    regular(programs, 40)
    assert agree(programs) == 1


def test_without_one_rank_nothing_changes_and_nobody_waits() -> None:
    programs = four([1.0, 1.0, 2.0, 1.0])
    programs[1].silent = True
    regular(programs, 40)
    assert agree(programs) == 1
    assert {program.steps for program in programs} == {40}


def test_a_rank_that_falls_silent_leaves_all_on_the_last_plan() -> None:
    units = [1.0, 1.0, 2.0, 1.0]
    programs = four(units)
    regular(programs, 20)
    programs[1].silent, units[2] = True, 1.0
    regular(programs, 40)
    assert agree(programs) == 2


def test_a_refusal_of_one_rank_makes_all_even_again() -> None:
    programs = four([1.0, 1.0, 2.0, 1.0])
    regular(programs, 20)
    programs[3].refusal = EvenReason.LOSS_NOT_A_MEAN
    regular(programs, 30)
    assert {program.side.current.sizes for program in programs} == {(8, 8, 8, 8)}
    assert {program.side.refusal for program in programs} == {EvenReason.LOSS_NOT_A_MEAN}
    assert agree(programs) == 3


def test_ranks_that_read_other_data_are_refused() -> None:
    programs = four([1.0, 1.0, 2.0, 1.0])
    programs[2].data = "another seed"
    regular(programs, 40)
    assert {program.side.refusal for program in programs} == {EvenReason.RANKS_DIFFER}
    assert agree(programs) == 1


def test_a_rank_that_looked_into_the_loader_before_is_refused() -> None:
    programs = four([1.0, 1.0, 2.0, 1.0])
    programs[2].skipped = EPOCH  # a first iteration, for one batch to look at
    regular(programs, 40)
    assert programs[0].side.refusal is EvenReason.RANKS_DIFFER
    assert agree(programs) == 1
