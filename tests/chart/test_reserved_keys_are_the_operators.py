# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Admission policies keep the operator's keys for the operator, and can be widened and narrowed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chart.rendered import ChartRefused, Helm, Json, Rendered
from ullage.api import labels

OPERATOR = "system:serviceaccount:gpu-house:ullage-operator"
REPLICAS = "system:serviceaccount:kube-system:replicaset-controller"
DEPLOYMENTS = "system:serviceaccount:kube-system:deployment-controller"
RESERVED = "ullage-reserved-keys-"
USER_KEYS = {
    "class", "family", "share", "devices", "gang", "gang-size", "max-slowdown", "latency-ms",
    "percentile", "metric", "memory", "lane", "lane-switching", "accelerators", "tenant",
    "trust-domain", "profile", "checkpoint", "container", "inject",
    "stragglers",
}  # fmt: skip
"""What people set on pods: labels of a class of work, and the keys that adopt existing pods."""


def policies(rendered: Rendered) -> dict[str, Json]:
    return {
        body["metadata"]["name"].removeprefix(RESERVED): body["spec"]
        for body in rendered.all("ValidatingAdmissionPolicy")
        if body["metadata"]["name"].startswith(RESERVED)
    }


def condition(policy: Json, name: str) -> str:
    (found,) = (one["expression"] for one in policy["matchConditions"] if one["name"] == name)
    return str(found)


def exempt(policy: Json) -> list[str]:
    """Users of the condition."""
    found = condition(policy, "is-not-exempt").partition("username in ")[2].partition(")")[0]
    users: list[str] = json.loads(found)
    return users


def variable(policy: Json, name: str) -> str:
    (found,) = (one["expression"] for one in policy["variables"] if one["name"] == name)
    return str(found)


def test_only_the_operator_and_the_controllers_of_its_deployments_are_exempt(
    rendered: Rendered,
) -> None:
    found = policies(rendered)
    assert {name: exempt(policy) for name, policy in found.items()} == {
        "pods": [OPERATOR, REPLICAS],
        "replicasets": [OPERATOR, DEPLOYMENTS, REPLICAS],
        "templates": [OPERATOR],
        "cronjobs": [OPERATOR],
    }


def test_every_kind_that_kubernetes_makes_pods_from_is_judged(rendered: Rendered) -> None:
    rules = [
        rule
        for policy in policies(rendered).values()
        for rule in policy["matchConstraints"]["resourceRules"]
    ]
    assert all(rule["operations"] == ["CREATE", "UPDATE"] for rule in rules)
    assert {(rule["apiGroups"][0], kind) for rule in rules for kind in rule["resources"]} == {
        ("", "pods"),
        ("", "replicationcontrollers"),
        ("apps", "daemonsets"),
        ("apps", "deployments"),
        ("apps", "replicasets"),
        ("apps", "statefulsets"),
        ("batch", "jobs"),
        ("batch", "cronjobs"),
    }


def test_a_policy_denies_and_fails_closed(rendered: Rendered) -> None:
    for name, policy in policies(rendered).items():
        assert policy["failurePolicy"] == "Fail"
        binding = rendered.one("ValidatingAdmissionPolicyBinding", RESERVED + name)
        assert binding["spec"] == {"policyName": RESERVED + name, "validationActions": ["Deny"]}
        assert len(policy["validations"]) == 3
        assert labels.SLOT_RESOURCE in variable(policy, "limitsNow")


def test_every_key_of_the_contract_is_reserved_but_those_of_users(rendered: Rendered) -> None:
    keys = {
        value.removeprefix("ullage.dev/")
        for name, value in vars(labels).items()
        if name.startswith(("LABEL_", "ANNOTATION_")) and value.startswith("ullage.dev/")
    }
    for policy in policies(rendered).values():
        stated = variable(policy, "open").removeprefix("oldObject != null ? [] : ")
        opened = {one.removeprefix("ullage.dev/") for one in json.loads(stated)}
        assert opened == USER_KEYS
        assert keys & opened == {"class", "family"}


def test_the_keys_of_users_are_theirs_in_templates_and_new_pods_alone(rendered: Rendered) -> None:
    conditional = {
        name: variable(policy, "open").startswith("oldObject != null ? [] : ")
        for name, policy in policies(rendered).items()
    }
    assert conditional == {
        "pods": True,
        "replicasets": False,
        "templates": False,
        "cronjobs": False,
    }


def test_further_users_and_groups_are_exempt_everywhere(helm: Helm) -> None:
    values = {"extraUsers": ["alice"], "extraGroups": ["system:masters"]}
    for policy in policies(helm.values({"admissionPolicy": values})).values():
        assert "alice" in exempt(policy)
        assert 'exists(g, g in ["system:masters"])' in condition(policy, "is-not-exempt")


def test_what_bears_nothing_of_ours_is_not_judged(rendered: Rendered) -> None:
    for policy in policies(rendered).values():
        bears = condition(policy, "bears-what-is-ours")
        for word in ("object", "oldObject", "labels", "annotations", "containers",
                     "initContainers", "limits", "requests", labels.SLOT_RESOURCE):  # fmt: skip
            assert word in bears


def test_without_the_policy_nothing_of_it_is_left(helm: Helm) -> None:
    assert not policies(helm.template("--set", "admissionPolicy.enabled=false"))


def test_templates_are_narrowed_only_where_it_is_asked_for(helm: Helm, rendered: Rendered) -> None:
    names = {body["metadata"]["name"] for body in rendered.all("ValidatingAdmissionPolicy")}
    assert "ullage-templates" not in names
    templates: dict[str, Any] = {
        "enabled": True,
        "serviceAccounts": ["default", "trainer"],
        "namespaceSelector": {"matchLabels": {"gpu": "shared"}},
    }
    found = helm.values({"admissionPolicy": {"templates": templates}})
    policy = found.one("ValidatingAdmissionPolicy", "ullage-templates")["spec"]
    assert '["default","trainer",""]' in policy["validations"][0]["expression"]
    assert len(policy["validations"]) == 4
    binding = found.one("ValidatingAdmissionPolicyBinding", "ullage-templates")["spec"]
    assert binding["matchResources"]["namespaceSelector"] == templates["namespaceSelector"]
    templates |= {"serviceAccounts": [], "forbidHostAccess": True}
    found = helm.values({"admissionPolicy": {"templates": templates}})
    policy = found.one("ValidatingAdmissionPolicy", "ullage-templates")["spec"]
    assert len(policy["validations"]) == 3


@pytest.mark.parametrize(
    "wrong", [{"enable": True}, {"extraUsers": "alice"}, {"templates": {"serviceAccounts": [""]}}]
)
def test_wrong_values_of_the_policy_are_refused(helm: Helm, wrong: Json) -> None:
    with pytest.raises(ChartRefused):
        helm.values({"admissionPolicy": wrong})
