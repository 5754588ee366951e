# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A tenant holds its nominal quota, borrows what its cohort leaves, and takes its own back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import (
    MODEL,
    Part,
    WorkloadBuilder,
    a_gpu_node,
    a_job,
    a_pod,
    a_policy,
    a_shape,
    a_slice,
    an_adopted,
    gpu,
    reported,
)
from fakes.deciding import Decided, decided
from fakes.toy_rounds import FAST, Turns, a_turn_policy, rates
from ullage.api.reasons import Reason
from ullage.api.schedulingpolicy import Quota, Tenant
from ullage.api.slices import DesiredSlice, SlicePhase
from ullage.api.words import ReclaimWithinCohort
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.policy import PolicyRecord
from ullage.scheduling.model.plan import EvictPod

ANY, NEVER = ReclaimWithinCohort.ANY, ReclaimWithinCohort.NEVER
LOWER = ReclaimWithinCohort.LOWER_PRIORITY


def party(
    name: str,
    nominal: int,
    *,
    cohort: str = "all",
    borrowing: int | None = None,
    lending: int | None = None,
    reclaim: ReclaimWithinCohort = ANY,
    kind: str = MODEL,
) -> Tenant:
    """A tenant that the namespace of its name belongs to."""
    quota = Quota(
        accelerator=kind, nominal_quota=nominal, borrowing_limit=borrowing, lending_limit=lending
    )
    return Tenant(
        name=name,
        namespaces=frozenset({name}),
        quota=(quota,),
        cohort=cohort,
        reclaim_within_cohort=reclaim,
    )


def policy(*tenants: Tenant) -> PolicyRecord:
    return a_policy(tenants=tuple(sorted(tenants, key=lambda tenant: tenant.name)))


def asks(tenant: str, name: str, *, priority: int = 0, age: float = 60) -> WorkloadBuilder:
    """A job of one whole device that saves its work."""
    return a_job(name, tenant).priority(priority).aged(age).checkpointed()


def runs(node: str, *jobs: WorkloadBuilder, devices: int = 0, percent: int = 100) -> list[Part]:
    """Jobs that run, each on a device of one node."""
    parts: list[Part] = []
    slices: list[DesiredSlice] = []
    for at, job in enumerate(jobs):
        record = job.build()
        name = f"{record.ref.name}-0"
        pod = a_pod(name, owner=record, stage=PodStage.RUNNING, node=node, priority=record.priority)
        slices.append(a_slice(pod, device=gpu(node, at), percent=percent))
        parts += [job.status(phase="Running"), pod]
    seen = [reported(one, SlicePhase.ATTACHED) for one in slices]
    parts.append(a_gpu_node(node, devices=devices or len(jobs), desired=slices, observed=seen))
    return parts


def waits(*jobs: WorkloadBuilder) -> list[Part]:
    return [part for job in jobs for part in (job, *job.pods(priority=job.build().priority))]


def evicted(found: Decided) -> list[str]:
    return sorted(one.pod.name for one in found.all(EvictPod))


def test_a_tenant_holds_no_more_than_its_quota_and_is_told_with_numbers() -> None:
    first, second = asks("a", "first", age=90), asks("a", "second")
    rules = policy(party("a", 100, cohort=""))
    found = decided(a_gpu_node(devices=3), rules, *waits(first, second))
    assert set(found.places()) == {"first-0"}
    decision = found.decision(second)
    assert decision.reason is Reason.QUOTA_EXCEEDED
    assert f"tenant a holds 100 % of {MODEL}, its nominal quota is 100 %" in decision.message
    assert "it has no cohort to borrow from, and this asks for 100 %;" in decision.message
    assert "nearest is" not in decision.message
    assert "raise spec.tenants[].quota" in decision.message
    assert found.plan.requeues == {"Quota": 1}


def test_one_without_tenants_or_quota_is_as_before() -> None:
    job = asks("b", "free")
    rules = policy(party("a", 0), Tenant(name="b", namespaces=frozenset({"b"})))
    assert decided(a_gpu_node(), rules, *waits(job)).decision(job).reason is Reason.PLACED


def test_what_asks_for_more_than_the_quota_can_ever_be_hears_so() -> None:
    gang = asks("a", "gang").gang(4)
    rules = policy(party("a", 100, borrowing=100), party("b", 500))
    decision = decided(a_gpu_node(devices=8), rules, *waits(gang)).decision(gang)
    assert decision.reason is Reason.QUOTA_EXCEEDED
    assert "more than the quota can ever be (200 %)" in decision.message


