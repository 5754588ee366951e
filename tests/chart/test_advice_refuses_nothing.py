# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What is probably not meant is said at apply, and nothing is refused for it."""

from __future__ import annotations

from typing import Final

from chart.rendered import Helm, Rendered

ADVICE: Final = ("advice-jobs", "advice-controllers", "advice-cronjobs")


def test_advice_warns_and_never_refuses(rendered: Rendered) -> None:
    for name in ADVICE:
        policy = rendered.one("ValidatingAdmissionPolicy", f"ullage-{name}")
        assert policy["spec"]["failurePolicy"] == "Ignore"
        binding = rendered.one("ValidatingAdmissionPolicyBinding", f"ullage-{name}")
        assert binding["spec"] == {"policyName": f"ullage-{name}", "validationActions": ["Warn"]}


def test_each_advice_says_what_to_write(rendered: Rendered) -> None:
    told = [
        rule["message"]
        for name in ADVICE
        for rule in rendered.one("ValidatingAdmissionPolicy", f"ullage-{name}")["spec"][
            "validations"
        ]
    ]
    assert len(told) == 4
    assert "takes a whole device" in told[0]
    assert "spec.gpu.share.minPercent" in told[0]
    assert "write spec.gpu" in told[1]
    assert "spec.template.metadata.labels" in told[2]
    assert "spec.jobTemplate.spec.template.metadata.labels" in told[3]


def test_advice_can_be_left_out(helm: Helm) -> None:
    bodies = helm.template("--set", "admissionPolicy.advice.enabled=false")
    names = {one["metadata"]["name"] for one in bodies.all("ValidatingAdmissionPolicy")}
    assert not names & {f"ullage-{name}" for name in ADVICE}
