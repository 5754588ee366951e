# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""No one gets more rights than the code uses, and the pages say what is granted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from chart.rendered import ROOT, Helm, Json, Rendered, rules_of
from docs.generate.crds import definition as crd
from docs.generate.pages import AGENT_RULES, HOOK_RULES
from docs.generate.rights import role_rules
from ullage.cluster.values.lives import KINDS_HELD
from ullage.kube.permissions import REQUIRED_VERBS, Scope

READ = {"get", "list", "watch"}
KINDS = {kind.info.plural for kind in crd.KINDS}
PEOPLE = "ullage-admin", "ullage-batch-user"


def _roles_of_people(rendered: Rendered) -> list[Json]:
    machines = {"ullage-operator", "ullage-node", "ullage-retire"}
    return [
        body for body in rendered.all("ClusterRole") if body["metadata"]["name"] not in machines
    ]


def test_the_operators_roles_are_the_table_of_its_client(rendered: Rendered) -> None:
    cluster = rendered.one("ClusterRole", "ullage-operator")
    own = rendered.one("Role", "ullage-operator")
    assert rules_of(cluster) == rules_of({"rules": role_rules(Scope.CLUSTER)})
    assert rules_of(own) == rules_of({"rules": role_rules(Scope.OWN_NAMESPACE)})


def test_every_verb_of_the_operator_is_granted_and_no_other(rendered: Rendered) -> None:
    granted = {
        (group, resource, verb)
        for kind in ("ClusterRole", "Role")
        for groups, resources, verbs in rules_of(rendered.one(kind, "ullage-operator"))
        for group in groups
        for resource in resources
        for verb in verbs
    }
    wanted = {(item.kind.group, item.resource, item.verb) for item in REQUIRED_VERBS}
    assert granted == wanted


@pytest.mark.parametrize("name", ["ullage-operator", "ullage-node", "ullage-retire"])
def test_each_service_account_holds_its_own_role_only(rendered: Rendered, name: str) -> None:
    rendered.one("ServiceAccount", name)
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "gpu-house"}
    bindings = rendered.all("ClusterRoleBinding") + rendered.all("RoleBinding")
    held = [body["roleRef"]["name"] for body in bindings if subject in body["subjects"]]
    assert set(held) == {name}
    assert all(len(body["subjects"]) == 1 for body in bindings)


def test_no_one_reads_secrets_or_has_a_wildcard(rendered: Rendered) -> None:
    for body in rendered.all("ClusterRole") + rendered.all("Role"):
        for groups, resources, verbs in rules_of(body):
            words = (*groups, *resources, *verbs)
            assert "*" not in words
            assert not {"impersonate", "bind", "escalate"} & set(words)
            if "secrets" in words:  # tokens of jobs in tiers: made, and never read back
                assert body["metadata"]["name"] == "ullage-operator"
                assert tuple(verbs) == ("create",)
            if "configmaps" in words:  # tables of prices, in the operator's own namespace
                assert (body["kind"], body["metadata"]["name"]) == ("Role", "ullage-operator")
                assert (tuple(resources), tuple(verbs)) == (("configmaps",), ("get",))


def test_the_agent_reads_and_writes_one_status(rendered: Rendered) -> None:
    rules = rules_of(rendered.one("ClusterRole", "ullage-node"))
    writes = {(resources, verbs) for _, resources, verbs in rules if set(verbs) - READ}
    assert writes == {(("gpunodes/status",), ("patch",)), (("events",), ("create", "patch"))}


def test_an_agent_speaks_of_its_own_node_only(rendered: Rendered) -> None:
    policy = rendered.one("ValidatingAdmissionPolicy", "ullage-node-speaks-for-itself")["spec"]
    assert policy["failurePolicy"] == "Fail"
    (rule,) = policy["matchConstraints"]["resourceRules"]
    assert rule["resources"] == ["gpunodes/status"]
    assert "UPDATE" in rule["operations"]
    (condition,) = policy["matchConditions"]
    assert "system:serviceaccount:gpu-house:ullage-node" in condition["expression"]
    binding = rendered.one("ValidatingAdmissionPolicyBinding", "ullage-node-speaks-for-itself")
    assert binding["spec"] == {
        "policyName": "ullage-node-speaks-for-itself",
        "validationActions": ["Deny"],
    }


