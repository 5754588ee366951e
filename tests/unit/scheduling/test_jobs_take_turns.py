# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Under an objective other than FIFO jobs take turns, and the books say who is owed what."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import WorkloadBuilder, a_gpu_node, a_job, a_policy, a_service
from fakes.deciding import decided
from fakes.toy_rounds import FAST, SLOW, Turns, a_turn_policy, rates
from ullage.api.reasons import ConditionType, Reason
from ullage.api.schedulingpolicy import Tenant
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.model.plan import DecideSettings, EvictPod
from ullage.scheduling.timeslicing.round_records import current

ROUND_S = 60.0
TWO = {"n1": FAST, "n2": SLOW}


def job(name: str, workload_class: str = "a") -> WorkloadBuilder:
    """A job that can checkpoint."""
    return a_job(name).checkpointed().with_(workload_class=workload_class)


def waits(turns: Turns, name: str) -> str:
    """Why a job waits, in words."""
    decision = turns.job(name).status.decision
    assert decision is not None
    assert decision.reason is Reason.WAITS_FOR_ROUND
    return decision.message


@pytest.mark.slow
def test_received_time_follows_the_promise_within_fifty_rounds() -> None:
    turns = Turns.of(TWO, rates("a", 4, 1), rates("b", 2, 1))
    names = [f"j{at}" for at in range(6)]
    turns.add(*(job(name, "ab"[at % 2]) for at, name in enumerate(names)))
    turns.settle()
    begin, before = turns.toy.now, dict(turns.had_s)
    turns.run(50 * ROUND_S)
    elapsed = turns.toy.now - begin
    for name in names:
        promise = turns.fraction(name)
        for kind in (FAST, SLOW):
            had = turns.had_s[name, kind] - before.get((name, kind), 0.0)
            assert abs(had / elapsed - promise.get(kind, 0.0)) <= 0.05, (name, kind)
        # what the books say is what the devices saw
        books = turns.job(name).status.allocation
        assert books is not None
        for kind, one in books.received:
            assert one.at(turns.toy.now) == pytest.approx(turns.had_s[name, kind], abs=60)
    assert all(turns.counts[f"evicted {name}"] for name in names)


def test_a_newcomer_is_promised_its_part_at_once_and_starts_alone_without_delay() -> None:
    turns = Turns.of(TWO, rates("a", 4, 1))
    turns.add(job("first"))
    turns.settle()
    assert turns.holding() == {"first": FAST}
    turns.run(10)
    turns.add(job("second"))
    turns.cycle()
    assert turns.fraction("second")
    turns.settle()
    assert turns.holding() == {"first": FAST, "second": SLOW}


def test_newcomers_like_the_others_rewrite_nobodys_promise() -> None:
    turns = Turns.of({f"{kind}{at}": kind for kind in (FAST, SLOW) for at in range(4)})
    turns.add(*(job(f"j{at:02d}").with_(weight=1 + at % 4) for at in range(64)))
    turns.settle()
    before = {name: turns.fraction(name) for name in (f"j{at:02d}" for at in range(64))}
    turns.add(job("newcomer"))
    turns.cycle()
    assert turns.fraction("newcomer")
    assert {name: turns.fraction(name) for name in before} == before


def test_a_turn_lasts_a_round_at_least() -> None:
    turns = Turns.of({"n1": FAST}, rates("a", 4, 1))
    turns.add(job("first"))
    turns.settle()
    turns.add(job("second"), job("third"))
    turns.run(ROUND_S - 5)
    assert turns.counts["EvictPod"] == 0
    assert turns.holding() == {"first": FAST}


def test_a_job_that_cannot_checkpoint_is_never_stopped_for_its_equals() -> None:
    turns = Turns.of({"n1": FAST}, rates("a", 4, 1))
    turns.add(a_job("stubborn").with_(workload_class="a"))
    turns.settle()
    turns.add(job("other"))
    turns.run(10 * ROUND_S)
    assert turns.counts["EvictPod"] == 0
    assert turns.holding() == {"stubborn": FAST}
    assert "promised 50% of the time on fast" in waits(turns, "other")


def test_a_gang_is_not_starved_by_single_jobs() -> None:
    turns = Turns.of({"n1": FAST}, rates("a", 4, 1), devices=2)
    turns.add(*(job(f"s{at}") for at in range(4)))
    turns.settle()
    turns.add(job("gang").gang(2))
    turns.run(12 * ROUND_S)
    books = turns.job("gang").status.allocation
    assert books is not None
    assert dict(books.received)[FAST].at(turns.toy.now) >= ROUND_S


