# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""How long a pause lasts, how far apart pauses lie, and what a freezer that fails does to them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from fakes.guard_rig import VICTIM, a_tenant
from fakes.guard_story import NOISE, Story, one, reasons, some
from ullage.api.reasons import Reason
from ullage_node.guard.machine import GuardLimits
from ullage_node.model.guard import Ended, Freeze, PauseResult, Thaw


def test_a_pause_ends_before_the_probes_of_anyone_in_it_fail() -> None:
    story = Story(VICTIM, NOISE, a_tenant("probed", freeze_seconds=4.0))
    assert story.freeze().limit_seconds == 4.0
    assert story.wait(3.9) == []
    assert one(story.wait(0.2), Ended).result is PauseResult.UNDECIDED


def test_long_windows_leave_room_for_one_verdict() -> None:
    story = Story()
    story.window(2.0, seconds=5.0, step_micros=200_000)
    asked = one(story.window(2.0, seconds=5.0, step_micros=200_000), Freeze)
    story.machine.answered(asked.pause, "", story.now)
    assert one(story.window(2.0, seconds=5.0), Ended).result is PauseResult.NOT_CURED


def test_steps_longer_than_any_pause_pause_no_one() -> None:
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
    story = Story(limits=GuardLimits(pauses_per_hour=5))
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
    assert one(actions, Ended).result is PauseResult.FAILED
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
    assert one(actions, Ended).result is PauseResult.FAILED
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
    assert one(actions, Ended).result is PauseResult.FAILED
    assert story.machine.frozen == frozenset()