def test_the_hook_takes_nodes_in_and_out_and_counts_who_waits(rendered: Rendered) -> None:
    rules = rules_of(rendered.one("ClusterRole", "ullage-retire"))
    assert rules == [
        (("",), ("pods",), ("list",)),
        (("ullage.dev",), ("gpunodes",), ("get", "list", "patch")),
        (("ullage.dev",), tuple(sorted(kind.plural for kind in KINDS_HELD)), ("list", "patch")),
    ]


def test_people_never_write_gpunodes_or_any_status(rendered: Rendered) -> None:
    roles = _roles_of_people(rendered)
    assert len(roles) == 2 * len(KINDS) - 1 + len(PEOPLE)
    for body in roles:
        for groups, resources, verbs in rules_of(body):
            assert groups == ("ullage.dev",)
            assert set(resources) <= KINDS | {"inferencedeployments/scale"}
            if "gpunodes" in resources:
                assert set(verbs) == READ


def test_everyone_who_views_sees_every_kind(rendered: Rendered) -> None:
    seen = _aggregated(rendered, "view")
    assert {resource for resource, _ in seen} == KINDS
    assert {verb for _, verb in seen} == READ


def test_everyone_who_edits_writes_workloads_and_not_the_house(rendered: Rendered) -> None:
    written = {resource for resource, verb in _aggregated(rendered, "edit") if verb == "create"}
    assert written == {
        "trainingjobs",
        "inferencedeployments",
        "tuningjobs",
        "profilerequests",
        "efficiencyreports",
        "workloadprofiles",
    }
    assert ("inferencedeployments/scale", "patch") in _aggregated(rendered, "edit")


def _aggregated(rendered: Rendered, role: str) -> set[tuple[str, str]]:
    label = f"rbac.authorization.k8s.io/aggregate-to-{role}"
    return {
        (resource, verb)
        for body in _roles_of_people(rendered)
        if body["metadata"]["labels"].get(label) == "true"
        for _, resources, verbs in rules_of(body)
        for resource in resources
        for verb in verbs
    }


def test_the_lease_has_a_flow_of_its_own(rendered: Rendered) -> None:
    spec = rendered.one("FlowSchema", "ullage-leader-election")["spec"]
    assert spec["priorityLevelConfiguration"] == {"name": "leader-election"}
    (rule,) = spec["rules"]
    (subject,) = rule["subjects"]
    account = {"name": "ullage-operator", "namespace": "gpu-house"}
    assert subject == {"kind": "ServiceAccount", "serviceAccount": account}
    (resources,) = rule["resourceRules"]
    leases = [item for item in REQUIRED_VERBS if item.kind.plural == "leases"]
    assert leases
    assert resources["resources"] == ["leases"]
    assert resources["namespaces"] == ["gpu-house"]
    assert set(resources["verbs"]) == {item.verb for item in leases}


def test_the_page_of_rights_says_what_is_granted(rendered: Rendered) -> None:
    page = (ROOT / "docs" / "reference" / "rbac.md").read_text(encoding="utf-8").splitlines()
    rows = {tuple(_names(cell) for cell in line.strip("|").split("|")) for line in page}
    for kind, name in (
        ("ClusterRole", "ullage-operator"),
        ("Role", "ullage-operator"),
        ("ClusterRole", "ullage-node"),
        ("ClusterRole", "ullage-retire"),
    ):
        for groups, resources, verbs in rules_of(rendered.one(kind, name)):
            named = frozenset(group or "core" for group in groups)
            assert (named, frozenset(resources), frozenset(verbs)) in rows


@pytest.mark.parametrize(
    ("name", "rules"), [("ullage-node", AGENT_RULES), ("ullage-retire", HOOK_RULES)]
)
def test_the_page_says_nothing_that_is_not_granted(
    rendered: Rendered, name: str, rules: Sequence[Json]
) -> None:
    """The operator's part is made from the table of its client, these two are written."""
    granted = rules_of(rendered.one("ClusterRole", name))
    assert sorted(granted) == sorted(rules_of({"rules": rules}))


def _names(cell: str) -> frozenset[str]:
    return frozenset(word.strip().strip("`") for word in cell.split(","))


def test_without_user_roles_only_machines_have_roles(helm: Helm) -> None:
    assert not _roles_of_people(helm.template("--set", "rbac.userRoles=false"))
