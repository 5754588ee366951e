# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The rules of a pause, one window at a time."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TypeVar

import pytest

from fakes.guard_rig import GPU, VICTIM, a_tenant, a_window, key_of
from ullage.api.contract import Reason, SlicePhase
from ullage_node.guard.machine import GuardMachine, Limits
from ullage_node.guard.records import (
    Action,
    Ended,
    Freeze,
    Learned,
    Result,
    Tell,
    Tenant,
    Thaw,
)

Kind = TypeVar("Kind")
NOISE = a_tenant("noise")


class Story:
    """A machine and the second it is at; windows of one second follow one another."""

    def __init__(self, *tenants: Tenant, limits: Limits | None = None) -> None:
        self.machine = GuardMachine(limits)
        self.tenants = list(tenants or (VICTIM, NOISE))
        self.now = 100.0
        self.machine.see(self.tenants, self.now)

    def window(
        self, ratio: float, *, name: str = "victim", seconds: float = 1.0, step_micros: int = 50_000
    ) -> list[Action]:
        begin, self.now = self.now, self.now + seconds
        window = a_window(name, ratio, begin, self.now, step_micros=step_micros)
        return self.machine.window(window, self.now)

    def freeze(self, *ratios: float, problem: str = "") -> Freeze:
        """Windows until somebody is to be stopped, and the freezer's answer."""
        for ratio in ratios or (2.0, 2.0):
            actions = self.window(ratio)
        asked = one(actions, Freeze)
        self.machine.answered(asked.pause, problem, self.now)
        return asked

    def wait(self, seconds: float) -> list[Action]:
        self.now += seconds
        return self.machine.tick(self.now)

    def see(self, *tenants: Tenant) -> list[Action]:
        self.tenants = list(tenants)
        return self.machine.see(tenants, self.now)


def one(actions: list[Action], kind: type[Kind]) -> Kind:
    (found,) = [action for action in actions if isinstance(action, kind)]
    return found


def some(actions: list[Action], kind: type[Kind]) -> list[Kind]:
    return [action for action in actions if isinstance(action, kind)]


def reasons(actions: list[Action]) -> list[Reason]:
    return [action.reason for action in actions if isinstance(action, Tell)]


@pytest.mark.parametrize(
    ("ratios", "pauses"),
    [
        ((2.0,), False),
        ((2.0, 2.0), True),
        ((2.0, 0.5, 2.0), True),
        ((2.0, 0.5, 0.5, 2.0), False),
        ((1.0, 1.0, 1.0), False),
        ((1.001, 1.001), True),
    ],
)
def test_two_of_three_windows_above_the_objective_pause_the_neighbours(
    ratios: tuple[float, ...], pauses: bool
) -> None:
    story = Story()
    asked = [action for ratio in ratios for action in some(story.window(ratio), Freeze)]
    assert [action.keys for action in asked] == ([(NOISE.key,)] if pauses else [])


@pytest.mark.parametrize("nothing", [0.0, -1.0, math.nan, math.inf])
def test_a_window_without_data_counts_neither_way(nothing: float) -> None:
    story = Story()
    assert story.window(2.0) == []
    for _ in range(5):
        assert story.window(nothing) == []
    assert some(story.window(2.0), Freeze)
    assert story.machine.tallies[VICTIM.key].windows == 2


def test_windows_of_long_ago_are_forgotten() -> None:
    story = Story()
    story.window(2.0)
    story.now += 400
    assert story.window(2.0) == []


def test_a_cured_tenant_convicts_its_neighbour() -> None:
    story = Story()
    story.freeze()
    assert story.machine.marks[NOISE.key].phase is SlicePhase.FROZEN
    assert story.machine.marks[VICTIM.key].phase is SlicePhase.VIOLATING
    actions = story.window(0.6)
    learned = one(actions, Learned)
    assert (learned.beside.ratio, learned.without.ratio) == (2.0, 0.6)
    assert learned.neighbours == (NOISE,)
    assert learned.remaining == ()
    assert reasons(actions) == [Reason.INTERFERING]
    mark = story.machine.marks[NOISE.key]
    assert (mark.phase, mark.reason) == (SlicePhase.FROZEN, Reason.INTERFERING)
    ended = story.wait(10)
    assert one(ended, Thaw).keys == (NOISE.key,)
    assert one(ended, Ended).result is Result.CURED
    mark = story.machine.marks[NOISE.key]
    assert (mark.phase, mark.reason) == (None, Reason.INTERFERING)


def test_the_second_window_may_still_cure() -> None:
    story = Story()
    story.freeze()
    assert story.window(1.5) == []
    assert some(story.window(0.9), Learned)


def test_a_tenant_that_is_not_cured_is_its_own_load() -> None:
    story = Story()
    story.freeze()
    story.window(1.8)
    actions = story.window(1.8)
    assert one(actions, Thaw).keys == (NOISE.key,)
    assert one(actions, Ended).result is Result.NOT_CURED
    assert not some(actions, Learned)
    assert reasons(actions) == [Reason.BEST_EFFORT_RESUMED, Reason.SELF_VIOLATING]
    assert story.machine.marks[VICTIM.key].reason is Reason.SELF_VIOLATING
    assert NOISE.key not in story.machine.marks


