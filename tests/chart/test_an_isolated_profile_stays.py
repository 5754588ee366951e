# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whose class is isolated neither deletes its profile nor gives it to another class."""

from __future__ import annotations

from chart.rendered import Helm, Rendered

NAME = "ullage-isolated-profiles-stay"


def test_only_who_may_clear_a_class_takes_its_profile_away(rendered: Rendered) -> None:
    policy = rendered.one("ValidatingAdmissionPolicy", NAME)["spec"]
    assert policy["failurePolicy"] == "Fail"
    (rule,) = policy["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["workloadprofiles"], ["UPDATE", "DELETE"])
    isolated, people = (one["expression"] for one in policy["matchConditions"])
    assert "c.type == 'Isolated'" in isolated
    assert "system:serviceaccount:kube-system:" in people  # namespaces can be deleted
    (check,) = policy["validations"]
    assert "object.spec.class == oldObject.spec.class" in check["expression"]
    assert "resource('schedulingpolicies').check('update').allowed()" in check["expression"]
    binding = rendered.one("ValidatingAdmissionPolicyBinding", NAME)["spec"]
    assert binding == {"policyName": NAME, "validationActions": ["Deny"]}


def test_it_goes_with_the_other_policies(helm: Helm) -> None:
    plain = helm.values({"admissionPolicy": {"enabled": False}})
    names = {one["metadata"]["name"] for one in plain.all("ValidatingAdmissionPolicy")}
    assert NAME not in names
