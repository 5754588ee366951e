# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The policies that let labelled pods share devices follow the API server and the values."""

from __future__ import annotations

import itertools

import pytest

from chart.rendered import ChartRefused, Helm, Json, Rendered
from chart.test_reserved_keys_are_the_operators import USER_KEYS, policies, variable
from ullage.api import labels
from ullage.api.adoption import KEYS

NAME = "ullage-adoption"
SERVED = "admissionregistration.k8s.io/{}/MutatingAdmissionPolicy"
SWITCHED_ON = ("--set", "admissionPolicy.adoption.enabled=true")


def adopting(helm: Helm, *versions: str, words: tuple[str, ...] = SWITCHED_ON) -> Rendered:
    """The chart for an API server that serves these versions of mutating policies."""
    served = [word for one in versions for word in ("--api-versions", SERVED.format(one))]
    return helm.template(*served, *words)


def mutations(policy: Json) -> str:
    return " ".join(one["jsonPatch"]["expression"] for one in policy["spec"]["mutations"])


@pytest.mark.parametrize(
    ("served", "used"),
    [
        (["v1alpha1"], "v1alpha1"),
        (["v1alpha1", "v1beta1"], "v1beta1"),
        (["v1beta1", "v1"], "v1"),
        (["v1"], "v1"),
    ],
)
def test_the_newest_version_that_is_served_is_used(
    helm: Helm, served: list[str], used: str
) -> None:
    rendered = adopting(helm, *served)
    for kind, name in (
        ("MutatingAdmissionPolicy", NAME),
        ("MutatingAdmissionPolicyBinding", f"{NAME}-share"),
        ("MutatingAdmissionPolicyBinding", f"{NAME}-devices"),
    ):
        assert rendered.one(kind, name)["apiVersion"] == f"admissionregistration.k8s.io/{used}"


def test_without_the_api_or_the_wish_nothing_is_adopted(helm: Helm) -> None:
    off = ("--set", "admissionPolicy.adoption.enabled=false")
    for rendered in (adopting(helm), adopting(helm, "v1", words=off)):
        assert not [one for one in rendered.objects if one["metadata"]["name"].startswith(NAME)]
        assert variable(policies(rendered)["pods"], "adopted") == "false"


@pytest.mark.parametrize("name", ["ullage-trainjobs", "ullage-runtimes"])
def test_a_train_job_of_a_process_a_cpu_is_warned_of_and_never_refused(
    helm: Helm, name: str
) -> None:
    rendered = adopting(helm, "v1")
    policy = rendered.one("ValidatingAdmissionPolicy", name)
    assert policy["spec"]["failurePolicy"] == "Ignore"
    said = policy["spec"]["validations"][0]["message"]
    assert "write spec.trainer.numProcPerNode: 1" in said
    binding = rendered.one("ValidatingAdmissionPolicyBinding", name)
    assert binding["spec"]["validationActions"] == ["Warn"]
    assert not [one for one in adopting(helm).objects if one["metadata"]["name"] == name]


@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1", "v1"])
def test_whoever_installs_is_shown_a_labelled_pod_where_labels_work(
    helm: Helm, version: str
) -> None:
    notes = helm.notes("--api-versions", SERVED.format(version))
    assert "--labels=ullage.dev/share=20" in notes
    assert "WARNING" not in notes


def test_whoever_installs_is_warned_where_labels_do_not_work_and_told_what_helps(
    helm: Helm,
) -> None:
    notes = helm.notes("--kube-version", "1.34.2")
    assert "WARNING: pods with the label ullage.dev/share run without a device" in notes
    assert "this is v1.34.2" in notes
    assert "--feature-gates=MutatingAdmissionPolicy=true" in notes
    assert "--runtime-config=admissionregistration.k8s.io/v1beta1=true" in notes
    off = helm.notes("--set", "admissionPolicy.adoption.enabled=false")
    assert "WARNING" not in off, "who switched it off is not warned"


