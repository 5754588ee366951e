# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The task inside the agent: from windows to a stopped neighbour, events, rows and counters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.guard_rig import VICTIM, GuardRig, a_tenant, a_window, key_of
from ullage.api.observations import ObservedPartner
from ullage.api.reasons import Reason
from ullage.api.slices import ObservedSlice, SliceKey, SlicePhase
from ullage_node.guard.learning import observations
from ullage_node.model.guard import PauseObservation, SliceMark, WindowTally
from ullage_node.status import guarded_slices
from ullage_node.times import GUARD_REST_S, GUARD_STILL_S, WINDOWS_LOOK_S

NOISE = key_of("noise")


@pytest.fixture
def rig() -> GuardRig:
    return GuardRig()


async def test_interference_is_stopped_soon_after_the_window_that_proves_it(rig: GuardRig) -> None:
    rig.windows.ratios["victim"] = 2.0
    begun = rig.clock.monotonic()
    while NOISE not in rig.freezer.frozen:
        await rig.pass_time(0.25)
        assert rig.clock.monotonic() - begun < 4.0
    assert rig.guard.marks[NOISE].phase is SlicePhase.FROZEN
    assert rig.reasons == ["BestEffortPaused"]
    assert rig.events[0].subject.name == "noise"
    assert rig.changes > 0


async def test_it_rests_while_no_one_steps(rig: GuardRig) -> None:
    await rig.pass_time(2.0)
    assert rig.guard.pause_s == GUARD_REST_S
    rig.windows.ratios["victim"] = 0.5
    await rig.pass_time(2.0)
    assert rig.guard.pause_s == WINDOWS_LOOK_S
    rig.windows.ratios.clear()
    await rig.pass_time(GUARD_STILL_S + 1.0)
    assert rig.guard.pause_s == GUARD_REST_S


async def test_it_does_not_rest_while_a_neighbour_is_frozen(rig: GuardRig) -> None:
    rig.windows.ratios["victim"] = 2.0
    while NOISE not in rig.freezer.frozen:
        await rig.pass_time(0.25)
    rig.windows.ratios.clear()
    while NOISE in rig.freezer.frozen:
        assert rig.guard.pause_s == WINDOWS_LOOK_S
        await rig.pass_time(0.25)


async def test_a_cure_is_learned_told_and_counted(rig: GuardRig) -> None:
    rig.windows.ratios["victim"] = 2.0
    await rig.pass_time(2.5)
    rig.windows.ratios["victim"] = 0.6
    await rig.pass_time(12)
    beside, without = rig.learned
    assert (beside.violated, beside.frozen) == (True, False)
    assert beside.partners == (ObservedPartner(workload_class="class-noise", percent=40),)
    assert (without.violated, without.frozen, without.partners) == (False, True, ())
    assert beside.workload_class == without.workload_class == "class-victim"
    assert beside.accelerator == "emulated"
    assert 0 <= without.at_s - beside.at_s <= 3
    assert beside.id != without.id
    assert rig.reasons == ["BestEffortPaused", "Interfering", "BestEffortResumed"]
    assert rig.counted("cured") == 1
    assert rig.freezer.frozen == {}
    assert rig.registry.get_sample_value("ullage_guard_freeze_seconds_count") == 1


def test_a_neighbour_of_another_namespace_is_named_with_it() -> None:
    victim = a_tenant("victim")
    near = replace(a_tenant("near"), workload_class="bert", namespace=victim.namespace)
    far = replace(a_tenant("far"), workload_class="bert", namespace="other")
    beside, without = a_window("victim", 2.0, 0.0, 1.0), a_window("victim", 0.5, 2.0, 3.0)
    learned = PauseObservation(
        victim=victim, neighbours=(near, far), remaining=(far,), beside=beside, without=without
    )
    rows = observations(learned, "emulated", 100.0)
    named = [[partner.workload_class for partner in row.partners] for row in rows]
    assert named == [["bert", "other/bert"], ["other/bert"]]


def test_rows_of_a_pause_say_at_which_percentile_the_latency_is() -> None:
    window = replace(a_window("victim", 2.0, 0.0, 1.0), latency_micros=9_000, percentile="99.9")
    silent = replace(a_window("victim", 0.5, 2.0, 3.0), percentile="99.9")
    learned = PauseObservation(
        victim=a_tenant("victim"), neighbours=(), remaining=(), beside=window, without=silent
    )
    beside, without = observations(learned, "emulated", 1_000.0)
    assert (beside.latency_micros, beside.percentile) == (9_000, "99.9")
    assert (without.latency_micros, without.percentile) == (0, "")


async def test_a_load_of_its_own_frees_the_neighbours_at_once(rig: GuardRig) -> None:
    rig.windows.ratios["victim"] = 2.0
    await rig.pass_time(5)
    assert rig.freezer.frozen == {}
    assert rig.reasons == ["BestEffortPaused", "BestEffortResumed", "SelfViolating"]
    assert rig.learned == []
    assert rig.counted("not_cured") == 1


