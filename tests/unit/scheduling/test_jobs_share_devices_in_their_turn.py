# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs of whole devices that allow it share them in their turns, where both gain by it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from random import Random

import pytest

from builders import WorkloadBuilder, a_job, a_profile, an_owner
from fakes import toy_rules
from fakes.toy_rounds import FAST, SLOW, Turns, a_turn_policy
from ullage.api.gpurequest import GPURequest
from ullage.api.sharing import SharingRules
from ullage.api.slices import default_trust_domain
from ullage.cluster.records.profile import ProfileRecord, SoloEntry
from ullage.cluster.records.status import AllocationRecord
from ullage.cluster.records.workload import WorkloadKind
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.model.plan import DecideSettings

ROUND_S = 60.0


def light(workload_class: str, use: float = 0.4, fast: float = 4.0) -> ProfileRecord:
    """A class that uses a part of a device only."""
    rows = [
        SoloEntry(device=kind, share=100, sm_util=use, steps_per_second=speed)
        for kind, speed in ((FAST, fast), (SLOW, fast / 4))
    ]
    return a_profile(f"p-{workload_class}", *rows, workload_class=workload_class)


def job(name: str, workload_class: str = "a", *, memory_mib: int = 4096) -> WorkloadBuilder:
    """A job of one whole device that may share it."""
    return (
        a_job(name)
        .checkpointed()
        .profile(f"p-{workload_class}")
        .with_(
            workload_class=workload_class,
            gpu=GPURequest(memory_mib=memory_mib),
            sharing=SharingRules(allow_packing=True),
        )
    )


def books(turns: Turns, name: str) -> AllocationRecord:
    found = turns.job(name).status.allocation
    assert found is not None
    return found


def sharers(turns: Turns) -> set[frozenset[str]]:
    """Who is together on a device."""
    here: dict[str, set[str]] = defaultdict(set)
    for record in turns.toy.gpu_nodes.values():
        for one in record.desired:
            pod = turns.toy.pods.get(one.key.pod_uid)
            if pod is not None:
                here[one.gpu].add(pod.owner.name)
    return {frozenset(names) for names in here.values()}


def test_two_light_jobs_run_side_by_side_on_one_device() -> None:
    turns = Turns.of({"n1": FAST}, light("a"))
    turns.add(job("one"), job("two"))
    turns.settle()
    assert sharers(turns) == {frozenset({"one", "two"})}
    (pair,) = books(turns, "one").pairs
    assert (pair.partner, pair.accelerator, pair.percent) == ("default/two", FAST, 50)
    assert float(pair.fraction) == pytest.approx(1.0, abs=0.01)
    assert float(pair.steps_per_second) == pytest.approx(4.0, rel=0.02)
    turns.run(20 * ROUND_S)
    assert turns.counts["EvictPod"] == 0
    assert sharers(turns) == {frozenset({"one", "two"})}


@pytest.mark.slow
def test_time_beside_another_is_booked_by_pair() -> None:
    turns = Turns.of({"n1": FAST}, light("a"))
    turns.add(*(job(f"j{at}") for at in range(4)))
    turns.run(40 * ROUND_S)
    for at in range(4):
        record = books(turns, f"j{at}")
        had = sum(pair.seconds for pair in record.pairs)
        had += sum(turns.toy.now - pair.since for pair in record.pairs if pair.since)
        total = sum(one.at(turns.toy.now) for _, one in record.received)
        assert total == pytest.approx(turns.had_s[f"j{at}", FAST], abs=60)
        assert had >= 0.8 * total
        assert total / (40 * ROUND_S) == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(
    "other",
    [
        job("two").with_(sharing=SharingRules()),
        job("two").with_(trust_domain="elsewhere"),
        job("two", memory_mib=14_000),
        job("two").with_(checkpoint=False),
        job("two").priority(5),
        job("two", "half").slowdown(1.05),
        job("two", "full"),
    ],
    ids=["disallowed", "trust", "memory", "checkpoint", "priority", "objective", "demand"],
)
def test_who_is_no_partner_takes_turns(other: WorkloadBuilder) -> None:
    turns = Turns.of({"n1": FAST}, light("a"), light("half", 0.7), light("full", 1.0))
    turns.add(job("one", "full" if other.record.workload_class == "full" else "a"), other)
    turns.run(3 * ROUND_S)
    assert all(len(names) == 1 for names in sharers(turns))
    for name in ("one", "two"):
        assert not books(turns, name).pairs
        assert not books(turns, name).parted  # no pair was tried that cannot be


def test_namespaces_that_share_no_trust_domain_are_no_partners() -> None:
    elsewhere = replace(light("a"), namespace="other")
    turns = Turns.of({"n1": FAST}, light("a"), elsewhere)
    stranger = job("two").with_(
        ref=an_owner("two", "other", WorkloadKind.TRAINING_JOB),
        trust_domain=default_trust_domain("other"),
    )
    turns.add(job("one"), stranger)
    turns.run(3 * ROUND_S)
    assert all(len(names) == 1 for names in sharers(turns))
    assert turns.counts["evicted one"] >= 1
    assert not books(turns, "one").pairs
    assert not books(turns, "one").parted


def test_gangs_are_no_partners() -> None:
    turns = Turns.of({"n1": FAST}, light("a"), devices=2)
    turns.add(job("one").gang(2), job("two").gang(2))
    turns.run(3 * ROUND_S)
    assert all(len(names) == 1 for names in sharers(turns))
    assert not books(turns, "one").pairs