@pytest.mark.slow
def test_a_gang_that_is_late_waits_for_no_turn_to_end() -> None:
    turns = Turns.of({"n1": FAST}, rates("a", 4, 1), devices=2)
    for at in range(2):  # turns never end together
        turns.add(job(f"s{at}"))
        turns.run(ROUND_S / 2)
    turns.add(job("s2"), job("s3"), job("gang").gang(2))
    for _ in range(600):
        turns.run(1)
        waits_for = turns.job("gang").status.allocation
        if waits_for is not None and waits_for.skipped_since:
            break
    assert waits_for is not None
    late = waits_for.skipped_since + turns.toy.shape.policy.gang_skip_limit * ROUND_S
    turns.run(late - 1 - turns.toy.now)
    began, young = max(
        (current(turns.job(name).status.allocation)[1], name) for name in turns.holding()
    )
    assert late + 5 < began + ROUND_S
    turns.run(5)
    assert young not in turns.holding()
    turns.run(10)
    assert turns.holding() == {"gang": FAST}


def test_a_higher_priority_does_not_wait_for_a_job_that_never_stops() -> None:
    turns = Turns.of(TWO, rates("a", 4, 1))
    turns.add(a_job("stubborn").with_(workload_class="a"))
    turns.settle()
    turns.add(job("low"))
    turns.run(2 * ROUND_S)
    assert turns.holding() == {"stubborn": FAST, "low": SLOW}
    turns.add(job("high").priority(5))
    turns.run(2 * ROUND_S)
    assert turns.holding() == {"stubborn": FAST, "high": SLOW}


def test_no_device_idles_while_someone_waits() -> None:
    turns = Turns.of(TWO, rates("a", 4, 1), policy=a_turn_policy("MaxThroughput"))
    turns.add(*(job(f"j{at}") for at in range(4)))
    turns.settle()
    for _ in range(6):
        turns.run(ROUND_S)
        turns.settle()
        assert set(turns.holding().values()) == {FAST, SLOW}


def test_nothing_is_written_while_no_one_changes_place() -> None:
    turns = Turns.of(TWO, rates("a", 4, 1))
    turns.add(
        a_job("stays").with_(workload_class="a"),
        a_job("too").with_(workload_class="a"),
        job("waits"),
    )
    turns.settle()
    turns.run(ROUND_S)
    before = turns.writes()
    turns.run(20 * ROUND_S)
    assert turns.writes() == before
    assert turns.counts["EvictPod"] == 0


@pytest.mark.slow
def test_a_new_leader_goes_on_with_the_same_books() -> None:
    turns = Turns.of(TWO, rates("a", 4, 1), rates("b", 2, 1))
    turns.add(*(job(f"j{at}", "ab"[at % 2]) for at in range(6)))
    turns.run(7.5 * ROUND_S)
    toy = turns.toy
    snapshot = toy.snapshot()
    fresh = replace(
        snapshot,
        gpu_nodes={
            name: replace(one, desired_since=dict.fromkeys(one.desired_since, toy.now))
            for name, one in snapshot.gpu_nodes.items()
        },
    )
    plans = [
        # sooner than a round after the new leader saw the devices first
        decide(one, toy.now + 0.75 * ROUND_S, DecideSettings(epoch=toy.epoch))
        for one in (snapshot, fresh)
    ]
    assert plans[0] == plans[1]
    assert any(isinstance(one, EvictPod) for one in diff(plans[1], fresh))
    assert plans[0].statuses


def test_a_gang_that_no_single_type_holds_is_told_so_once() -> None:
    turns = Turns.of(TWO, rates("a", 4, 1))
    turns.add(job("wide").gang(2).with_(mixed_accelerators=True))
    turns.run(5 * ROUND_S)
    decision = turns.job("wide").status.decision
    assert decision is not None
    assert decision.reason is Reason.NO_FEASIBLE_ACCELERATOR
    assert "no single accelerator type has room for 2 members" in decision.message
    assert turns.events.count(("wide", "NoFeasibleAccelerator")) == 1
    assert turns.counts["CreatePod"] == 0


def test_a_job_of_unknown_speed_counts_every_type_alike_and_its_owner_is_told_once() -> None:
    turns = Turns.of(TWO)
    turns.add(job("new"), job("other"))
    turns.run(4 * ROUND_S)
    books = turns.job("new").status.allocation
    assert books is not None
    assert books.source == "Neutral"
    assert turns.events.count(("new", "EstimateUsed")) == 1
    assert sum(turns.fraction("new").values()) == pytest.approx(1.0, abs=0.01)


def test_services_take_their_devices_before_time_is_divided() -> None:
    turns = Turns.of(TWO, rates("a", 4, 1))
    serving = a_service("serve").on(FAST).build()
    turns.toy.add(serving)
    turns.add(job("one"), job("two"))
    for _ in range(12):
        turns.cycle()
        turns.toy.control_deployments()
    turns.run(3 * ROUND_S)
    assert turns.holding()["serve"] == FAST
    assert turns.fraction("one").keys() | turns.fraction("two").keys() == {SLOW}