async def test_work_without_a_class_teaches_nothing(rig: GuardRig) -> None:
    rig.tenants[1] = replace(rig.tenants[1], workload_class="")
    rig.windows.ratios["victim"] = 2.0
    await rig.pass_time(2.5)
    rig.windows.ratios["victim"] = 0.6
    await rig.pass_time(3)
    assert rig.counted("cured") == 0
    assert "Interfering" in rig.reasons
    assert rig.learned == []


async def test_a_freezer_that_is_away_costs_the_brake_and_nothing_else(rig: GuardRig) -> None:
    rig.freezer.problem = "the guard cannot be reached"
    rig.windows.ratios["victim"] = 2.0
    await rig.pass_time(10)
    assert rig.reasons == ["PauseFailed"]
    assert rig.counted("failed") == 1
    assert rig.registry.get_sample_value("ullage_guard_reachable") == 0
    assert rig.guard.marks[VICTIM.key].phase is SlicePhase.VIOLATING
    assert rig.freezer.beats <= 3


async def test_a_freezer_that_goes_away_during_a_pause_ends_it(rig: GuardRig) -> None:
    rig.windows.ratios["victim"] = 2.0
    while not rig.freezer.frozen:
        await rig.pass_time(0.25)
    rig.freezer.problem = "gone"
    await rig.pass_time(1.5)
    assert rig.counted("failed") == 1
    assert rig.guard.machine.frozen == frozenset()


async def test_a_pod_that_is_deleted_while_frozen_runs_to_hear_of_it(rig: GuardRig) -> None:
    rig.windows.ratios["victim"] = 2.0
    while not rig.freezer.frozen:
        await rig.pass_time(0.25)
    rig.tenants[1] = replace(rig.tenants[1], leaving=True)
    await rig.pass_time(0.25)
    assert rig.freezer.frozen == {}


async def test_a_calm_node_writes_nothing_and_stops_no_one(rig: GuardRig) -> None:
    rig.windows.ratios["victim"] = 0.7
    await rig.pass_time(120)
    assert (rig.changes, rig.events, rig.freezer.log) == (0, [], [])
    assert rig.guard.tallies[VICTIM.key].windows > 80
    assert rig.registry.get_sample_value("ullage_guard_windows_total", {"verdict": "Met"}) > 80


async def test_clocks_of_the_wall_do_not_matter(rig: GuardRig) -> None:
    """Only the rows carry the wall's time; a jump of it changes no decision."""
    jumps = iter(range(0, 10**9, 86_400))
    rig.guard.around = replace(rig.guard.around, wall=lambda: float(next(jumps)))
    rig.windows.ratios["victim"] = 2.0
    await rig.pass_time(2.5)
    assert NOISE in rig.freezer.frozen


async def test_everyone_is_told_of_a_pause_of_several(rig: GuardRig) -> None:
    rig.tenants.append(a_tenant("more"))
    rig.windows.ratios["victim"] = 2.0
    await rig.pass_time(2.5)
    assert {event.subject.name for event in rig.events} == {"noise", "more"}


def a_slice(phase: SlicePhase, index: int = 0) -> ObservedSlice:
    return ObservedSlice(
        key=SliceKey(pod_uid=NOISE.pod_uid, container=NOISE.container, index=index),
        phase=phase,
        gpu="gpu-0",
        percent=40,
        memory_mib=1,
        epoch=1,
        reason="CPULimitBelowShare",
    )


MARK = SliceMark(phase=SlicePhase.FROZEN, reason=Reason.BEST_EFFORT_PAUSED, message="why")


def test_the_status_says_what_the_guard_did() -> None:
    tally = WindowTally(windows=9, violations=2, latency_micros=7)
    first, second = guarded_slices(
        [a_slice(SlicePhase.ATTACHED), a_slice(SlicePhase.ATTACHED, 1)],
        {NOISE: MARK},
        {NOISE: tally},
    )
    assert (first.phase, first.reason, first.message) == (
        SlicePhase.FROZEN,
        "BestEffortPaused",
        "why",
    )
    assert (first.windows, first.violations, first.latency_micros) == (9, 2, 7)
    assert second.windows == 0


@pytest.mark.parametrize("phase", [SlicePhase.FAILED, SlicePhase.PREPARED, SlicePhase.REFUSED])
def test_what_is_not_attached_keeps_its_own_phase(phase: SlicePhase) -> None:
    (part,) = guarded_slices([a_slice(phase)], {NOISE: MARK}, {})
    assert (part.phase, part.reason) == (phase, "CPULimitBelowShare")


async def test_a_container_whose_memory_moves_stands_still_and_runs_on(rig: GuardRig) -> None:
    assert await rig.guard.stand_still(NOISE, (11,), 0.5) == ""
    assert rig.freezer.log == [("stand still", (NOISE,))]
    rig.freezer.problem = "not frozen after 0.5 s"
    assert await rig.guard.stand_still(NOISE, (11,), 0.5) == rig.freezer.problem


async def test_one_that_stands_still_already_is_left_to_its_pause(rig: GuardRig) -> None:
    rig.windows.ratios["victim"] = 2.0
    while NOISE not in rig.freezer.frozen:
        await rig.pass_time(0.25)
    assert await rig.guard.stand_still(NOISE, (11,), 0.0) == ""
    assert NOISE in rig.freezer.frozen
    assert ("stand still", (NOISE,)) not in rig.freezer.log
