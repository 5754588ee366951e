# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A group in a status says when it ends, from measured durations, and is quiet in between."""

from __future__ import annotations

from dataclasses import replace

from fakes.tuning_world import TuningWorld, a_search


def begin(world: TuningWorld) -> None:
    """Every TrainingJob that has no device yet gets one now."""
    for name, run in world.runs.items():
        if not run.status.start_time:
            status = replace(run.status, phase="Running", start_time=world.now)
            world.runs[name] = replace(run, status=status)


def end(world: TuningWorld, name: str, after_s: float) -> None:
    world.now = world.runs[name].status.start_time + after_s - 1.0
    world.end(name)


def test_figures_come_with_the_first_trial_that_ends_and_change_with_the_next() -> None:
    world = TuningWorld(a_search(trials=4, parallelism=2, max_epochs=1))
    world.carry_out()
    begin(world)
    world.carry_out()
    (group,) = world.job.status.groups
    assert (group.start_time, group.makespan_eta, group.utilisation) == (1_000.0, 0, "")
    end(world, "digits-t0000-e1", 100.0)
    world.carry_out()
    (group,) = world.job.status.groups
    assert world.job.status.results[0].seconds == 100
    assert (group.makespan_eta, group.lower_bound, group.utilisation) == (200, 200, "1.00")


def test_while_nothing_ends_the_status_stays_as_it_is() -> None:
    world = TuningWorld(a_search(trials=4, parallelism=2, max_epochs=1))
    world.carry_out()
    begin(world)
    end(world, "digits-t0000-e1", 100.0)
    world.carry_out()
    begin(world)
    world.carry_out()
    before = world.job.status
    for _ in range(50):
        world.now += 7.3
        world.carry_out()
        assert world.job.status == before


def test_a_group_that_has_ended_keeps_what_was_measured() -> None:
    world = TuningWorld(a_search(trials=3, parallelism=3, max_epochs=3, min_epochs=1))
    world.carry_out()
    begin(world)
    for number, after in enumerate((50.0, 60.0, 100.0)):
        end(world, f"digits-t000{number}-e1", after)
    world.now += 500.0  # the operator was away
    world.carry_out()
    world.runs.clear()
    world.finish()
    first = world.job.status.groups[0]
    assert (first.name, first.ended, first.trials) == ("rung-0", 3, 3)
    assert (first.makespan_eta, first.lower_bound, first.utilisation) == (100, 100, "0.70")


def test_a_trial_that_never_ran_has_no_duration() -> None:
    world = TuningWorld(a_search(trials=1, max_epochs=1))
    world.carry_out()
    (name,) = world.runs
    run = world.runs[name]
    failed = replace(run.status, phase="Failed", completion_time=world.now)
    world.runs[name] = replace(run, status=failed)
    world.carry_out()
    assert world.job.status.results[0].seconds == 0
    assert world.job.status.groups[0].makespan_eta == 0