def test_a_kubernetes_before_the_first_that_works_is_refused(helm: Helm) -> None:
    with pytest.raises(ChartRefused, match=r"requires kubeVersion: >=1\.33"):
        helm.template("--kube-version", "1.32.9")


def test_a_labelled_pod_gets_gate_slot_and_marks(helm: Helm) -> None:
    policy = adopting(helm, "v1").one("MutatingAdmissionPolicy", NAME)
    assert policy["spec"]["failurePolicy"] == "Fail"
    (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
    assert (rule["operations"], rule["resources"]) == (["CREATE"], ["pods"])
    said = mutations(policy)
    for word in (labels.GATE, labels.SLOT_RESOURCE, labels.LABEL_MANAGED):
        assert f"'{word}'" in said


def test_every_key_of_users_is_judged_in_pods_and_in_their_templates(helm: Helm) -> None:
    rendered = adopting(helm, "v1")
    for part in ("pods", "templates", "cronjobs"):
        policy = rendered.one("ValidatingAdmissionPolicy", f"{NAME}-{part}")["spec"]
        judged = {
            one["message"].split(":")[0].partition("ullage.dev/")[2]
            for one in policy["validations"]
            if "messageExpression" in one
        }
        assert judged == USER_KEYS - {"family"}
        assert policy["failurePolicy"] == "Fail"
        asked = ("-share", "-devices") if part == "pods" else ("",)
        for end in asked:
            binding = rendered.one("ValidatingAdmissionPolicyBinding", f"{NAME}-{part}{end}")
            assert binding["spec"]["validationActions"] == ["Deny"]


@pytest.mark.parametrize(
    ("kind", "part"),
    [("MutatingAdmissionPolicyBinding", ""), ("ValidatingAdmissionPolicyBinding", "-pods")],
)
@pytest.mark.parametrize("labels", list(itertools.product((False, True), repeat=2)))
def test_a_pod_is_judged_once_and_one_without_our_labels_by_no_expression(
    helm: Helm, kind: str, part: str, labels: tuple[bool, bool]
) -> None:
    rendered, keys = adopting(helm, "v1"), ("ullage.dev/share", "ullage.dev/devices")
    borne = {key for key, there in zip(keys, labels, strict=True) if there}
    chosen = 0
    for end in ("-share", "-devices"):
        binding = rendered.one(kind, f"{NAME}{part}{end}")["spec"]
        selector = binding["matchResources"]["objectSelector"]["matchExpressions"]
        chosen += all((one["operator"] == "Exists") == (one["key"] in borne) for one in selector)
    assert chosen == (1 if borne else 0)


def test_only_what_the_mutation_wrote_is_let_through(helm: Helm) -> None:
    found = policies(adopting(helm, "v1"))
    assert variable(found["pods"], "adopted").startswith("oldObject == null && ")
    assert {variable(policy, "adopted") for name, policy in found.items() if name != "pods"} == {
        "false"
    }
    written = variable(found["pods"], "labelsWritten")
    assert "k == 'ullage.dev/kind' && variables.labelsNow[k] == 'Pod'" in written


@pytest.mark.parametrize("wrong", [{"enable": True}, {"enabled": "yes"}])
def test_wrong_values_are_refused(helm: Helm, wrong: Json) -> None:
    with pytest.raises(ChartRefused):
        helm.values({"admissionPolicy": {"adoption": wrong}})


def test_remedies_are_those_that_the_operator_gives(helm: Helm) -> None:
    policy = adopting(helm, "v1").one("ValidatingAdmissionPolicy", f"{NAME}-pods")["spec"]
    told = {one["message"] for one in policy["validations"] if "messageExpression" in one}
    for key, meaning in KEYS.items():
        place = "label" if meaning.is_label else "annotation"
        assert f"{place} {key.key}: {meaning.remedy}" in told