def test_unused_quota_is_borrowed_up_to_the_limits() -> None:
    jobs = [asks("a", f"job{number}", age=90 - number) for number in range(6)]
    node = a_gpu_node(devices=8)
    for borrower, lender, most in (
        (party("a", 100), party("b", 300), 4),
        (party("a", 100, borrowing=100), party("b", 300), 2),
        (party("a", 100), party("b", 300, lending=200), 3),
        (party("a", 100), party("b", 300, cohort="other"), 1),
        (party("a", 100), party("b", 300, kind="h100"), 1),
        (party("a", 0), party("b", 200), 2),
    ):
        found = decided(node, policy(borrower, lender), *waits(*jobs))
        assert len(found.places()) == most, (borrower, lender)


def test_a_type_without_an_entry_is_not_for_the_tenant() -> None:
    job = asks("a", "job")
    rules = policy(party("a", 500, kind="h100"), party("b", 500))
    decision = decided(a_gpu_node(), rules, *waits(job)).decision(job)
    assert decision.reason is Reason.QUOTA_EXCEEDED
    assert f"tenant a has no quota of {MODEL}" in decision.message


def test_another_type_is_taken_where_one_is_used_up() -> None:
    tenant = Tenant(
        name="a",
        namespaces=frozenset({"a"}),
        quota=(
            Quota(accelerator=MODEL, nominal_quota=0),
            Quota(accelerator="h100", nominal_quota=100),
        ),
    )
    first, second = asks("a", "first", age=90), asks("a", "second")
    nodes = a_gpu_node(devices=2), a_gpu_node("node-2", devices=1, model="h100")
    found = decided(*nodes, policy(tenant), *waits(first, second))
    assert found.places() == {"first-0": [gpu("node-2", 0)]}
    assert found.decision(second).reason is Reason.QUOTA_EXCEEDED


def test_shares_count_with_their_percent_and_a_range_does_not_borrow_to_get_more() -> None:
    jobs = [a_job(f"job{at}", "a").fractional(30, 60).aged(90 - at) for at in range(3)]
    rules = policy(party("a", 100), party("b", 100))
    found = decided(a_gpu_node(devices=4), rules, *waits(*jobs))
    percents = sorted(one.percent for _, one in found.slices())
    assert sum(percents) <= 200
    assert percents == [40, 60, 60], "two inside the nominal quota, the third borrows what it can"


def test_a_gang_is_all_or_nothing_in_its_quota() -> None:
    gang, single = asks("a", "gang", age=90).gang(2), asks("a", "single")
    rules = policy(party("a", 100, cohort=""))
    found = decided(a_gpu_node(devices=4), rules, *waits(gang, single))
    assert set(found.places()) == {"single-0"}
    assert "asks for 200 %" in found.decision(gang).message


def test_an_elastic_gang_starts_as_large_as_its_quota() -> None:
    gang = asks("a", "gang").elastic(1, 4)
    rules = policy(party("a", 200, cohort=""))
    found = decided(a_gpu_node(devices=4), rules, gang)
    assert found.status(gang).size is not None
    assert found.status(gang).replicas == 2


def test_pods_of_other_controllers_count_too() -> None:
    pods = an_adopted("web", "a")
    found = decided(a_gpu_node(), policy(party("a", 0, cohort="")), pods, *pods.pods())
    assert found.decision(pods).reason is Reason.QUOTA_EXCEEDED
    assert not found.slices()


def test_to_name_no_tenant_or_an_unknown_one_is_no_way_around_a_quota() -> None:
    rules = policy(party("a", 0, cohort=""), Tenant(name="open"))
    silent = asks("a", "silent")
    forged = asks("a", "forged").with_(tenant="unheard-of")
    other = asks("b", "other").with_(tenant="a")
    welcome = asks("a", "welcome").with_(tenant="open")
    parts = waits(silent, forged, other, welcome)
    found = decided(a_gpu_node(devices=4), rules, *parts)
    assert found.decision(silent).reason is Reason.QUOTA_EXCEEDED
    assert found.decision(forged).reason is Reason.TENANT_NOT_ALLOWED
    assert "lists no tenant unheard-of, and namespace a belongs to a" in (
        found.decision(forged).message
    )
    assert found.decision(other).reason is Reason.TENANT_NOT_ALLOWED
    assert found.decision(welcome).reason is Reason.PLACED


def test_a_tenant_of_every_namespace_takes_those_that_no_other_lists() -> None:
    every = Tenant(
        name="a-rest",
        namespaces=frozenset({"*"}),
        quota=(Quota(accelerator=MODEL, nominal_quota=0),),
    )
    listed, rest = asks("b", "listed"), asks("c", "rest")
    found = decided(a_gpu_node(devices=2), policy(every, party("b", 100)), *waits(listed, rest))
    assert found.decision(listed).reason is Reason.PLACED
    assert found.decision(rest).reason is Reason.QUOTA_EXCEEDED


