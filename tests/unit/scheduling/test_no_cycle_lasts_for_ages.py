# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Where no two questions are alike, a cycle answers some and postpones the rest, in turns."""

from __future__ import annotations

import pytest

from builders import NOW, Part, WorkloadBuilder, a_gpu_node, a_job, a_policy
from fakes.deciding import decided
from ullage.scheduling.placement import candidates
from ullage.scheduling.prediction import effort
from ullage.scheduling.prediction.effort import Effort, in_turns

JOBS = 12


def _jobs(share: int = 30) -> list[WorkloadBuilder]:
    """Each with an objective and a class of its own, the eldest first."""
    return [
        a_job(f"job-{at:02}")
        .fractional(share, 60)
        .slowdown(1.5 + at / 50)
        .with_(workload_class=f"class-{at}")
        .aged(1000 - at)
        for at in range(JOBS)
    ]


def _picture(jobs: list[WorkloadBuilder], devices: int) -> list[Part]:
    pods = [pod for job in jobs for pod in job.pods()]
    return [a_policy(learned=True), a_gpu_node(devices=devices), *jobs, *pods]


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cycle that may do next to nothing."""
    monkeypatch.setattr(effort, "MUCH", 10)
    monkeypatch.setattr(effort, "MOST", 40)
    monkeypatch.setattr(candidates, "FEW", 2)


@pytest.mark.usefixtures("little")
def test_what_is_left_undone_is_postponed_and_nothing_is_said_to_it() -> None:
    jobs = _jobs()
    found = decided(*_picture(jobs, devices=1))
    new = [found.status(one) for one in jobs]
    silent = [one for one, said in zip(jobs, new, strict=True) if said == one.build().status]
    assert 0 < len(silent) < JOBS
    assert jobs[0] not in silent, "the first in line is served whatever it costs"
    assert found.plan.wake_at == NOW + 0.05


@pytest.mark.usefixtures("little")
def test_everyone_gets_a_turn_some_day() -> None:
    jobs = _jobs()
    heard: set[str] = set()
    for cycle in range(30):
        at = NOW + 1.7 * cycle
        found = decided(*_picture(jobs, devices=1), at=at)
        heard |= {one.build().ref.name for one in jobs if found.status(one) != one.build().status}
    assert len(heard) == JOBS


@pytest.mark.usefixtures("little")
def test_hurried_decisions_still_place_on_empty_devices_only_what_fits() -> None:
    jobs = _jobs()
    found = decided(*_picture(jobs, devices=4))
    taken = [slice_.gpu for _, slice_ in found.slices()]
    assert taken
    for gpu in set(taken):
        shares = [one.percent for _, one in found.slices() if one.gpu == gpu]
        assert sum(shares) <= 100


@pytest.mark.usefixtures("little")
def test_the_same_hurry_gives_the_same_plan() -> None:
    parts = _picture(_jobs(), devices=3)
    first, again = decided(*parts), decided(*parts)
    assert first.plan == again.plan
    assert first.actions == again.actions


def test_with_time_enough_no_one_is_postponed() -> None:
    jobs = _jobs()
    found = decided(*_picture(jobs, devices=1))
    assert all(found.status(one) != one.build().status for one in jobs)
    assert found.plan.wake_at != NOW + 0.05


def test_effort_counts_work_and_says_when_it_is_much_and_when_spent() -> None:
    one = Effort(spent=effort.MUCH - 1)
    assert not one.is_much
    one.spent += 1
    assert one.is_much
    assert one.is_spent(effort.MUCH / effort.MOST)
    assert not one.is_spent()
    one.spent = effort.MOST
    assert one.is_spent()


def test_turns_keep_the_order_and_begin_everywhere() -> None:
    ones = list(range(7))
    firsts = set()
    for at in range(200):
        turned = list(in_turns(ones, NOW + at))
        begin = turned.index(0)
        assert turned[begin:] + turned[:begin] == ones
        firsts.add(turned[0])
    assert firsts == set(ones)
    assert not in_turns([], NOW)
