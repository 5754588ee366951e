# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Growth waits until room has lasted, is worth its restart, and is never at anyone's cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import a_job
from fakes.toy_elastic import cluster, events, size_of, sizes
from fakes.toy_rounds import Turns
from ullage.api.reasons import Reason
from ullage.cluster.records.spec_fields import Elasticity
from ullage.cluster.records.status import Progress
from ullage.scheduling.model.gang_speed import is_worth_it, saved_s, speed, wanted_members
from ullage.scheduling.times import GANG_HOLD_S, GANG_ROOM_LASTS_S


def small(devices: int = 1, most: int = 2) -> Turns:
    """A gang of one that runs beside another job; both nodes are full."""
    turns = cluster(devices, nodes=2)
    turns.add(*(a_job(f"other-{at}") for at in range(2 * devices - 1)))
    turns.run(5)
    turns.add(a_job("train").elastic(1, most))
    turns.run(10)
    assert sizes(turns) == (1, 1)
    turns.events.clear()
    return turns


def free(turns: Turns, name: str = "other-0") -> None:
    """A job is deleted; its device becomes free."""
    turns.toy.delete_workload(f"uid-default-{name}")


def test_it_grows_once_room_has_lasted_and_says_why() -> None:
    turns = small()
    turns.run(GANG_HOLD_S)
    free(turns)
    turns.run(GANG_ROOM_LASTS_S - 5)
    assert sizes(turns) == (1, 1)
    assert size_of(turns).room_since
    turns.run(30)
    assert sizes(turns) == (2, 2)
    size = size_of(turns)
    assert size.reason is Reason.GROWN
    assert not size.room_since
    assert not size.resumes
    assert size.message.startswith("there has been room for 1 more for 3")
    assert size.message.endswith("goes on with 2 of 2 members from its checkpoint")
    assert events(turns) == ["Grown"]  # it says that the job goes on
    assert turns.job("train").status.restarts == 0


def test_not_again_within_five_minutes_of_the_last_change() -> None:
    turns = small()
    free(turns)
    turns.run(GANG_HOLD_S - 60)
    assert sizes(turns) == (1, 1)
    assert not size_of(turns).room_since
    turns.run(60 + GANG_ROOM_LASTS_S + 20)
    assert sizes(turns) == (2, 2)


def test_room_that_goes_again_is_forgotten() -> None:
    turns = small()
    turns.run(GANG_HOLD_S)
    free(turns)
    turns.run(10)
    assert size_of(turns).room_since
    turns.add(a_job("newcomer"))
    turns.run(60)
    assert not size_of(turns).room_since
    assert sizes(turns) == (1, 1)
    assert turns.job("newcomer").status.phase == "Running"
    assert turns.counts["evicted newcomer"] == 0


def test_a_quiet_cluster_is_looked_at_again_when_the_size_may_change() -> None:
    turns = small()
    free(turns)
    turns.run(20)
    turns.cycle()
    assert turns.wakes_at == size_of(turns).since + GANG_HOLD_S


def test_what_someone_waits_for_is_not_grown_into() -> None:
    turns = small(devices=2, most=4)
    turns.add(a_job("big").gang(2))
    turns.run(GANG_HOLD_S)
    free(turns)  # one device, of no use to big alone, which waits for two
    turns.run(3 * GANG_ROOM_LASTS_S)
    assert sizes(turns) == (1, 1)
    free(turns, "other-1")
    turns.run(20)
    assert {one.stage.value for one in turns.toy.members("uid-default-big")} == {"Running"}


def test_nearly_done_work_is_not_restarted_for_it() -> None:
    turns = small()
    turns.run(GANG_HOLD_S)
    free(turns)
    job = turns.job("train")
    near = Progress(steps=99, total=100, percent=99, eta=turns.toy.now + 40)
    turns.toy.workloads[job.ref.uid] = replace(job, status=replace(job.status, progress=near))
    turns.run(3 * GANG_ROOM_LASTS_S)
    assert sizes(turns) == (1, 1)
    assert not size_of(turns).room_since


def test_it_never_grows_above_the_most_and_by_all_that_is_free_at_once() -> None:
    turns = small(devices=3, most=4)
    turns.run(GANG_HOLD_S)
    for at in range(5):
        free(turns, f"other-{at}")
    turns.run(GANG_ROOM_LASTS_S + 20)
    assert sizes(turns) == (4, 4)
    assert events(turns).count("Grown") == 1


def test_two_gangs_do_not_grow_into_the_same_room() -> None:
    turns = cluster(devices=2, nodes=2)
    turns.add(*(a_job(f"other-{at}") for at in range(3)))
    turns.run(5)
    turns.add(a_job("a").elastic(1, 3))
    turns.run(10)
    free(turns)
    turns.add(a_job("b").elastic(1, 3))
    turns.run(10)
    assert sizes(turns, "a") == sizes(turns, "b") == (1, 1)
    turns.run(GANG_HOLD_S)
    free(turns, "other-1")
    turns.run(GANG_ROOM_LASTS_S + 60)
    now = sorted(sizes(turns, name)[1] for name in "ab")
    assert now == [1, 2]
    grown = events(turns, "a").count("Grown") + events(turns, "b").count("Grown")
    assert grown == 1
    assert "Shrunk" not in events(turns, "a") + events(turns, "b")


def test_the_number_follows_room_bounds_and_limit() -> None:
    bounds = Elasticity(min_replicas=2, max_replicas=8)
    assert [wanted_members(bounds, room) for room in (0, 1, 2, 5, 8, 9)] == [2, 2, 2, 5, 8, 8]
    assert wanted_members(bounds, 8, limit=4) == 4
    assert wanted_members(bounds, 3, limit=4) == 3
    assert wanted_members(bounds, 8, limit=1) == 2  # a limit never makes it impossible
    assert wanted_members(bounds, 8, limit=99) == 8


def test_more_members_save_less_and_less() -> None:
    assert speed(1) == pytest.approx(1)
    assert speed(8) == pytest.approx(8 * 0.97**3)
    gains = [saved_s(1000, members, members + 1) for members in range(1, 30)]
    assert gains == sorted(gains, reverse=True)
    job = a_job("train").elastic(1, 2).with_(replicas=1)
    running = job.status(start_time=1_000_000.0).build()
    # without a known end, as much is left as was done; a restart costs 30 s
    assert not is_worth_it(running, 2, 1_000_050.0)
    assert is_worth_it(running, 2, 1_000_070.0)
