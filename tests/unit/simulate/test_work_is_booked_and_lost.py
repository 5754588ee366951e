# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A running job books what it did, pays for its starts, and loses what was not saved."""

from __future__ import annotations

import pytest

from ullage_simulate.trace import Fleet, JobTraceError, TraceJob
from ullage_simulate.work import Costs, JobWork, begun

FLEET = Fleet(devices={"t": 4, "u": 4})


def a_work(steps: int = 1000, gang: int = 2) -> JobWork:
    job = TraceJob(name="a", gang=gang, steps=steps, arrival_s=0.0, speeds={"t": 2.0, "u": 1.0})
    return begun(job, 0, FLEET)


def test_steps_are_done_once_the_start_is_over() -> None:
    work = a_work()
    work.begin("t", 2.0, 0.0, 30.0)
    assert work.end_s == 530.0
    work.book(20.0, 1)
    assert (work.left, work.device_s) == (1000, 40.0)
    work.book(130.0, 1)
    assert (work.left, work.device_s) == (800, 260.0)
    assert work.end_s == 530.0


def test_jobs_on_the_same_devices_share_the_seconds() -> None:
    work = a_work()
    work.begin("t", 2.0, 0.0, 0.0)
    work.partners = 2
    work.book(100.0, 1)
    assert work.device_s == 100.0


def test_who_waits_books_nothing() -> None:
    work = a_work()
    work.book(100.0, 1)
    assert (work.left, work.device_s, work.isolated_s) == (1000, 0.0, 0.0)


def test_the_first_start_counts_and_every_start_is_a_turn() -> None:
    work = a_work()
    work.begin("t", 2.0, 0.0, 0.0)
    work.tear(10.0, 1, 0.0)
    work.begin("u", 1.0, 50.0, 0.0)
    assert work.start_s == 0.0
    assert work.turn == 3
    assert work.outcome(60.0).start_s == 0.0


@pytest.mark.parametrize(("every_s", "unsaved_s"), [(0.0, 250.0), (100.0, 50.0), (250.0, 0.0)])
def test_what_was_not_saved_is_what_came_after_the_last_checkpoint(
    every_s: float, unsaved_s: float
) -> None:
    work = a_work()
    work.begin("t", 2.0, 0.0, 30.0)
    costs = Costs(every_s=every_s)
    assert work.unsaved_s(20.0, costs) == 0.0
    assert work.unsaved_s(280.0, costs) == unsaved_s


def test_lost_work_is_to_be_done_again_and_never_more_than_was_done() -> None:
    work = a_work()
    work.begin("t", 2.0, 0.0, 0.0)
    work.tear(100.0, 1, 30.0)
    assert (work.left, work.lost_device_s) == (860, 60.0)
    assert (work.kind, work.speed, work.partners) == ("", 0.0, 1)
    work.begin("t", 2.0, 200.0, 0.0)
    work.tear(210.0, 1, 10_000.0)
    assert work.left == 1000


def test_alone_the_same_work_takes_its_time_on_an_equal_part_of_the_cluster() -> None:
    work = a_work(gang=8)
    work.begin("t", 2.0, 0.0, 0.0)
    work.book(100.0, 1)
    one = work.isolated_s
    crowded = a_work(gang=8)
    crowded.begin("t", 2.0, 0.0, 0.0)
    crowded.book(100.0, 3)
    assert one > 0
    assert crowded.isolated_s == pytest.approx(3 * one)


def test_no_cost_is_below_nothing() -> None:
    for wrong in ({"restart_s": -1.0}, {"every_s": -1.0}):
        with pytest.raises(JobTraceError, match="0 s or more"):
            Costs(**wrong)