def used_in_part(devices: int, *jobs: WorkloadBuilder) -> Turns:
    """A service holds 60 % of each device."""
    turns = Turns.of({"n1": FAST}, rates("a", 4, 1), devices=devices)
    for at in range(devices):
        turns.toy.add(a_service(f"serve{at}").fractional(60, 60).build())
    turns.add(*jobs)
    for _ in range(12):
        turns.cycle()
        turns.toy.control_deployments()
    return turns


def test_what_a_service_leaves_of_a_device_is_room_for_parts() -> None:
    turns = used_in_part(1, job("part").fractional(40, 40), job("whole"))
    assert turns.fraction("part")[FAST] > 0


def test_where_all_want_whole_devices_parts_of_three_are_no_room() -> None:
    turns = used_in_part(3, job("one"), job("two"))
    assert not turns.fraction("one")
    assert not turns.fraction("two")


def test_weights_divide_the_time() -> None:
    turns = Turns.of({"n1": FAST}, rates("a", 4, 1))
    turns.add(job("heavy").with_(weight=3), job("light"))
    turns.settle()
    assert turns.fraction("heavy")[FAST] == pytest.approx(0.75, abs=0.01)
    assert turns.fraction("light")[FAST] == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize(
    "objective", ["FinishTimeFairness", "Makespan", "MaxThroughput", "SJF", "MaxMinFairness"]
)
def test_every_objective_runs_jobs_to_their_turn(objective: str) -> None:
    turns = Turns.of(TWO, rates("a", 4, 1), policy=a_turn_policy(objective))
    turns.add(*(job(f"j{at}").with_(work_steps=1000 * (at + 1)) for at in range(3)))
    turns.run(3 * ROUND_S)
    assert set(turns.holding().values()) == {FAST, SLOW}
    solve = turns.toy.shape.policy.last_solve
    assert solve is not None
    assert (solve.result, solve.jobs) == ("Optimal", 3)


def test_who_waits_reads_what_it_is_promised_and_who_is_ahead() -> None:
    turns = Turns.of({"n1": FAST}, rates("a", 4, 1))
    turns.add(*(job(f"j{at}") for at in range(3)))
    turns.settle()
    texts = [waits(turns, name) for name in ("j0", "j1", "j2") if name not in turns.holding()]
    assert len(texts) == 2
    assert all("promised 33% of the time on fast" in text for text in texts)
    assert any("ahead of it there: default/j" in text for text in texts)
    assert all("scarcest is fast" in text for text in texts)


def test_who_waits_reads_where_its_turn_is_nearest() -> None:
    turns = Turns.of(TWO, rates("a", 4, 1), rates("b", 2, 2))
    turns.add(job("first"), *(job(f"j{at}", "b") for at in range(3)))
    turns.settle()
    assert turns.fraction("j2")[SLOW] > turns.fraction("j2")[FAST] > 0
    assert "is owed 0 s on slow, 2 ahead of it there: default/j0, default/j1" in waits(turns, "j2")


def test_books_close_when_the_objective_becomes_fifo() -> None:
    turns = Turns.of(TWO, rates("a", 4, 1))
    turns.add(job("one"), job("two"), job("three"))
    turns.run(ROUND_S)
    turns.toy.shape.policy = replace(turns.toy.shape.policy, objective="FIFO")
    turns.settle()
    assert all(turns.job(name).status.allocation is None for name in ("one", "two", "three"))
    assert turns.toy.shape.policy.last_solve is None


def test_a_higher_priority_is_served_before_anyone_is_owed_time() -> None:
    turns = Turns.of({"n1": FAST}, rates("a", 4, 1))
    turns.add(job("low"))
    turns.run(2 * ROUND_S)
    turns.add(job("high").priority(5))
    turns.run(10 * ROUND_S)
    assert turns.holding() == {"high": FAST}
    assert turns.counts["evicted low"] == 1


def test_fifo_knows_nothing_of_turns() -> None:
    jobs = (job("one"), job("two"))
    weighted = [one.with_(weight=7, tenant="research") for one in jobs]
    pods = [pod for one in jobs for pod in one.pods()]
    room = a_gpu_node(devices=1)
    plain = decided(room, *jobs, *pods)
    parties = (Tenant(name="research", weight=3),)
    other = decided(room, *weighted, *pods, a_policy(tenants=parties))
    assert other.plan == plain.plan
    assert all(status.allocation is None for status in plain.plan.statuses.values())
    assert plain.condition("two", ConditionType.ADMITTED).reason == "NoCapacity"
