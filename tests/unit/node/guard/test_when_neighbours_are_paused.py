# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The rules of a pause, one window at a time: what begins one, and what it proves."""

from __future__ import annotations

import math

import pytest

from fakes.guard_rig import GPU, VICTIM, a_tenant, a_window, key_of
from fakes.guard_story import NOISE, Story, one, reasons, some
from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage_node.model.guard import Ended, Freeze, GuardTenant, PauseObservation, PauseResult, Thaw


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
    learned = one(actions, PauseObservation)
    assert (learned.beside.ratio, learned.without.ratio) == (2.0, 0.6)
    assert learned.neighbours == (NOISE,)
    assert learned.remaining == ()
    assert reasons(actions) == [Reason.INTERFERING]
    mark = story.machine.marks[NOISE.key]
    assert (mark.phase, mark.reason) == (SlicePhase.FROZEN, Reason.INTERFERING)
    ended = story.wait(10)
    assert one(ended, Thaw).keys == (NOISE.key,)
    assert one(ended, Ended).result is PauseResult.CURED
    mark = story.machine.marks[NOISE.key]
    assert (mark.phase, mark.reason) == (None, Reason.INTERFERING)


def test_the_second_window_may_still_cure() -> None:
    story = Story()
    story.freeze()
    assert story.window(1.5) == []
    assert some(story.window(0.9), PauseObservation)


def test_a_tenant_that_is_not_cured_is_its_own_load() -> None:
    story = Story()
    story.freeze()
    story.window(1.8)
    actions = story.window(1.8)
    assert one(actions, Thaw).keys == (NOISE.key,)
    assert one(actions, Ended).result is PauseResult.NOT_CURED
    assert not some(actions, PauseObservation)
    assert reasons(actions) == [Reason.BEST_EFFORT_RESUMED, Reason.SELF_VIOLATING]
    assert story.machine.marks[VICTIM.key].reason is Reason.SELF_VIOLATING
    assert NOISE.key not in story.machine.marks


def test_no_one_is_paused_again_for_a_load_of_its_own() -> None:
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
    "left",
    [
        (VICTIM,),
        (NOISE,),
        (VICTIM, a_tenant("noise", leaving=True)),
    ],
    ids=["neighbour restarted", "victim restarted", "neighbour is being deleted"],
)
def test_a_container_that_goes_or_starts_again_ends_the_pause(
    left: tuple[GuardTenant, ...],
) -> None:
    story = Story()
    story.freeze()
    actions = story.see(*left)
    assert one(actions, Thaw).keys == (NOISE.key,)
    assert one(actions, Ended).result is PauseResult.UNDECIDED
    assert story.machine.frozen == frozenset()


def test_a_container_that_starts_again_begins_with_a_clean_sheet() -> None:
    story = Story()
    story.window(2.0)
    story.see(NOISE)
    story.see(VICTIM, NOISE)
    assert story.window(2.0) == []
    assert story.machine.tallies[VICTIM.key].violations == 1


def test_blame_ends_when_no_one_acts_on_it() -> None:
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


def test_nothing_is_remembered_of_devices_that_no_one_uses() -> None:
    story = Story()
    story.freeze()
    story.see()
    story.wait(3601)
    assert GPU not in story.machine._gpus
    assert key_of("victim") not in story.machine.tallies
