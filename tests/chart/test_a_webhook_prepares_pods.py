# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Where the API server serves no mutating policy a webhook of ours does the same."""

from __future__ import annotations

import base64

import pytest

from admitted_pods import CASES
from chart.rendered import NAMESPACE, ChartRefused, Helm, Json, Rendered, annotations
from chart.test_labels_adopt_pods import NAME, adopting
from chart.test_pods_hold_no_more_than_they_need import restricted_faults
from chart.test_reserved_keys_are_the_operators import policies, variable
from chart.variants import AUTHORITY, SERVED, VARIANTS
from ullage.webhook.main import CERTIFICATES, PORT
from ullage.webhook.server import PATH

CERT_MANAGER = VARIANTS["webhook"]
BY_SECRET = VARIANTS["webhook-with-a-secret"]
WEBHOOK = "ullage-webhook"
MODE = "admissionPolicy.adoption.mode"


@pytest.fixture(scope="module")
def webhook(helm: Helm) -> Rendered:
    return helm.template(*CERT_MANAGER)


def configured(rendered: Rendered) -> list[Json]:
    found: list[Json] = rendered.one("MutatingWebhookConfiguration", NAME)["webhooks"]
    return found


def prepared_by(rendered: Rendered) -> set[str]:
    kinds = {"MutatingAdmissionPolicy", "MutatingWebhookConfiguration"}
    return {body["kind"] for body in rendered.objects} & kinds


@pytest.mark.parametrize(
    ("words", "by"),
    [
        (SERVED, {"MutatingAdmissionPolicy"}),
        ((*SERVED, *BY_SECRET), {"MutatingAdmissionPolicy"}),
        (BY_SECRET, {"MutatingWebhookConfiguration"}),
        ((*SERVED, *CERT_MANAGER), {"MutatingWebhookConfiguration"}),
        ((), set()),
        ((*BY_SECRET, "--set", f"{MODE}=Policy"), set()),
        ((*SERVED, "--set", f"{MODE}=Policy"), {"MutatingAdmissionPolicy"}),
        ((*CERT_MANAGER, "--set", "admissionPolicy.adoption.enabled=false"), set()),
    ],
)
def test_one_thing_prepares_pods_or_none(helm: Helm, words: tuple[str, ...], by: set[str]) -> None:
    rendered = helm.template(*words)
    assert prepared_by(rendered) == by
    asked = variable(policies(rendered)["pods"], "adopted")
    assert (asked != "false") == bool(by)
    checks = [one for one in rendered.all("ValidatingAdmissionPolicy") if NAME in str(one)]
    assert bool(checks) == bool(by), "values are judged in either way"
    has_pods = [one for one in rendered.objects if one["metadata"]["name"] == WEBHOOK]
    assert bool(has_pods) == (by == {"MutatingWebhookConfiguration"})


def test_a_webhook_without_a_certificate_is_refused(helm: Helm) -> None:
    for words in ((), ("--set", "admissionPolicy.adoption.webhook.tlsSecret=tls")):
        with pytest.raises(ChartRefused, match=r"certManager\.enabled"):
            helm.template("--set", f"{MODE}=Webhook", *words)


def test_the_same_values_are_judged_by_the_same_policies(helm: Helm, webhook: Rendered) -> None:
    served = adopting(helm, "v1")
    assert webhook.all("ValidatingAdmissionPolicy") == served.all("ValidatingAdmissionPolicy")


def test_only_pods_with_our_labels_are_sent(webhook: Rendered) -> None:
    for one in configured(webhook):
        assert one["rules"] == [
            {
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["pods"], "scope": "Namespaced",
            }
        ]  # fmt: skip
    for case in CASES.values():
        labels = case.pod["metadata"]["labels"]
        sent = [one for one in configured(webhook) if selects(one["objectSelector"], labels)]
        assert len(sent) == (case.after.annotations.get("ullage.dev/adopted") == "1")
    both = {"ullage.dev/share": "1", "ullage.dev/devices": "1"}
    assert sum(selects(one["objectSelector"], both) for one in configured(webhook)) == 1


def selects(selector: Json, labels: Json) -> bool:
    """Whether a label selector of the API takes these labels."""
    assert selector.keys() == {"matchExpressions"}
    wanted = {"Exists": True, "DoesNotExist": False}
    return all(
        (one["key"] in labels) == wanted[one["operator"]] for one in selector["matchExpressions"]
    )


def test_a_webhook_that_is_down_blocks_no_pod(webhook: Rendered) -> None:
    for one in configured(webhook):
        assert one["failurePolicy"] == "Ignore"
        assert one["timeoutSeconds"] == 5
        assert (one["sideEffects"], one["matchPolicy"]) == ("None", "Equivalent")
        assert one["reinvocationPolicy"] == "IfNeeded"
        (expression,) = one["namespaceSelector"]["matchExpressions"]
        assert expression == {
            "key": "kubernetes.io/metadata.name",
            "operator": "NotIn",
            "values": ["kube-system", NAMESPACE],
        }


