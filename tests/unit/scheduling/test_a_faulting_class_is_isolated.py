# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A program that faults a device has its class isolated; no one else's class ever is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import (
    NOW,
    Part,
    WorkloadBuilder,
    a_device,
    a_gpu_node,
    a_job,
    a_policy,
    a_profile,
    a_slice,
    a_snapshot,
    reported,
)
from fakes.deciding import Decided, decided
from ullage.api.faults import MAX_FAULTS, DeviceFault, Suspect
from ullage.api.reasons import Reason
from ullage.api.schedulingpolicy import FaultTerms
from ullage.api.slices import SlicePhase
from ullage.api.xids import XIDS, Cause
from ullage.cluster.codecs.profile import profile_as_stored
from ullage.cluster.projection.workload_class import profile_name
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.profile import MAX_CHARGED, ProfileRecord, ProfileStatus
from ullage.scheduling.assignment.cycle_cache import CycleCache
from ullage.scheduling.inventory.device_faults import culprit_of, isolations
from ullage.scheduling.learning.loop import profiles_to_write
from ullage.scheduling.model.plan import CreateProfile, EvictPod, SetProfile
from ullage.scheduling.times import PROFILE_WRITE_S

HOUR = 3600.0
BAD, GOOD = "bad", "good"
ALONE = "faulted a device lately and shares devices with itself alone for a while"


def suspect(
    workload_class: str = BAD, namespace: str = "default", pod: str = "bad-0", uid: str = ""
) -> Suspect:
    return Suspect(
        pod_uid=uid or f"gone-{namespace}-{pod}",
        namespace=namespace,
        pod=pod,
        workload_class=workload_class,
    )


def fault(
    *suspects: Suspect, xid: int = 31, at: float = NOW, name: str = "f1", gpu: str = "GPU-node-1-0"
) -> DeviceFault:
    return DeviceFault(id=name, gpu=gpu, xid=xid, at_s=at, suspects=suspects or (suspect(),))


def a_node(*faults: DeviceFault, **fields: object) -> GPUNodeRecord:
    return replace(a_gpu_node(devices=[a_device()], **fields), faults=faults)  # type: ignore[arg-type]


def sharing(name: str, workload_class: str, namespace: str = "default") -> WorkloadBuilder:
    return a_job(name, namespace).fractional(30).with_(workload_class=workload_class)


def a_profile_of(workload_class: str = BAD, **status: object) -> ProfileRecord:
    made = a_profile(profile_name(workload_class), workload_class=workload_class)
    known = ProfileStatus(**status)  # type: ignore[arg-type]
    return replace(made, uid="uid-profile", status=profile_as_stored(known))


def running_beside(
    newcomer: WorkloadBuilder, resident: WorkloadBuilder, *faults: DeviceFault, **more: object
) -> Decided:
    """A waiting job, and one that runs with a third of the only device."""
    there = resident.status(phase="Running")
    (pod,) = there.pods(stage=PodStage.RUNNING, node="node-1")
    held = a_slice(pod, percent=30)
    node = a_node(*faults, desired=[held], observed=[reported(held, SlicePhase.ATTACHED)])
    parts: tuple[Part, ...] = (node, there, pod, newcomer, *newcomer.pods())
    return decided(*parts, more.pop("policy", a_policy()), **more)  # type: ignore[arg-type]


def placed(found: Decided) -> set[str]:
    return {one.pod_name for _, one in found.slices()}


# -- blame -------------------------------------------------------------------------------------


@pytest.mark.parametrize("xid", sorted(XIDS))
def test_only_faults_of_programs_are_charged(xid: int) -> None:
    charged = culprit_of(fault(xid=xid)) is not None
    assert charged is (XIDS[xid].cause is Cause.APPLICATION)


def test_a_fault_that_no_table_lists_is_charged_to_no_one() -> None:
    assert culprit_of(fault(xid=119)) is None


def test_several_pods_of_one_class_are_certain() -> None:
    assert culprit_of(fault(suspect(pod="bad-0"), suspect(pod="bad-1"))) == ("default", BAD)


@pytest.mark.parametrize(
    "other",
    [
        suspect(GOOD, pod="good-0"),
        suspect(BAD, namespace="other"),
        suspect("", pod="unknown"),
    ],
)
def test_beside_another_class_no_one_is_certain(other: Suspect) -> None:
    assert culprit_of(fault(suspect(), other)) is None


def test_without_a_suspect_or_a_class_no_one_is_charged() -> None:
    assert culprit_of(replace(fault(), suspects=())) is None
    assert culprit_of(fault(suspect(""))) is None


names = st.sampled_from(["a", "b"])