def test_lent_quota_is_taken_back_youngest_first_and_no_more_than_was_lent() -> None:
    old, young = asks("b", "old", priority=9, age=900), asks("b", "young", priority=9, age=10)
    owner = asks("a", "owner")
    rules = policy(party("a", 100), party("b", 100))
    found = decided(rules, *runs("node-1", old, young), *waits(owner))
    assert evicted(found) == ["young-0"]
    message = found.one(EvictPod).text
    assert "takes back quota of tenant a that tenant b had borrowed" in message
    assert "room is made by preempting b/young" in found.decision(owner).message
    two = waits(owner, asks("a", "second"))
    assert evicted(decided(rules, *runs("node-1", old, young), *two)) == ["young-0"]


@pytest.mark.parametrize(
    ("reclaim", "priority", "leaves"),
    [(NEVER, 9, False), (LOWER, 0, False), (LOWER, 9, True), (ANY, 0, True)],
)
def test_whom_a_tenant_may_preempt_is_its_own_setting(
    reclaim: ReclaimWithinCohort, priority: int, leaves: bool
) -> None:
    borrowers = asks("b", "one", priority=5), asks("b", "two", priority=5)
    owner = asks("a", "owner", priority=priority)
    rules = policy(party("a", 100, reclaim=reclaim), party("b", 100))
    found = decided(rules, *runs("node-1", *borrowers), *waits(owner))
    assert bool(evicted(found)) == leaves
    if not leaves:
        decision = found.decision(owner)
        assert decision.reason is Reason.QUOTA_EXCEEDED
        assert "100 % of it is lent to cohort all" in decision.message
        assert ("reclaimWithinCohort is Never" in decision.message) == (reclaim is NEVER)


def test_who_borrows_takes_nothing_back_and_no_cohort_pays_for_another() -> None:
    owner = asks("a", "owner", priority=9)
    for rules in (
        policy(party("a", 0), party("b", 100), party("c", 100)),
        policy(party("a", 100, cohort="mine"), party("b", 200)),
        policy(party("a", 100), party("b", 200)),
    ):
        found = decided(rules, *runs("node-1", asks("b", "one"), asks("b", "two")), *waits(owner))
        assert not evicted(found)


def test_what_a_tenant_holds_inside_its_quota_is_not_taken_with_what_it_borrowed() -> None:
    rules = policy(party("a", 200), party("b", 100))
    running = runs("node-1", asks("b", "one"), asks("b", "two"))
    gang = asks("a", "gang").gang(2)
    assert not evicted(decided(rules, *running, *waits(gang))), "two devices are there, one is lent"
    assert len(evicted(decided(rules, *running, *waits(asks("a", "single"))))) == 1


def test_another_cohort_takes_what_was_borrowed_by_priority_alone() -> None:
    rules = policy(party("a", 100, cohort="mine"), party("b", 100), party("c", 100))
    running = runs("node-1", asks("b", "one"), asks("b", "two"))
    assert not evicted(decided(rules, *running, *waits(asks("a", "equal"))))
    assert len(evicted(decided(rules, *running, *waits(asks("a", "higher", priority=9))))) == 1


def test_work_inside_its_quota_leaves_for_its_own_tenant_alone() -> None:
    rules = policy(party("a", 200, cohort=""))
    running = runs("node-1", asks("a", "one"), asks("a", "two"))
    stranger = asks("b", "stranger", priority=9)
    assert not evicted(decided(rules, *running, *waits(stranger)))
    own = asks("a", "own", priority=9)
    assert len(evicted(decided(rules, *running, *waits(own)))) == 1


def test_what_does_not_save_its_work_keeps_what_it_borrowed() -> None:
    kept = a_job("one", "b"), a_job("two", "b")
    rules = policy(party("a", 100), party("b", 100))
    found = decided(rules, *runs("node-1", *kept), *waits(asks("a", "owner")))
    assert not evicted(found)
    message = found.decision(asks("a", "owner")).message
    assert "100 % of it is lent to cohort all" in message


def test_a_borrower_leaves_where_the_owner_fits_though_another_is_younger() -> None:
    elsewhere, here = asks("b", "elsewhere", age=10), asks("b", "here", age=900)
    owner = asks("a", "owner").shaped(a_shape(node_selector={"kubernetes.io/hostname": "node-2"}))
    rules = policy(party("a", 100), party("b", 100))
    parts = [*runs("node-1", elsewhere), *runs("node-2", here)]
    found = decided(rules, *parts, *waits(owner))
    assert evicted(found) == ["here-0"]


