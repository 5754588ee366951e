# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A queue of priorities: who has to go, and what that loses."""

from __future__ import annotations

import pytest

from ullage_simulate.events import TraceSettings, run
from ullage_simulate.outcome import JobOutcome
from ullage_simulate.policies import POLICIES
from ullage_simulate.trace import Fleet, TraceJob, in_order
from ullage_simulate.work import Costs

COSTS = Costs(every_s=100.0, saves_on_stop=False)


def _job(name: str, at: float, *, priority: int = 0, gang: int = 1, saves: bool = True) -> TraceJob:
    return TraceJob(
        name=name,
        gang=gang,
        steps=1000,
        arrival_s=at,
        speeds={"t": 1.0},
        priority=priority,
        checkpointable=saves,
    )


def _run(rule: str, *jobs: TraceJob, devices: int = 2) -> dict[str, JobOutcome]:
    fleet = Fleet(devices={"t": devices})
    policy = POLICIES[f"priority-{rule}"]
    found = run(in_order("test", jobs), fleet, policy, TraceSettings(costs=COSTS))
    return {job.name: job for job in found.jobs}


@pytest.mark.parametrize(
    ("rule", "victim", "lost_s"), [("recency", "new", 90.0), ("checkpoint-age", "old", 5.0)]
)
def test_the_rule_says_who_goes(rule: str, victim: str, lost_s: float) -> None:
    # At 205 s the old one has saved 5 s ago, the new one 90 s ago.
    found = _run(rule, _job("old", 0.0), _job("new", 15.0), _job("urgent", 205.0, priority=1))
    assert found["urgent"].jct_s == pytest.approx(1000.0)
    assert [name for name, job in found.items() if job.stops] == [victim]
    assert found[victim].lost_device_s == pytest.approx(lost_s)


def test_equals_and_those_who_cannot_save_never_go() -> None:
    found = _run(
        "checkpoint-age",
        _job("equal", 0.0, priority=1),
        _job("stubborn", 0.0, saves=False),
        _job("urgent", 205.0, priority=1),
    )
    assert not any(job.stops for job in found.values())
    assert found["urgent"].start_s == pytest.approx(1000.0)


def test_no_more_go_than_are_needed() -> None:
    found = _run(
        "checkpoint-age",
        _job("one", 0.0),
        _job("two", 5.0, gang=2),
        _job("urgent", 207.0, priority=1, gang=2),
        devices=3,
    )
    assert {name for name, job in found.items() if job.stops} == {"two"}