def test_nobody_is_paused_again_for_a_load_of_its_own() -> None:
    story = Story()
    story.freeze()
    story.window(1.8)
    story.window(1.8)
    story.now += 200
    assert not any(some(story.window(1.8), Freeze) for _ in range(5))
    newcomer = a_tenant("newcomer")
    story.see(VICTIM, NOISE, newcomer)
    assert one(story.window(1.8), Freeze).keys == (newcomer.key, NOISE.key)


def test_a_tenant_that_got_better_may_be_helped_again() -> None:
    story = Story()
    story.freeze()
    story.window(1.8)
    story.window(1.8)
    for _ in range(3):
        story.window(0.5)
    assert story.machine.marks == {}
    story.now += 200
    story.freeze()


def test_a_window_that_began_before_the_pause_proves_nothing() -> None:
    story = Story()
    story.freeze()
    begin = story.now - 0.5
    for ratio in (1.9, 0.5):
        window = a_window("victim", ratio, begin, story.now + 0.5)
        assert not story.machine.window(window, story.now + 0.5)


@pytest.mark.parametrize(
    "neighbour",
    [
        a_tenant("n", protected=True),
        a_tenant("n", gpus=("gpu-1",)),
        a_tenant("n", leaving=True),
        a_tenant("n", gang="g", gang_here=False),
        a_tenant("n", freeze_seconds=1.0),
    ],
    ids=["protected", "elsewhere", "leaving", "part of a gang", "probed often"],
)
def test_who_may_not_be_paused(neighbour: Tenant) -> None:
    story = Story(VICTIM, neighbour)
    assert not any(some(story.window(2.0), Freeze) for _ in range(6))
    assert story.machine.marks[VICTIM.key].phase is SlicePhase.VIOLATING


def test_a_tenant_on_probation_may_be_paused_though_it_has_an_objective() -> None:
    novel = a_tenant("novel", protected=True, probation=True)
    assert Story(VICTIM, novel).freeze().keys == (novel.key,)


@pytest.mark.parametrize(
    "victim", [a_tenant("victim"), a_tenant("victim", protected=True, probation=True)]
)
def test_nobody_is_paused_for_best_effort_or_probation(victim: Tenant) -> None:
    story = Story(victim, NOISE)
    assert not any(some(story.window(2.0), Freeze) for _ in range(6))


def test_a_tenant_alone_on_its_device_can_only_blame_itself() -> None:
    story = Story(VICTIM)
    story.window(2.0)
    assert reasons(story.window(2.0)) == [Reason.SELF_VIOLATING]
    assert story.window(2.0) == []


def test_a_gang_is_paused_whole() -> None:
    here, there = a_tenant("a", gang="g"), a_tenant("b", gang="g", gpus=("gpu-1",))
    story = Story(VICTIM, here, there)
    assert story.freeze().keys == (here.key, there.key)


def test_a_gang_with_a_protected_member_is_not_paused() -> None:
    here = a_tenant("a", gang="g")
    there = a_tenant("b", gang="g", gpus=("gpu-1",), protected=True)
    story = Story(VICTIM, here, there)
    assert not any(some(story.window(2.0), Freeze) for _ in range(4))


def test_a_pause_ends_before_the_probes_of_anybody_in_it_fail() -> None:
    story = Story(VICTIM, NOISE, a_tenant("probed", freeze_seconds=4.0))
    assert story.freeze().limit_seconds == 4.0
    assert story.wait(3.9) == []
    assert one(story.wait(0.2), Ended).result is Result.UNDECIDED


def test_long_windows_leave_room_for_one_verdict() -> None:
    story = Story()
    story.window(2.0, seconds=5.0, step_micros=200_000)
    asked = one(story.window(2.0, seconds=5.0, step_micros=200_000), Freeze)
    story.machine.answered(asked.pause, "", story.now)
    assert one(story.window(2.0, seconds=5.0), Ended).result is Result.NOT_CURED


def test_steps_longer_than_any_pause_pause_nobody() -> None:
    story = Story()
    story.window(2.0, step_micros=6_000_000)
    assert not some(story.window(2.0, step_micros=6_000_000), Freeze)


def test_sixty_seconds_lie_between_two_pauses_of_a_device() -> None:
    story = Story()
    story.freeze()
    story.wait(10)
    ended, again = story.now, []
    while not again:
        again = some(story.window(2.0), Freeze)
    assert 60 <= story.now - ended < 62


def test_other_devices_do_not_cool_down() -> None:
    other = a_tenant("other", protected=True, gpus=("gpu-1",))
    noise = a_tenant("noise-1", gpus=("gpu-1",))
    story = Story(VICTIM, NOISE, other, noise)
    story.freeze()
    story.window(2.0, name="other")
    assert one(story.window(2.0, name="other"), Freeze).keys == (noise.key,)


