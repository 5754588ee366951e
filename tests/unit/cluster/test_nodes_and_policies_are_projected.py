# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from builders import NOW, a_device, a_slice, reported
from builders_raw import (
    raw_deployment,
    raw_device_profile,
    raw_gpu_node,
    raw_kube_service,
    raw_node,
    raw_policy,
    raw_profile,
)
from ullage.api.dataio import IoFairness
from ullage.api.faults import MAX_FAULTS
from ullage.api.labels import SLOT_RESOURCE
from ullage.api.lanes import IterationPolicy
from ullage.api.readers import WireError
from ullage.api.schedulingpolicy import FaultTerms, Quota, Tenant
from ullage.api.slices import SlicePhase
from ullage.api.words import ReclaimWithinCohort
from ullage.cluster.codecs.status import solve_to_wire
from ullage.cluster.projection.node import project_gpu_node, project_node
from ullage.cluster.projection.policy import project_policy
from ullage.cluster.projection.rest import (
    project_deployment,
    project_device_profile,
    project_profile,
    project_service,
)
from ullage.cluster.records.pod_shape import Taint
from ullage.cluster.records.status import SolveRecord


def test_a_node_is_read() -> None:
    record = project_node(
        raw_node(spec={"unschedulable": True, "taints": [{"key": "spot", "effect": "NoSchedule"}]})
    )
    assert record.managed
    assert record.ready
    assert record.unschedulable
    assert record.taints == (Taint(key="spot", value="", effect="NoSchedule"),)
    assert record.allocatable.cpu_milli == 8000
    assert record.allocatable.pods == 110
    assert record.allocatable.extended == ((SLOT_RESOURCE, 16),)
    assert not project_node(raw_node(managed=False, ready=False)).managed


def test_a_gpu_node_is_read_with_its_slices_in_order() -> None:
    one, two = a_slice("uid-b"), a_slice("uid-a")
    record = project_gpu_node(
        raw_gpu_node(
            desired=[one, two], observed=[reported(one, SlicePhase.PREPARED)], devices=[a_device()]
        ),
        100.0,
        {two: 40.0},
    )
    assert record.desired == (two, one)
    assert record.desired_since == {one.key: 100.0, two.key: 40.0}
    assert record.observed[0].phase is SlicePhase.PREPARED
    assert record.devices == (a_device(),)
    assert record.slots == 8
    assert record.heartbeat == 1767326400.0


def test_a_malformed_slice_names_its_field() -> None:
    raw = raw_gpu_node()
    raw["spec"]["slices"] = [{"podUID": "u", "container": "c"}]
    with pytest.raises(WireError, match=r"spec\.slices\.podNamespace"):
        project_gpu_node(raw, 0.0, {})


def test_a_deployment_is_settled_when_every_replica_is_new_and_ready() -> None:
    done = {"replicas": 2, "readyReplicas": 2, "updatedReplicas": 2}
    settled = project_deployment(
        raw_deployment(replicas=2, status=done | {"observedGeneration": 1})
    )
    assert settled.settled
    assert (settled.max_surge, settled.max_unavailable) == (1, 0)
    assert settled.owner_uid == "uid-serve"
    assert settled.template_hash == "0123456789ab"
    assert not project_deployment(raw_deployment(replicas=2, status=done)).settled
    behind = done | {"updatedReplicas": 1}
    assert not project_deployment(
        raw_deployment(replicas=2, status=behind | {"observedGeneration": 1})
    ).settled


def test_percent_bounds_of_a_rolling_update_are_resolved() -> None:
    raw = raw_deployment(replicas=10)
    raw["spec"]["strategy"] = {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}
    record = project_deployment(raw)
    assert (record.max_surge, record.max_unavailable) == (3, 2)
    raw["spec"]["strategy"]["rollingUpdate"]["maxSurge"] = "some"
    with pytest.raises(WireError, match="maxSurge: expected a whole number or percent"):
        project_deployment(raw)


def test_a_service_is_read() -> None:
    record = project_service(raw_kube_service(ports=(80, 443)))
    assert (record.ports, record.owner_uid) == ((80, 443), "uid-serve")


