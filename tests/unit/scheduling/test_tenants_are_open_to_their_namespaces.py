# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A tenant that the administrator bound to namespaces is no one else's to name."""

from __future__ import annotations

import pytest

from builders import (
    WorkloadBuilder,
    a_device,
    a_gpu_node,
    a_job,
    a_policy,
    a_slice,
    an_adopted,
    reported,
)
from fakes.deciding import decided
from fakes.toy_rounds import FAST, Turns, a_turn_policy, rates
from ullage.api.reasons import Reason
from ullage.api.schedulingpolicy import Tenant
from ullage.api.slices import SlicePhase
from ullage.cluster.projection.policy import project_policy
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.policy import PolicyRecord
from ullage.scheduling.model.plan import CreatePod, DeletePod, EvictPod


def bound(*namespaces: str) -> PolicyRecord:
    """Tenants of which one, research, is open to some namespaces."""
    named = (("archive", ()), ("research", namespaces), ("web", ("front",)))
    tenants = tuple(Tenant(name=name, namespaces=frozenset(open_to)) for name, open_to in named)
    return a_policy(tenants=tenants)


def job(namespace: str, tenant: str = "research", name: str = "train") -> WorkloadBuilder:
    return a_job(name, namespace).with_(tenant=tenant)


@pytest.mark.parametrize(
    ("policy", "tenant"),
    [
        (bound("team-a"), "research"),
        (bound("team-b", "team-a"), "research"),
        (bound("*"), "research"),
        (bound(), "research"),
        (bound("team-b"), "archive"),
        (bound("team-b"), "unheard-of"),
        (bound("team-b"), ""),
    ],
)
def test_a_tenant_is_open_to_whom_it_lists_or_to_all(policy: PolicyRecord, tenant: str) -> None:
    newcomer = job("team-a", tenant)
    found = decided(a_gpu_node(), policy, newcomer, *newcomer.pods())
    assert found.decision(newcomer).reason is Reason.PLACED


@pytest.mark.parametrize("policy", [bound("team-b"), bound("team"), bound("team-a-2")])
def test_another_namespace_is_refused_and_told_whom_to_ask(policy: PolicyRecord) -> None:
    newcomer = job("team-a")
    decision = decided(a_gpu_node(), policy, newcomer).decision(newcomer)
    assert decision.reason is Reason.TENANT_NOT_ALLOWED
    assert "tenant research is not open to namespace team-a" in decision.message
    assert "ask your administrator" in decision.message
    waiting = decided(a_gpu_node(), policy, newcomer, *newcomer.pods())
    assert waiting.decision(newcomer).reason is Reason.TENANT_NOT_ALLOWED
    assert not waiting.slices()
    assert not decided(a_gpu_node(), policy, newcomer).all(CreatePod)


def test_pods_of_other_controllers_are_held_to_it_too() -> None:
    pods = an_adopted("web", "team-a").with_(tenant="research")
    found = decided(a_gpu_node(), bound("team-b"), pods, *pods.pods())
    assert found.decision(pods).reason is Reason.TENANT_NOT_ALLOWED
    assert not found.slices()


def test_who_may_not_name_a_tenant_takes_no_part_of_its_time() -> None:
    closed = Tenant(name="research", namespaces=frozenset({"elsewhere"}))
    turns = Turns.of({"n1": FAST}, rates("a", 4, 1), policy=a_turn_policy(tenants=(closed,)))
    owner = a_job("owner").checkpointed().with_(workload_class="a")
    turns.add(owner, a_job("intruder").checkpointed().with_(workload_class="a", tenant="research"))
    turns.settle()
    assert turns.fraction("owner") == {FAST: 1.0}
    assert turns.job("intruder").status.allocation is None
    decision = turns.job("intruder").status.decision
    assert decision is not None
    assert decision.reason is Reason.TENANT_NOT_ALLOWED


def test_what_runs_stays_when_its_namespace_is_taken_off_the_list() -> None:
    there = job("team-a").status(phase="Running")
    (pod,) = there.pods(stage=PodStage.RUNNING, node="node-1")
    held = a_slice(pod, percent=100)
    node = a_gpu_node(
        devices=[a_device()], desired=[held], observed=[reported(held, SlicePhase.ATTACHED)]
    )
    found = decided(node, bound("team-b"), there, pod)
    assert found.status(there).phase == "Running"
    assert not found.all(EvictPod)
    assert not found.all(DeletePod)


def test_names_of_namespaces_are_read_as_they_are_for_trust_domains() -> None:
    raw = {
        "metadata": {"name": "default", "uid": "u"},
        "spec": {"tenants": [{"name": "research", "namespaces": ["team-a", "*"]}]},
    }
    (tenant,) = project_policy(raw)[1].tenants
    assert tenant.namespaces == {"team-a", "*"}