def test_a_job_alone_has_its_whole_device_and_makes_room_for_a_partner() -> None:
    turns = Turns.of({"n1": FAST}, light("a"))
    turns.add(job("one"))
    turns.settle()
    (placement,) = turns.job("one").status.placement
    assert placement.percent == 100
    turns.add(job("two"))
    turns.run(3 * ROUND_S)
    assert sharers(turns) == {frozenset({"one", "two"})}
    assert turns.counts["evicted one"] == 1


def test_who_is_left_alone_gets_its_whole_device_again() -> None:
    turns = Turns.of({"n1": FAST}, light("a"))
    turns.add(job("one"), job("two"))
    turns.run(2 * ROUND_S)
    turns.toy.delete_workload("uid-default-two")
    turns.run(3 * ROUND_S)
    (placement,) = turns.job("one").status.placement
    assert placement.percent == 100
    assert not books(turns, "one").pairs


def test_shares_follow_what_both_use() -> None:
    turns = Turns.of({"n1": FAST}, light("a", 0.7), light("b", 0.2))
    turns.add(job("large", "a"), job("small", "b"))
    turns.settle()
    (large,), (small,) = books(turns, "large").pairs, books(turns, "small").pairs
    assert (large.percent, small.percent) == (80, 20)


def test_a_pair_that_does_not_hold_is_parted_and_left_out() -> None:
    turns = Turns.of({"n1": FAST}, light("a"))
    turns.add(job("one"), job("two"))
    turns.run(3 * ROUND_S)
    assert sharers(turns) == {frozenset({"one", "two"})}
    for name in ("one", "two"):
        slowed(turns, name, 2.5)
    turns.run(3 * ROUND_S)
    assert all(len(names) == 1 for names in sharers(turns))
    (parted,) = books(turns, "one").parted
    assert parted.accelerator == FAST
    assert "ran 2.50 and 2.50 times slower than alone: taking turns is faster" in parted.message
    assert not books(turns, "one").pairs


def slowed(turns: Turns, name: str, slowdown: float) -> None:
    """What the node reports of a job from now on."""
    workload = turns.job(name)
    assert workload.status.sharing is not None
    sharing = replace(workload.status.sharing, observed=f"{slowdown:g}")
    status = replace(workload.status, sharing=sharing)
    turns.toy.workloads[workload.ref.uid] = replace(workload, status=status)


@pytest.mark.slow
def test_a_new_leader_goes_on_with_the_same_pairs() -> None:
    turns = Turns.of({"n1": FAST, "n2": SLOW}, light("a"), light("b", 0.6, 2.0))
    turns.add(*(job(f"j{at}", "ab"[at % 2]) for at in range(6)))
    turns.run(10.5 * ROUND_S)
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
        decide(one, toy.now + 0.75 * ROUND_S, DecideSettings(epoch=toy.epoch))
        for one in (snapshot, fresh)
    ]
    assert any(books(turns, f"j{at}").pairs for at in range(6))
    assert plans[0] == plans[1]


def test_a_pair_ends_with_the_turn_when_one_allows_it_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = Turns.of({"n1": FAST}, light("a"))
    turns.add(job("one"), job("two"))
    turns.run(2 * ROUND_S)
    workload = turns.job("two")
    turns.toy.workloads[workload.ref.uid] = replace(workload, sharing=SharingRules())
    # who withdrew is still there for a moment: the rules of the toy would take that for a fault
    monkeypatch.setattr(toy_rules, "check_devices", lambda _: None)
    turns.run(3 * ROUND_S)
    assert all(len(names) == 1 for names in sharers(turns))
    assert not books(turns, "one").pairs


@pytest.mark.parametrize("objective", ["FinishTimeFairness", "Makespan", "MaxThroughput", "SJF"])
def test_every_objective_pairs(objective: str) -> None:
    turns = Turns.of({"n1": FAST}, light("a"), policy=a_turn_policy(objective))
    turns.add(*(job(f"j{at}").with_(work_steps=100_000) for at in range(4)))
    turns.run(6 * ROUND_S)
    assert any(len(names) == 2 for names in sharers(turns))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [4, 5])
def test_all_rules_hold_whatever_comes_and_goes(seed: int) -> None:
    """Every cycle is checked: at most two who both allow it, no memory or percent too much."""
    dice = Random(seed)
    nodes = {"n1": FAST, "n2": SLOW, "n3": FAST}
    turns = Turns.of(nodes, light("a", 0.3), light("b", 0.6), light("full", 1.0))
    alive: list[str] = []
    most = 0
    for at in range(30):
        event = dice.random()
        if event < 0.6 or not alive:
            one = job(
                f"j{at}", dice.choice(("a", "b", "full")), memory_mib=dice.choice((2048, 9000))
            )
            if dice.random() < 0.3:
                one = one.with_(sharing=SharingRules())
            turns.add(one.priority(dice.choice((0, 0, 0, 5))).with_(weight=dice.choice((1, 3))))
            alive.append(f"j{at}")
        elif event < 0.85:
            turns.toy.delete_workload(f"uid-default-{alive.pop(dice.randrange(len(alive)))}")
        else:
            together = {name for names in sharers(turns) if len(names) > 1 for name in names}
            name = next((one for one in alive if one not in together), "")
            if not name:
                continue
            workload = turns.job(name)
            allows = SharingRules(allow_packing=not workload.sharing.allow_packing)
            turns.toy.workloads[workload.ref.uid] = replace(workload, sharing=allows)
        turns.run(dice.choice((5, 20, 70)))
        most = max([most, *(len(names) for names in sharers(turns))])
    assert most == 2
    turns.run(3 * ROUND_S)
    assert len(turns.holding()) >= min(3, len(alive))