def test_profiles_are_read() -> None:
    row = {"device": "emulated", "share": 50, "smUtil": 0.5, "stepsPerSecond": 3}
    record = project_profile(raw_profile(solo=[row]))
    assert record.workload_class == "resnet"
    assert (record.solo[0].sm_util, record.solo[0].steps_per_second) == (0.5, 3.0)
    with pytest.raises(WireError, match=r"spec\.solo\.smUtil: expected a number, got str"):
        project_profile(raw_profile(solo=[row | {"smUtil": "half"}]))
    device = project_device_profile(raw_device_profile(contextOverheadMiB=300))
    assert (device.memory_mib, device.context_overhead_mib) == (16384, 300)


def test_the_policy_has_defaults_for_what_it_does_not_say() -> None:
    name, record = project_policy(raw_policy(packing={"maxPercentSum": 120}))
    assert name == "default"
    assert (record.objective, record.max_percent_sum, record.round_seconds) == ("FIFO", 120, 360)


def test_whose_step_is_next_in_a_lane_is_read() -> None:
    def told(**sharing: object) -> IterationPolicy:
        return project_policy(raw_policy(sharing=sharing))[1].lane_policy

    assert told() is IterationPolicy.FAIR
    assert told(lanePolicy="PACK") is IterationPolicy.PACK
    for wild in ("Lottery", 3, ["FAIR"]):
        with pytest.raises(WireError, match="lanePolicy"):
            told(lanePolicy=wild)


def test_the_answer_to_unfair_use_of_volumes_is_read() -> None:
    def stated(**io: object) -> IoFairness:
        return project_policy(raw_policy(io=io))[1].io_fairness

    assert stated() is IoFairness.OBSERVE
    assert stated(fairness="Enforce") is IoFairness.ENFORCE
    for wild in ("Sometimes", 3, ["Enforce"]):
        with pytest.raises(WireError, match="fairness"):
            stated(fairness=wild)


def test_grants_of_trust_domains_are_read() -> None:
    granted = [
        {"name": "vision", "namespaces": ["a", "b"]},
        {"name": "all", "namespaces": ["*"]},
    ]
    record = project_policy(raw_policy(trustDomains=granted))[1]
    assert record.trust_domains == {"vision": frozenset({"a", "b"}), "all": frozenset({"*"})}
    imitated = raw_policy(trustDomains=[{"name": "namespace/a", "namespaces": ["b"]}])
    with pytest.raises(WireError, match="holds no slash"):
        project_policy(imitated)


def test_what_follows_from_faults_is_read() -> None:
    cleared = {"namespace": "a", "class": "c", "before": "2026-01-02T03:04:05Z"}
    said = {"isolationHours": 48, "cleared": [cleared]}
    terms = project_policy(raw_policy(faults=said))[1].faults
    assert terms == FaultTerms(isolation_hours=48, cleared={("a", "c"): 1_767_323_045.0})
    assert project_policy(raw_policy())[1].faults == FaultTerms(isolation_hours=24)
    for wrong, says in (
        ({"cleared": [cleared, cleared]}, "'a', 'c' is there twice"),
        ({"cleared": [{**cleared, "before": "soon"}]}, r"faults.cleared\[0\].before"),
        ({"isolationHours": 169}, "faults.isolationHours"),
    ):
        with pytest.raises(WireError, match=says):
            project_policy(raw_policy(faults=wrong))


def test_faults_of_devices_are_read_and_a_wild_one_harms_itself_only() -> None:
    true = {"id": "f", "gpu": "g", "xid": 31, "at": "2026-01-02T03:04:05Z"}
    wild: list[object] = [
        {**true, "id": 7},
        {**true, "id": "big", "xid": 2**40},
        {**true, "id": "text", "xid": "31"},
        {**true, "id": "late", "at": "soon"},
        {**true, "id": "odd", "suspects": [{"index": 0}]},
    ]
    raw = raw_gpu_node()
    raw["status"] = {**raw["status"], "faults": [*wild, true, true]}
    (read,) = project_gpu_node(raw, NOW, {}).faults
    assert (read.id, read.xid, read.at_s, read.suspects) == ("f", 31, 1_767_323_045.0, ())
    raw["status"]["faults"] = [{**true, "id": f"f{number}"} for number in range(1000)]
    assert len(project_gpu_node(raw, NOW, {}).faults) == MAX_FAULTS