@given(
    st.lists(
        st.tuples(names, st.sampled_from(["x", "y", ""]), st.sampled_from(["p", "q", "r"])),
        max_size=6,
    ),
    st.one_of(st.sampled_from(sorted(XIDS)), st.integers(0, 200)),
)
def test_who_is_charged_was_there_and_no_other_class_was(
    there: list[tuple[str, str, str]], xid: int
) -> None:
    suspects = [suspect(kind, namespace, pod) for namespace, kind, pod in there]
    charged = culprit_of(replace(fault(xid=xid), suspects=tuple(suspects)))
    if charged is not None:
        assert {(one.namespace, one.workload_class) for one in suspects} == {charged}
        assert all(charged)
        assert XIDS[xid].cause is Cause.APPLICATION


# -- isolation ---------------------------------------------------------------------------------


def test_a_faulting_class_joins_no_one_and_the_reason_says_so() -> None:
    newcomer = sharing("bad", BAD)
    assert placed(running_beside(newcomer, sharing("good", GOOD))) == {"bad-0", "good-0"}
    found = running_beside(newcomer, sharing("good", GOOD), fault())
    assert placed(found) == {"good-0"}
    assert found.decision(newcomer).reason is Reason.TRUST_DOMAIN
    assert f"its class bad {ALONE}" in found.decision(newcomer).message


def test_no_one_joins_a_faulting_class_and_what_runs_stays() -> None:
    newcomer, resident = sharing("good", GOOD), sharing("bad", BAD)
    found = running_beside(newcomer, resident, fault())
    assert placed(found) == {"bad-0"}
    assert not found.all(EvictPod)
    assert f"class bad on it {ALONE}" in found.decision(newcomer).message


@pytest.mark.parametrize(("domain", "says"), [("team", True), ("namespace/theirs", False)])
def test_the_faulting_class_of_another_namespace_is_not_named(domain: str, says: bool) -> None:
    """Where no domain is shared its fault explains nothing."""
    policy = a_policy(trust_domains={"team": frozenset({"mine", "theirs"})})
    newcomer = sharing("good", GOOD, "mine").trusting("team")
    resident = sharing("bad-one", BAD, "theirs").trusting(domain)
    guilty = fault(suspect(BAD, namespace="theirs"))
    message = running_beside(newcomer, resident, guilty, policy=policy).decision(newcomer).message
    assert (f"a class on it {ALONE}" in message) is says
    assert ("this workload belongs to team" in message) is not says
    assert "theirs" not in message
    assert "class bad" not in message


def test_beside_a_faulting_class_and_another_the_class_is_told() -> None:
    """Both ran there before the fault, and both stay."""
    newcomer = sharing("new", GOOD)
    there = [sharing(name, name).status(phase="Running") for name in (GOOD, BAD)]
    pods = [one.pods(stage=PodStage.RUNNING, node="node-1")[0] for one in there]
    held = [a_slice(pod, percent=30) for pod in pods]
    observed = [reported(one, SlicePhase.ATTACHED) for one in held]
    node = a_node(fault(), desired=held, observed=observed)
    found = decided(node, *there, *pods, newcomer, *newcomer.pods(), a_policy())
    assert placed(found) == {"bad-0", "good-0"}
    assert f"class bad on it {ALONE}" in found.decision(newcomer).message


def test_a_faulting_class_shares_with_itself() -> None:
    found = running_beside(sharing("bad", BAD), sharing("more", BAD), fault())
    assert placed(found) == {"bad-0", "more-0"}


def test_the_same_class_of_another_namespace_is_another_class() -> None:
    policy = a_policy(trust_domains={"team": frozenset({"a", "b"})})
    mine = sharing("mine", BAD, "a").trusting("team")
    other = sharing("other", BAD, "b").trusting("team")
    elsewhere = fault(suspect(BAD, namespace="c"))
    assert len(placed(running_beside(mine, other, elsewhere, policy=policy))) == 2
    guilty = fault(suspect(BAD, namespace="a"))
    assert placed(running_beside(mine, other, guilty, policy=policy)) == {"other-0"}


def test_a_faulting_class_joins_its_own_on_trial_only() -> None:
    policy = a_policy(learned=True)
    newcomer, resident = sharing("bad", BAD), sharing("more", BAD)
    found = running_beside(newcomer, resident, fault(), policy=policy)
    mine = next(one for _, one in found.slices() if one.pod_name == "bad-0")
    assert mine.probation


