# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The two autoscalers in small buy for the pods that the real ones buy for.

``tests/neighbours/test_karpenter_buys_by_its_rules.py`` asks the real Karpenter about the same.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.autoscaler_cases import CASES, Case
from fakes.cluster_autoscaler_rules import DELAY, HOSTNAME, TEMPLATE, ClusterAutoscaler
from fakes.karpenter_rules import Karpenter
from fakes.provisioner import Autoscaler, Json, machine, unschedulable
from ullage.api.labels import ANNOTATION_SAFE_TO_EVICT, GATE, LABEL_REGISTERED

PLAIN = CASES[0]
LABELS = PLAIN.labels
FRESH = machine("fresh", LABELS)


def buys(rules: Autoscaler, pod: Json, *nodes: Json) -> bool:
    return not rules.refusal(pod) and rules.fits(pod, FRESH, nodes)


def pod_of(name: str) -> Json:
    """A pod of a case that asks for the pool of the first one."""
    case = replace(next(one for one in CASES if one.name == name), name=PLAIN.name)
    return unschedulable(case.pod("team"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_node_of_an_empty_pool_is_bought(case: Case) -> None:
    pod, fresh = unschedulable(case.pod("team")), machine("fresh", case.labels)
    for rules, bought in (
        (Karpenter(), case.karpenter),
        (ClusterAutoscaler(), case.cluster_autoscaler),
    ):
        assert (not rules.refusal(pod) and rules.fits(pod, fresh, ())) is bought


@pytest.mark.parametrize(
    ("marks_templates", "name", "bought"),
    [
        (True, "request", False),
        (True, "request-of-either", True),
        (False, "request-of-either", False),
        (False, "host-name", True),
    ],
)
def test_cluster_autoscaler_copies_the_labels_of_a_node_that_is_there(
    marks_templates: bool, name: str, bought: bool
) -> None:
    rules = ClusterAutoscaler(marks_templates=marks_templates)
    there = machine("node-1", {**LABELS, LABEL_REGISTERED: "true"})
    labels = rules.template(FRESH, [there])["metadata"]["labels"]
    assert labels[LABEL_REGISTERED] == "true"
    assert labels[HOSTNAME] != "node-1"
    assert (TEMPLATE in labels) is marks_templates
    assert buys(rules, pod_of(name), there) is bought


def test_an_unready_node_is_no_example_for_the_next() -> None:
    there = machine("node-1", {**LABELS, LABEL_REGISTERED: "true"}, ready=False)
    assert buys(ClusterAutoscaler(), pod_of("request"), there)


def test_a_node_with_the_clouds_gpu_label_that_offers_none_is_never_ready() -> None:
    label = "k8s.amazonaws.com/accelerator"
    node = machine("node-1", {**LABELS, label: "nvidia-a100"})
    assert not ClusterAutoscaler(gpu_label=label).is_ready(node)
    assert ClusterAutoscaler(gpu_label=label).is_ready(machine("node-2", LABELS))


@pytest.mark.parametrize("rules", [Karpenter(), ClusterAutoscaler()])
def test_what_a_gate_holds_and_what_no_scheduler_saw_buys_nothing(rules: Autoscaler) -> None:
    pod = pod_of("plain")
    assert buys(rules, pod)
    assert not buys(rules, {**pod, "status": {}})
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    spec = {**pod["spec"], "schedulingGates": [{"name": GATE}]}
    assert not buys(rules, {**pod, "spec": spec, "status": {"conditions": [gated]}})


@pytest.mark.parametrize("rules", [Karpenter(), ClusterAutoscaler()])
def test_a_pod_that_does_not_tolerate_the_pools_taint_buys_nothing(rules: Autoscaler) -> None:
    taint = {"key": "gpu", "value": "true", "effect": "NoSchedule"}
    tainted = {**FRESH, "spec": {"taints": [taint]}}
    pod = pod_of("plain")
    assert not rules.fits(pod, tainted, ())
    tolerations = [{"key": "gpu", "operator": "Exists"}]
    assert rules.fits({**pod, "spec": {**pod["spec"], "tolerations": tolerations}}, tainted, ())


def test_an_expendable_or_young_pod_adds_no_node() -> None:
    pod, rules = pod_of("plain"), ClusterAutoscaler(new_pod_scale_up_delay_s=30)
    assert "cutoff" in rules.refusal({**pod, "spec": {**pod["spec"], "priority": -11}})
    assert rules.refusal({**pod, "spec": {**pod["spec"], "priority": -10}}) == ""
    assert "young" in rules.refusal(pod, age_s=20)
    late = {**pod, "metadata": {**pod["metadata"], "annotations": {DELAY: "10m"}}}
    assert "young" in rules.refusal(late, age_s=500)
    assert rules.refusal(late, age_s=601) == ""


def test_a_pod_that_is_not_safe_to_evict_keeps_its_node() -> None:
    pod, rules = pod_of("plain"), ClusterAutoscaler()
    held = {
        **pod,
        "metadata": {**pod["metadata"], "annotations": {ANNOTATION_SAFE_TO_EVICT: "false"}},
    }
    assert rules.may_remove([pod])
    assert not rules.may_remove([pod, held])