def test_who_learns_from_whom_is_read() -> None:
    said = {"shareAmong": ["a", "b"], "trustDeclared": ["*"]}
    knowledge = project_policy(raw_policy(learning=said))[1].knowledge
    assert [knowledge.scope(one) for one in ("a", "b", "c")] == ["*", "*", "c"]
    assert knowledge.trusts("anywhere")
    nothing = project_policy(raw_policy())[1].knowledge
    assert nothing.scope("a") == "a"
    assert not nothing.trusts("a")


def test_parties_and_the_last_division_are_read_from_the_policy() -> None:
    raw = raw_policy(
        objective="MaxMinFairness",
        tenants=[{"name": "b", "weight": 2, "inner": "FIFO"}, {"name": "a"}],
    )
    solve = SolveRecord(
        time=1_700_000_000.0,
        result="Optimal",
        inputs_hash="in",
        fractions_hash="out",
        jobs=2,
        objective_value="0.5",
        prices=(("a100", "0.25"),),
    )
    _, record = project_policy(raw | {"status": {"lastSolve": solve_to_wire(solve)}})
    assert record.objective == "MaxMinFairness"
    assert record.tenants == (Tenant(name="a"), Tenant(name="b", weight=2, fifo=True))
    assert record.last_solve == solve


QUOTA = {"accelerator": "a100", "nominalQuota": 100}


def test_quota_is_read_with_its_cohort() -> None:
    said = {**QUOTA, "borrowingLimit": 0, "lendingLimit": 50}
    tenant = {"name": "a", "cohort": "c", "reclaimWithinCohort": "Any", "quota": [said]}
    (read,) = project_policy(raw_policy(tenants=[tenant]))[1].tenants
    assert read.quota == (
        Quota(accelerator="a100", nominal_quota=100, borrowing_limit=0, lending_limit=50),
    )
    assert (read.cohort, read.reclaim_within_cohort) == ("c", ReclaimWithinCohort.ANY)
    (plain,) = project_policy(raw_policy(tenants=[{"name": "a", "quota": [QUOTA]}]))[1].tenants
    assert plain.quota == (Quota(accelerator="a100", nominal_quota=100),)
    assert plain.reclaim_within_cohort is ReclaimWithinCohort.NEVER


@pytest.mark.parametrize(
    ("tenant", "said"),
    [
        ({"quota": [{"accelerator": "a100"}]}, "nominalQuota"),
        ({"quota": [{"nominalQuota": 1}]}, "accelerator"),
        ({"quota": [{**QUOTA, "nominalQuota": -1}]}, "nominalQuota"),
        ({"quota": [{**QUOTA, "nominalQuota": 10**9}]}, "nominalQuota"),
        ({"quota": [{**QUOTA, "nominalQuota": "1e9"}]}, "nominalQuota"),
        ({"quota": [{**QUOTA, "nominalQuota": True}]}, "nominalQuota"),
        ({"quota": [{**QUOTA, "accelerator": "A100 *"}]}, "no key of an accelerator"),
        ({"quota": [QUOTA, QUOTA]}, "'a100' is there twice"),
        ({"quota": [{**QUOTA, "accelerator": f"t{at}"} for at in range(33)]}, "at most 32"),
        ({"quota": {"accelerator": "a100"}}, "quota"),
        ({"quota": [{**QUOTA, "borrowingLimit": 1}]}, "name the cohort, or leave them out"),
        (
            {"quota": [{**QUOTA, "lendingLimit": 101}], "cohort": "c"},
            "lendingLimit is a part of nominalQuota: lower it",
        ),
        ({"reclaimWithinCohort": "Always"}, "is none of Never, LowerPriority, Any"),
        ({"cohort": 7}, "cohort"),
        ({"weight": 0}, "weight"),
        ({"weight": 10**9}, "weight"),
    ],
)
def test_a_wild_quota_never_binds(tenant: dict[str, object], said: str) -> None:
    with pytest.raises(WireError, match=said):
        project_policy(raw_policy(tenants=[{"name": "a", **tenant}]))


def test_a_division_that_is_no_number_is_refused_by_name() -> None:
    broken = {"time": "2026-01-05T10:00:00Z", "result": "Optimal", "inputsHash": "a"}
    broken |= {"fractionsHash": "b", "prices": {"a100": "much"}}
    with pytest.raises(WireError, match=r"status\.lastSolve\.prices\.a100"):
        project_policy(raw_policy() | {"status": {"lastSolve": broken}})