def test_inside_the_quota_comes_before_borrowing() -> None:
    borrower, owner = asks("b", "borrower", priority=9, age=900), asks("a", "owner", age=1)
    rules = policy(party("a", 100), party("b", 0))
    found = decided(a_gpu_node(devices=4), rules, *waits(borrower, owner))
    assert set(found.places()) == {"owner-0"}
    assert found.decision(borrower).reason is Reason.QUOTA_EXCEEDED


def test_turns_count_against_the_quota() -> None:
    rules = a_turn_policy(tenants=(party("default", 100, cohort="", kind=FAST),))
    turns = Turns.of({"n1": FAST, "n2": FAST}, rates("a", 4, 1), policy=rules)
    for name in ("one", "two", "three"):
        turns.add(a_job(name).checkpointed().with_(workload_class="a"))
    turns.settle()
    phases = [turns.job(name).status.phase for name in ("one", "two", "three")]
    assert phases.count("Running") == 1, "two devices are there, and the tenant may hold one"


def test_turns_borrow_what_others_leave_and_end_for_the_owner() -> None:
    owner = party("owner", 100, kind=FAST, reclaim=NEVER)
    borrower = party("default", 100, kind=FAST)
    rules = a_turn_policy(tenants=(borrower, owner))
    turns = Turns.of({"n1": FAST, "n2": FAST, "n3": FAST}, rates("a", 4, 1), policy=rules)
    for name in ("one", "two", "three"):
        turns.add(a_job(name).checkpointed().with_(workload_class="a"))
    turns.run(30)
    assert len(turns.holding()) == 2, "its own device and the one that is lent, not the third"
    turns.add(a_job("mine", "owner").checkpointed().with_(workload_class="a"))
    turns.run(200)
    held = turns.holding()
    assert "mine" in held
    assert len(held) == 2, "the third device is beyond every quota"


def test_turns_of_a_tenant_at_its_quota_leave_devices_to_others() -> None:
    """The plan counts quota: nothing is kept for turns that quota would not allow."""
    rules = a_turn_policy(tenants=(party("default", 100, cohort="", kind=FAST),))
    turns = Turns.of({"n1": FAST, "n2": FAST}, rates("a", 4, 1), policy=rules)
    for name in ("one", "two", "three"):
        turns.add(a_job(name).checkpointed().with_(workload_class="a"))
    turns.run(150)
    turns.add(a_job("free", "elsewhere").checkpointed().with_(workload_class="a"))
    turns.settle()
    assert "free" in turns.holding()
    turns.run(600)
    had = {name: seconds for (name, _), seconds in turns.had_s.items()}
    assert all(had[name] > 100 for name in ("one", "two", "three")), "they take turns on their own"
    assert had["free"] > 550


def test_a_gang_beyond_its_quota_ends_no_ones_turn_early() -> None:
    rules = a_turn_policy(tenants=(party("default", 100, cohort="", kind=FAST),))
    turns = Turns.of({"n1": FAST, "n2": FAST}, rates("a", 4, 1), policy=rules)
    turns.add(a_job("gang").gang(2).checkpointed().with_(workload_class="a"))
    for name in ("one", "two"):
        turns.add(a_job(name, "elsewhere").checkpointed().with_(workload_class="a"))
    turns.run(600)
    assert set(turns.holding()) == {"one", "two"}
    assert turns.counts["evicted one"] == turns.counts["evicted two"] == 0
    decision = turns.job("gang").status.decision
    assert decision is not None
    assert decision.reason is Reason.QUOTA_EXCEEDED


@pytest.mark.parametrize(("nominal", "is_waited_for"), [(100, False), (200, True)])
def test_a_gang_that_a_smaller_quota_keeps_out_is_waited_for_no_more(
    nominal: int, is_waited_for: bool
) -> None:
    turns = Turns.of({"n1": FAST, "n2": FAST}, rates("a", 4, 1))
    turns.add(*(a_job(name, "elsewhere").with_(workload_class="a") for name in ("one", "two")))
    turns.settle()
    turns.add(a_job("gang").gang(2).checkpointed().with_(workload_class="a"))
    turns.settle()
    gang = turns.job("gang")
    books = gang.status.allocation
    assert books is not None
    passed = replace(books, skipped_since=turns.toy.now - 10)
    turns.toy.workloads[gang.ref.uid] = replace(
        gang, status=replace(gang.status, allocation=passed)
    )
    tenants = (party("default", nominal, cohort="", kind=FAST),)
    turns.toy.shape.policy = replace(turns.toy.shape.policy, tenants=tenants)
    turns.settle()
    books = turns.job("gang").status.allocation
    assert books is not None
    assert bool(books.skipped_since) is is_waited_for
