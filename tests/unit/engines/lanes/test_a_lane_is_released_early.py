# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from ullage.engines.lanes.early_release import EarlyRelease
from ullage.engines.lanes.records import Granted, JobDemand, Waits
from ullage.engines.lanes.settings import EXACT, LaneSettings
from ullage.engines.lanes.table import LaneTable


def a_step(watch: EarlyRelease, *used: int) -> list[bool]:
    found = [watch.sample(one) for one in used]
    watch.end_step()
    return found


def test_a_step_past_its_peak_is_seen_once_from_the_second_step_on() -> None:
    watch = EarlyRelease(window=2)
    assert not any(a_step(watch, 10, 100, 95, 91, 0)), "nothing is expected yet"
    assert a_step(watch, 10, 100, 95, 91, 0) == [False, False, True, False, False]


def test_a_fall_far_below_the_peak_comes_too_late() -> None:
    watch = EarlyRelease(window=2)
    a_step(watch, 100)
    assert not any(a_step(watch, 10, 100, 50, 20))


def test_the_expected_peak_is_the_mean_of_those_seen() -> None:
    watch = EarlyRelease()
    for peak in (100, 200, 300):
        a_step(watch, peak)
    assert watch.expected_mib == 200


DEFAULT = LaneSettings(capacity_mib=1000, margins=EXACT)
EARLY = replace(DEFAULT, early_release=True)


def a_table(settings: LaneSettings) -> tuple[LaneTable, Granted]:
    table = LaneTable(settings=settings)
    for name in "ab":
        table.arrive(JobDemand(name=name, persistent_mib=1, ephemeral_mib=900), 0.0)
    turn, _ = table.acquire("a", 0.0)
    assert isinstance(turn, Granted)
    assert isinstance(table.acquire("b", 0.0)[0], Waits)
    return table, turn


def test_a_lane_is_granted_while_the_last_step_drains_where_the_setting_permits_it() -> None:
    table, turn = a_table(EARLY)
    (granted,) = table.release_early(turn.lease.lease, 1.0)
    assert isinstance(granted, Granted)
    assert granted.job == "b"
    assert not table.memory.lanes[1].idle
    table.leave("b", 2.0)
    assert not table.memory.lanes[1].idle, "the first step still drains"
    table.release(turn.lease.lease, 3.0)
    assert table.memory.lanes[1].idle


def test_early_release_is_off_unless_it_is_set() -> None:
    table, turn = a_table(DEFAULT)
    with pytest.raises(ValueError, match="only where the setting permits"):
        table.release_early(turn.lease.lease, 1.0)
    assert table.memory.lanes[1].holder == "a"