def test_the_api_server_finds_the_pods_and_trusts_their_certificate(webhook: Rendered) -> None:
    service = webhook.one("Service", WEBHOOK)
    pod = webhook.one("Deployment", WEBHOOK)["spec"]["template"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    (port,) = service["spec"]["ports"]
    container = webhook.container("Deployment", WEBHOOK)
    assert container["ports"] == [{"name": port["targetPort"], "containerPort": PORT}]
    for one in configured(webhook):
        assert one["clientConfig"]["service"] == {
            "name": WEBHOOK, "namespace": NAMESPACE, "path": PATH, "port": port["port"],
        }  # fmt: skip
    certificate = webhook.one("Certificate", WEBHOOK)
    assert certificate["spec"]["dnsNames"] == [f"{WEBHOOK}.{NAMESPACE}.svc"]
    injected = annotations(webhook.one("MutatingWebhookConfiguration", NAME))
    assert injected == {"cert-manager.io/inject-ca-from": f"{NAMESPACE}/{WEBHOOK}"}
    webhook.one("Issuer", certificate["spec"]["issuerRef"]["name"])
    (volume,) = pod["spec"]["volumes"]
    assert volume["secret"]["secretName"] == certificate["spec"]["secretName"]
    (mount,) = container["volumeMounts"]
    assert (mount["name"], mount["mountPath"]) == (volume["name"], CERTIFICATES)
    (rule,) = webhook.one("NetworkPolicy", "ullage")["spec"]["ingress"]
    assert {"port": PORT, "protocol": "TCP"} in rule["ports"]


def test_an_authority_of_the_values_reaches_the_api_server(helm: Helm) -> None:
    rendered = helm.template(*BY_SECRET)
    for one in configured(rendered):
        assert base64.b64decode(one["clientConfig"]["caBundle"]).decode() == AUTHORITY
    assert not rendered.all("Certificate")
    assert not annotations(rendered.one("MutatingWebhookConfiguration", NAME))


@pytest.mark.parametrize("wrong", ["no certificate", AUTHORITY.replace("BEGIN", "BEGINS")])
def test_an_authority_that_is_none_is_refused(helm: Helm, wrong: str) -> None:
    with pytest.raises(ChartRefused, match="caBundle"):
        helm.template(*BY_SECRET, "--set", f"admissionPolicy.adoption.webhook.caBundle={wrong}")


def test_its_pods_have_no_right_and_no_power(webhook: Rendered) -> None:
    pod = webhook.one("Deployment", WEBHOOK)["spec"]["template"]["spec"]
    assert list(restricted_faults(pod)) == []
    assert pod["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in pod
    assert pod["enableServiceLinks"] is False
    resources = webhook.container("Deployment", WEBHOOK)["resources"]
    assert {"cpu", "memory"} <= resources["requests"].keys()
    assert resources["limits"].keys() == {"memory"}


def test_one_of_its_pods_stays_whatever_is_done(webhook: Rendered) -> None:
    deployment = webhook.one("Deployment", WEBHOOK)["spec"]
    assert deployment["replicas"] == 2
    assert deployment["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    budget = webhook.one("PodDisruptionBudget", WEBHOOK)["spec"]
    assert budget["maxUnavailable"] == 1
    assert (
        budget["selector"]["matchLabels"].items()
        <= deployment["template"]["metadata"]["labels"].items()
    )
    operator = webhook.one("Deployment", "ullage-operator")["spec"]["selector"]["matchLabels"]
    assert not operator.items() <= deployment["template"]["metadata"]["labels"].items()


def test_whoever_installs_is_told_to_wait_for_it(helm: Helm) -> None:
    notes = helm.notes(*CERT_MANAGER)
    assert "wait until deployment/ullage-webhook is available" in notes
    assert "WARNING" not in notes
    assert "--labels=ullage.dev/share=20" in notes
    assert "webhook.certManager.enabled=true" in helm.notes("--kube-version", "1.34.2")


def test_another_name_reaches_everything_of_it(helm: Helm) -> None:
    rendered = helm.template(*CERT_MANAGER, "--set", "fullnameOverride=gpu")
    (certificate,) = rendered.all("Certificate")
    assert certificate["spec"]["dnsNames"] == [f"gpu-webhook.{NAMESPACE}.svc"]
    (configuration,) = rendered.all("MutatingWebhookConfiguration")
    assert configuration["metadata"]["name"] == "gpu-adoption"
    assert {one["clientConfig"]["service"]["name"] for one in configuration["webhooks"]} == {
        "gpu-webhook"
    }