def test_pauses_an_hour_are_bounded() -> None:
    story = Story(limits=Limits(pauses_per_hour=5))
    begun, count = story.now, 0
    while story.now < begun + 3500:
        for action in some(story.window(2.0), Freeze):
            count += 1
            story.machine.answered(action.pause, "", story.now)
            story.wait(10)
    assert count == 5


def test_a_freezer_that_fails_is_told_and_asked_less_and_less() -> None:
    story = Story()
    story.window(2.0)
    asked = one(story.window(2.0), Freeze)
    actions = story.machine.answered(asked.pause, "it did not stand still", story.now)
    assert one(actions, Thaw).keys == (NOISE.key,)
    assert one(actions, Ended).result is Result.FAILED
    assert reasons(actions) == [Reason.PAUSE_FAILED]
    moments = [story.now]
    while len(moments) < 4:
        for action in some(story.window(2.0), Freeze):
            story.machine.answered(action.pause, "again", story.now)
            moments.append(story.now)
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    assert gaps == pytest.approx([60, 120, 240], abs=2)


def test_a_freezer_that_says_nothing_has_failed() -> None:
    story = Story()
    story.window(2.0)
    story.window(2.0)
    assert story.wait(1.9) == []
    actions = story.wait(0.2)
    assert one(actions, Ended).result is Result.FAILED
    assert one(actions, Thaw).keys == (NOISE.key,)


def test_a_late_answer_changes_nothing() -> None:
    story = Story()
    story.window(2.0)
    asked = one(story.window(2.0), Freeze)
    story.wait(3)
    assert story.machine.answered(asked.pause, "", story.now) == []
    assert story.machine.frozen == frozenset()


def test_a_lost_freezer_ends_the_pause() -> None:
    story = Story()
    story.freeze()
    actions = story.machine.lost("gone", story.now)
    assert one(actions, Ended).result is Result.FAILED
    assert story.machine.frozen == frozenset()


@pytest.mark.parametrize(
    "left",
    [
        (VICTIM,),
        (NOISE,),
        (VICTIM, a_tenant("noise", leaving=True)),
    ],
    ids=["neighbour restarted", "victim restarted", "neighbour is being deleted"],
)
def test_a_container_that_goes_or_starts_anew_ends_the_pause(left: tuple[Tenant, ...]) -> None:
    story = Story()
    story.freeze()
    actions = story.see(*left)
    assert one(actions, Thaw).keys == (NOISE.key,)
    assert one(actions, Ended).result is Result.UNDECIDED
    assert story.machine.frozen == frozenset()


def test_a_container_that_starts_anew_begins_with_a_clean_sheet() -> None:
    story = Story()
    story.window(2.0)
    story.see(NOISE)
    story.see(VICTIM, NOISE)
    assert story.window(2.0) == []
    assert story.machine.tallies[VICTIM.key].violations == 1


def test_the_least_important_neighbour_is_the_one_to_go() -> None:
    small = a_tenant("small", priority=1, percent=20)
    large = a_tenant("large", priority=1, percent=60)
    vital = a_tenant("vital", priority=5, percent=80)
    story = Story(VICTIM, small, large, vital)
    story.freeze()
    told = some(story.window(0.5), Tell)
    assert [one.key for one in told if one.reason is Reason.INTERFERING] == [large.key]


def test_blame_ends_when_nobody_acts_on_it() -> None:
    story = Story()
    story.freeze()
    story.window(0.5)
    story.wait(10)
    for _ in range(3):
        story.window(0.5)
    assert story.machine.marks.keys() == {NOISE.key}
    story.wait(300)
    assert story.machine.marks == {}


def test_at_risk_is_an_event_and_nothing_else() -> None:
    story = Story()
    story.window(0.95)
    assert reasons(story.window(0.95)) == [Reason.SLO_AT_RISK]
    assert story.window(0.95) == []
    assert story.machine.marks == {}
    for _ in range(3):
        story.window(0.5)
    story.window(0.95)
    assert reasons(story.window(0.95)) == [Reason.SLO_AT_RISK]


def test_a_mark_changes_when_something_changed_and_not_with_every_window() -> None:
    story = Story(VICTIM, a_tenant("n", protected=True))
    for _ in range(2):
        story.window(2.0)
    before = story.machine.marks
    for ratio in (2.1, 2.2, 2.3):
        story.window(ratio)
    assert story.machine.marks == before


def test_two_tenants_in_trouble_are_helped_by_one_pause() -> None:
    second = a_tenant("second", protected=True)
    story = Story(VICTIM, second, NOISE)
    story.freeze()
    story.window(2.0, name="second")
    assert not some(story.window(2.0, name="second"), Freeze)


def test_nothing_is_remembered_of_devices_that_nobody_uses() -> None:
    story = Story()
    story.freeze()
    story.see()
    story.wait(3601)
    assert GPU not in story.machine._gpus
    assert key_of("victim") not in story.machine.tallies
