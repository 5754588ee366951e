# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A right to patch is a right to all of an object: a policy leaves the operator its finalizer."""

from __future__ import annotations

from chart.rendered import Helm, Rendered
from ullage.cluster.values.lives import FINALIZER, KINDS_HELD
from ullage.handlers.kinds import KINDS

NAME = "ullage-operator-leaves-specs"


def test_every_kind_that_may_be_held_back_is_covered(rendered: Rendered) -> None:
    policy = rendered.one("ValidatingAdmissionPolicy", NAME)["spec"]
    assert policy["failurePolicy"] == "Fail"
    (rule,) = policy["matchConstraints"]["resourceRules"]
    assert set(rule["resources"]) == {kind.plural for kind in KINDS_HELD}
    assert set(KINDS) == set(KINDS_HELD)
    assert rule["operations"] == ["UPDATE"]
    (who,) = policy["matchConditions"]
    account = rendered.one("ServiceAccount", "ullage-operator")["metadata"]
    user = f"system:serviceaccount:{account['namespace']}:{account['name']}"
    assert f"'{user}'" in who["expression"]


def test_it_names_the_finalizer_of_the_code_and_leaves_annotations_alone(
    rendered: Rendered,
) -> None:
    policy = rendered.one("ValidatingAdmissionPolicy", NAME)["spec"]
    rules = [check["expression"] for check in policy["validations"]]
    assert "object.spec == oldObject.spec" in rules[0]
    assert rules[1].count("metadata.?annotations") == 2
    assert f"'{FINALIZER}'" in rules[2]
    binding = rendered.one("ValidatingAdmissionPolicyBinding", NAME)["spec"]
    assert binding == {"policyName": NAME, "validationActions": ["Deny"]}


def test_it_goes_with_the_other_policies(helm: Helm) -> None:
    plain = helm.values({"admissionPolicy": {"enabled": False}})
    names = {body["metadata"]["name"] for body in plain.all("ValidatingAdmissionPolicy")}
    assert NAME not in names