def test_isolation_ends_after_clean_hours() -> None:
    newcomer = sharing("bad", BAD)
    still = fault(at=NOW - 24 * HOUR + 60)
    found = running_beside(newcomer, sharing("good", GOOD), still)
    assert placed(found) == {"good-0"}
    assert found.plan.wake_at <= NOW + 60
    over = fault(at=NOW - 24 * HOUR)
    assert len(placed(running_beside(newcomer, sharing("good", GOOD), over))) == 2


def test_another_fault_begins_the_hours_again() -> None:
    snapshot = a_snapshot(
        a_node(fault(at=NOW - 30 * HOUR), fault(at=NOW - HOUR, name="f2")), a_policy(), now=NOW
    )
    found = isolations(snapshot, NOW)["default", BAD]
    assert (found.faults, found.newest.id, found.until) == (2, "f2", NOW + 23 * HOUR)


@pytest.mark.parametrize(
    ("terms", "isolated"),
    [
        (FaultTerms(), True),
        (FaultTerms(isolation_hours=0), False),
        (FaultTerms(isolation_hours=1), True),
        (FaultTerms(cleared={("default", BAD): NOW}), False),
        (FaultTerms(cleared={("default", BAD): NOW - 1}), True),
        (FaultTerms(cleared={("other", BAD): NOW}), True),
        (FaultTerms(cleared={("default", GOOD): NOW}), True),
    ],
)
def test_an_administrator_sets_the_hours_and_clears_classes(
    terms: FaultTerms, isolated: bool
) -> None:
    snapshot = a_snapshot(a_node(fault()), a_policy(faults=terms), now=NOW)
    assert (("default", BAD) in isolations(snapshot, NOW)) is isolated


def test_a_profile_remembers_what_its_node_forgot() -> None:
    policy = a_policy()
    (written,) = _written(a_node(fault()), a_profile_of())
    profile = a_profile_of(recent_faults=written.status.recent_faults)
    snapshot = a_snapshot(profile, policy, now=NOW)
    assert ("default", BAD) in isolations(snapshot, NOW)


def test_deleting_the_profile_clears_nothing_while_a_node_remembers() -> None:
    newcomer = sharing("bad", BAD)
    found = running_beside(newcomer, sharing("good", GOOD), fault())
    assert placed(found) == {"good-0"}
    assert [one.workload_class for one in found.all(CreateProfile)] == [BAD]


def test_an_isolation_that_begins_or_ends_reaches_jobs_that_nothing_else_touched() -> None:
    """The cycle keeps what it found of others; a fault must not pass by what was kept."""
    cache = CycleCache()
    for faults, expected in (((), 2), ((fault(),), 1), ((), 2)):
        newcomer, there = sharing("bad", BAD), sharing("good", GOOD).status(phase="Running")
        (pod,) = there.pods(stage=PodStage.RUNNING, node="node-1")
        held = a_slice(pod, percent=30)
        node = a_node(*faults, desired=[held], observed=[reported(held, SlicePhase.ATTACHED)])
        found = decided(node, there, pod, newcomer, *newcomer.pods(), a_policy(), cache=cache)
        assert len(placed(found)) == expected


# -- what is believed --------------------------------------------------------------------------


def test_a_pod_that_is_known_elsewhere_was_not_there() -> None:
    victim = sharing("good", GOOD, "victim").status(phase="Running")
    (pod,) = victim.pods(stage=PodStage.RUNNING, node="node-2")
    forged = fault(suspect(GOOD, namespace="victim", pod=pod.name, uid=pod.uid))
    assert not isolations(a_snapshot(a_node(forged), victim, pod, now=NOW), NOW)
    lied = fault(suspect(GOOD, namespace="default", pod=pod.name, uid=pod.uid))
    here = replace(pod, node="node-1")
    assert not isolations(a_snapshot(a_node(lied), victim, here, now=NOW), NOW)
    true = fault(suspect(GOOD, namespace="victim", pod=pod.name, uid=pod.uid))
    assert isolations(a_snapshot(a_node(true), victim, here, now=NOW), NOW)


def test_a_fault_of_a_far_future_waits_for_its_time() -> None:
    wild = a_node(fault(at=NOW + 10 * 365 * 24 * HOUR))
    assert not isolations(a_snapshot(wild, now=NOW), NOW)


# -- what is remembered ------------------------------------------------------------------------


def _written(node: GPUNodeRecord, *parts: Part, at: float = NOW) -> list[SetProfile]:
    snapshot = a_snapshot(node, *parts, now=at)
    lessons = profiles_to_write(snapshot, at, 7, isolated=isolations(snapshot, at))
    return [one for one in lessons.actions if isinstance(one, SetProfile)]


