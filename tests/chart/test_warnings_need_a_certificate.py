# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The API server asks for warnings where there is a certificate, and waits for none."""

from __future__ import annotations

import base64

import pytest

from cel import holds
from chart.rendered import NAMESPACE, ChartRefused, Helm, Json, Rendered, annotations
from chart.variants import AUTHORITY, VARIANTS
from ullage.app.settings import HttpSettings
from ullage.handlers.admission import PATH
from ullage.scheduling.status.advice import ADVISED

NAME = "ullage-admission"
OPERATOR = "ullage-operator"
PORT = 9443


@pytest.fixture(scope="module")
def warning(helm: Helm) -> Rendered:
    return helm.template(*VARIANTS["warnings"])


def asked(rendered: Rendered) -> Json:
    (webhook,) = rendered.one("ValidatingWebhookConfiguration", NAME)["webhooks"]
    found: Json = webhook
    return found


def test_without_a_certificate_no_one_is_asked(rendered: Rendered) -> None:
    assert not rendered.all("ValidatingWebhookConfiguration")
    assert "admission" not in str(rendered.one("Deployment", OPERATOR))
    (rule,) = rendered.one("NetworkPolicy", "ullage")["spec"]["ingress"]
    assert PORT not in [port["port"] for port in rule["ports"]]


@pytest.mark.parametrize("word", ["tlsSecret=tls", f"caBundle={AUTHORITY}"])
def test_half_a_certificate_is_refused(helm: Helm, word: str) -> None:
    with pytest.raises(ChartRefused, match=r"admission\.(tlsSecret|caBundle): "):
        helm.template("--set", f"admission.{word}")


def test_no_object_waits_for_it_or_is_refused(warning: Rendered) -> None:
    webhook = asked(warning)
    assert webhook["failurePolicy"] == "Ignore"
    assert webhook["timeoutSeconds"] <= 2
    assert (webhook["sideEffects"], webhook["matchPolicy"]) == ("None", "Equivalent")


def test_it_is_asked_about_specs_of_our_kinds_alone(warning: Rendered) -> None:
    webhook = asked(warning)
    assert webhook["rules"] == [
        {
            "apiGroups": [ADVISED[0].group], "apiVersions": [ADVISED[0].version],
            "operations": ["CREATE", "UPDATE"],
            "resources": [kind.plural for kind in ADVISED],
        }
    ]  # fmt: skip
    user = {"userInfo": {"username": "jane"}}
    operator = {"userInfo": {"username": f"system:serviceaccount:{NAMESPACE}:{OPERATOR}"}}
    one, other = {"spec": {"replicas": 1}}, {"spec": {"replicas": 2}}

    def is_asked(new: Json, old: Json | None, by: Json) -> bool:
        return all(
            holds(condition["expression"], None, object=new, oldObject=old, request=by)
            for condition in webhook["matchConditions"]
        )

    assert is_asked(one, None, user)
    assert is_asked(other, one, user)
    assert not is_asked({**one, "metadata": {}}, one, user)
    assert not is_asked(one, None, operator)


def test_the_api_server_finds_each_replica_and_trusts_its_certificate(warning: Rendered) -> None:
    service = warning.one("Service", NAME)
    deployment = warning.one("Deployment", OPERATOR)
    pod = deployment["spec"]["template"]
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
    (port,) = service["spec"]["ports"]
    container = warning.container("Deployment", OPERATOR)
    assert {"name": port["targetPort"], "containerPort": PORT} in container["ports"]
    assert {"name": "ULLAGE_HTTP_ADMISSION_PORT", "value": str(PORT)} in container["env"]
    assert asked(warning)["clientConfig"]["service"] == {
        "name": NAME, "namespace": NAMESPACE, "path": PATH, "port": port["port"],
    }  # fmt: skip
    certificate = warning.one("Certificate", NAME)["spec"]
    assert certificate["dnsNames"] == [f"{NAME}.{NAMESPACE}.svc"]
    warning.one("Issuer", certificate["issuerRef"]["name"])
    injected = annotations(warning.one("ValidatingWebhookConfiguration", NAME))
    assert injected == {"cert-manager.io/inject-ca-from": f"{NAMESPACE}/{NAME}"}
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    secret = volumes[mounts[HttpSettings().admission_dir]]["secret"]
    assert secret["secretName"] == certificate["secretName"]
    assert secret["optional"], "the operator works without it"
    (rule,) = warning.one("NetworkPolicy", "ullage")["spec"]["ingress"]
    assert {"port": PORT, "protocol": "TCP"} in rule["ports"]


def test_an_authority_of_the_values_reaches_the_api_server(helm: Helm) -> None:
    rendered = helm.template(*VARIANTS["warnings-with-a-secret"])
    assert base64.b64decode(asked(rendered)["clientConfig"]["caBundle"]).decode() == AUTHORITY
    assert not rendered.all("Certificate")
    assert not annotations(rendered.one("ValidatingWebhookConfiguration", NAME))
    volumes = rendered.one("Deployment", OPERATOR)["spec"]["template"]["spec"]["volumes"]
    assert "tls" in [volume.get("secret", {}).get("secretName") for volume in volumes]


def test_another_name_reaches_everything_of_it(helm: Helm) -> None:
    rendered = helm.template(*VARIANTS["warnings"], "--set", "fullnameOverride=gpu")
    (configuration,) = rendered.all("ValidatingWebhookConfiguration")
    (webhook,) = configuration["webhooks"]
    assert webhook["clientConfig"]["service"]["name"] == "gpu-admission"
    assert "system:serviceaccount:" + NAMESPACE + ":gpu-operator'" in str(webhook)
    (certificate,) = rendered.all("Certificate")
    assert certificate["spec"]["dnsNames"] == [f"gpu-admission.{NAMESPACE}.svc"]
