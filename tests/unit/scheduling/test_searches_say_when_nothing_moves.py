# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A search says when nothing moves, why, and whether any device could ever hold a trial."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.tuning_world import TuningWorld, a_search
from ullage.api.reasons import ConditionType, Reason
from ullage.cluster.records.status import Condition, DecisionRecord, RefusalLine
from ullage.scheduling.tuning.search_status import STALLED_AFTER_S
from ullage.scheduling.tuning.step import TuningStep


def condition(world: TuningWorld, type_: ConditionType) -> Condition | None:
    return next((one for one in world.job.status.conditions if one.type == type_), None)


def reasons(step: TuningStep) -> list[Reason]:
    return [one.reason for one in step.events]


def wait(
    world: TuningWorld, name: str, reason: Reason, message: str = "", *, refused: int = 1
) -> None:
    """A TrainingJob waits, as the last decision says."""
    run = world.runs[name]
    lines = (RefusalLine(reason=reason, devices=refused, nearest="", message=""),)
    decision = DecisionRecord(
        time=world.now, epoch=1, inputs_hash="", chosen="", runner_up="", reason=reason,
        message=message, refusals=lines if refused else (),
    )  # fmt: skip
    status = replace(run.status, phase="Pending", decision=decision)
    world.runs[name] = replace(run, status=status)


def a_world() -> TuningWorld:
    world = TuningWorld(a_search(parallelism=2))
    world.carry_out()
    wait(world, "digits-t0000-e1", Reason.NO_CAPACITY)
    wait(world, "digits-t0001-e1", Reason.QUOTA_EXCEEDED)
    return world


def test_a_search_in_which_no_trial_runs_is_stalled_and_says_what_for() -> None:
    world = a_world()
    step = world.carry_out()
    assert step.again_at == 1_000.0 + STALLED_AFTER_S
    world.now = step.again_at - 1.0
    world.carry_out()
    assert condition(world, ConditionType.STALLED) is None
    world.now = step.again_at
    step = world.carry_out()
    stalled = condition(world, ConditionType.STALLED)
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", Reason.NO_TRIAL_RUNS)
    assert stalled.message == (
        "no trial has run for 10 minutes; waiting for: NoCapacity (digits-t0000-e1), "
        "QuotaExceeded (digits-t0001-e1)"
    )
    assert reasons(step) == [Reason.NO_TRIAL_RUNS]
    assert step.again_at == 0.0


def test_a_stalled_search_writes_nothing_more_and_ends_to_be_stalled_with_the_first_that_runs() -> (
    None
):
    world = a_world()
    world.now += STALLED_AFTER_S
    world.carry_out()
    before = world.job.status
    world.now += 5_000.0
    step = world.carry_out()
    assert world.job.status == before
    assert not step.events
    run = world.runs["digits-t0000-e1"]
    running = replace(run.status, phase="Running", start_time=world.now)
    world.runs["digits-t0000-e1"] = replace(run, status=running)
    world.carry_out()
    assert condition(world, ConditionType.STALLED) is None
    world.now += 5_000.0
    step = world.carry_out()
    assert condition(world, ConditionType.STALLED) is None, "it runs"
    assert step.again_at == 0.0


def test_a_trial_that_ends_is_progress() -> None:
    world = a_world()
    world.now += STALLED_AFTER_S - 10.0
    world.end("digits-t0000-e1")
    world.carry_out()
    wait(world, "digits-t0002-e1", Reason.NO_CAPACITY)
    world.now += 20.0
    world.carry_out()
    assert condition(world, ConditionType.STALLED) is None


@pytest.mark.parametrize(
    ("reason", "refused", "holds"),
    [
        (Reason.NO_NODE_MATCHES, 0, True),
        (Reason.MEMORY_WOULD_OVERFLOW, 0, True),
        (Reason.MEMORY_WOULD_OVERFLOW, 3, False),  # the devices are only full
        (Reason.QUOTA_EXCEEDED, 0, False),
    ],
)
def test_a_pool_without_a_device_for_a_trial_is_told_once(
    reason: Reason, refused: int, holds: bool
) -> None:
    world = TuningWorld(a_search(parallelism=1))
    world.carry_out()
    wait(world, "digits-t0000-e1", reason, "80 GiB " * 900, refused=refused)
    step = world.carry_out()
    found = condition(world, ConditionType.POOL_TOO_SMALL)
    assert (found is not None) is holds
    assert reasons(step) == [Reason.NO_DEVICE_FITS] * holds
    if found is not None:
        assert found.message.startswith(f"digits-t0000-e1: {reason.value}: 80 GiB")
        assert len(found.message) <= 512
        assert not world.carry_out().events
    wait(world, "digits-t0000-e1", Reason.NO_CAPACITY)
    world.carry_out()
    assert condition(world, ConditionType.POOL_TOO_SMALL) is None


def test_a_search_is_planned_once_a_trial_was_measured() -> None:
    world = TuningWorld(a_search(parallelism=2))
    world.carry_out()
    planned = condition(world, ConditionType.PLANNED)
    assert planned is not None
    assert (planned.status, planned.reason) == ("False", Reason.NOTHING_MEASURED)
    world.end("digits-t0000-e1")
    step = world.carry_out()
    planned = condition(world, ConditionType.PLANNED)
    assert planned is not None
    assert (planned.status, planned.reason) == ("True", Reason.MAKESPAN_ESTIMATED)
    assert reasons(step) == [Reason.MAKESPAN_ESTIMATED]
    world.end("digits-t0001-e1")
    assert not reasons(world.carry_out())


def test_a_search_that_has_ended_says_only_how() -> None:
    world = TuningWorld(a_search())
    world.finish()
    assert [one.type for one in world.job.status.conditions] == [ConditionType.COMPLETE]