def test_a_fault_is_counted_once_however_often_it_is_decided() -> None:
    node, profile = a_node(fault(), fault(name="f2", xid=13)), a_profile_of()
    (written,) = _written(node, profile)
    assert written.status.faults == 2
    condition = written.status.condition("Isolated")
    assert condition is not None
    assert condition.reason == Reason.CLASS_FAULTED
    assert "Xid" in condition.message
    known = replace(profile, status=profile_as_stored(written.status))
    for later in (0.0, PROFILE_WRITE_S, HOUR):
        assert _written(node, known, at=NOW + later) == []


def test_more_faults_than_a_profile_lists_are_counted_once_as_well() -> None:
    told = [
        fault(name=f"f{number}", at=NOW - 100 + number)
        for number in range(MAX_CHARGED + MAX_FAULTS)
    ]
    nodes = {at: told[at::3] for at in range(3)}
    profile = _looked(nodes, a_profile_of())
    assert profile.status.faults == len(told)
    assert [one.id for one in profile.status.recent_faults] == [
        one.id for one in told[-MAX_CHARGED:]
    ]
    assert _looked(nodes, profile) is profile


def test_a_fault_is_not_held_back_for_the_pace_of_writes() -> None:
    profile = a_profile_of(updated=NOW - 1)
    (written,) = _written(a_node(fault()), profile)
    assert written.status.faults == 1


def test_the_condition_goes_when_the_hours_are_over() -> None:
    node = a_node(fault())
    (written,) = _written(node, a_profile_of())
    known = a_profile_of()
    known = replace(known, status=profile_as_stored(written.status))
    (after,) = _written(node, known, at=NOW + 24 * HOUR)
    assert after.status.condition("Isolated") is None
    assert after.status.faults == 1


def test_the_condition_follows_the_policy() -> None:
    """Hours that an administrator raises, or a clearing taken back, isolate a class again."""
    (written,) = _written(a_node(fault()), a_profile_of())
    known = replace(a_profile_of(), status=profile_as_stored(written.status))
    for terms, isolated in (
        (FaultTerms(isolation_hours=0), False),
        (FaultTerms(), True),
        (FaultTerms(cleared={("default", BAD): NOW}), False),
        (FaultTerms(), True),
    ):
        later = known.status.updated + PROFILE_WRITE_S
        node = a_node()  # it forgot the fault
        for one in _written(node, known, a_policy(faults=terms), at=later):
            known = replace(known, status=profile_as_stored(one.status))
        assert (known.status.condition("Isolated") is not None) is isolated


def test_owners_are_told_once() -> None:
    newcomer, other = sharing("bad", BAD), sharing("good", GOOD)
    parts = (newcomer, other, *newcomer.pods(), *other.pods(), a_profile_of())
    found = decided(a_node(fault()), *parts)
    told = [text for reason, text in found.events() if reason == "ClassFaulted"]
    assert len(told) == 1
    assert "Xid 31 (memory page fault)" in told[0]


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 200), st.sampled_from([13, 31, 43, 45, 79])),
        max_size=80,
    ),
    st.lists(st.integers(0, 4), max_size=6),
)
def test_any_flood_is_counted_exactly_once_and_stays_bounded(
    told: list[tuple[int, int, int]], restarts: list[int]
) -> None:
    """Nodes keep their newest faults; the operator looks between and after, in any state."""
    nodes: dict[int, list[DeviceFault]] = {}
    profile, expected = a_profile_of(), set()
    for number, (at, second, xid) in enumerate(told):
        one = fault(at=NOW - 500 + second, name=f"f{number}", xid=xid)
        nodes.setdefault(at, []).append(one)
        if XIDS[xid].cause is Cause.APPLICATION:
            expected.add(one.id)
        if len(nodes[at]) == MAX_FAULTS or number in restarts:
            profile = _looked(nodes, profile)
            nodes[at] = nodes[at][-MAX_FAULTS // 2 :]
    profile = _looked(nodes, _looked(nodes, profile))
    listed = profile.status.recent_faults
    assert len(listed) <= MAX_CHARGED
    assert profile.status.faults <= len(expected)
    if len(expected) <= MAX_CHARGED:
        assert profile.status.faults == len(expected)
        assert {one.id for one in listed} == expected


def _looked(nodes: dict[int, list[DeviceFault]], profile: ProfileRecord) -> ProfileRecord:
    records = [
        replace(a_gpu_node(f"node-{at}"), faults=tuple(faults)) for at, faults in nodes.items()
    ]
    snapshot = a_snapshot(*records, profile, now=NOW)
    lessons = profiles_to_write(snapshot, NOW, 7, isolated=isolations(snapshot, NOW))
    for one in lessons.actions:
        if isinstance(one, SetProfile):
            profile = replace(profile, status=profile_as_stored(one.status))
    return profile
