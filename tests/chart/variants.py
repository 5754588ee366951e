# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Ways to install the chart: whole installations, and each value set to something of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from chart.rendered import VALUES_FILES

DIGEST: Final = "sha256:" + "0f" * 32
SERVED: Final = ("--api-versions", "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy")
"""Words for Helm where no cluster says that it serves these policies."""

AUTHORITY: Final = """-----BEGIN CERTIFICATE-----
MIIBgzCCASmgAwIBAgIUXv7vSmN2Pn8hKs8B9FNcRQ0uJ6AwCgYIKoZIzj0EAwIw
-----END CERTIFICATE-----
"""
"""Of the shape of a certificate."""

VARIANTS: Final[dict[str, tuple[str, ...]]] = {
    **{path.stem: ("-f", str(path)) for path in VALUES_FILES},
    "no-user-roles": ("--set", "rbac.userRoles=false"),
    "no-retire-hook": ("--set", "retireHook.enabled=false"),
    "no-network-policies": ("--set", "networkPolicy.enabled=false"),
    "no-admission": ("--set", "admissionPolicy.enabled=false"),
    "no-adoption": ("--set", "admissionPolicy.adoption.enabled=false"),
    "webhook": (
        "--set", "admissionPolicy.adoption.mode=Webhook",
        "--set", "admissionPolicy.adoption.webhook.certManager.enabled=true",
    ),
    "webhook-with-a-secret": (
        "--set", "admissionPolicy.adoption.webhook.tlsSecret=tls",
        "--set", f"admissionPolicy.adoption.webhook.caBundle={AUTHORITY}",
    ),
    "warnings": ("--set", "admission.certManager.enabled=true"),
    "warnings-with-a-secret": (
        "--set", "admission.tlsSecret=tls", "--set", f"admission.caBundle={AUTHORITY}",
    ),
    "policy-alone": ("--set", "admissionPolicy.adoption.mode=Policy"),
    "no-advice": ("--set", "admissionPolicy.advice.enabled=false"),
    "narrow-templates": ("--set", "admissionPolicy.templates.enabled=true"),
    "monitoring": (
        "--set", "monitoring.podMonitor.enabled=true",
        "--set", "monitoring.prometheusRule.enabled=true",
        "--set", "monitoring.dashboards.enabled=true",
    ),
    "secure-metrics": (
        "--set", "monitoring.secureMetrics.enabled=true",
        "--set", "monitoring.secureMetrics.certManager.enabled=true",
        "--set", "monitoring.podMonitor.enabled=true",
    ),
    "no-mps": ("--set", "node.mps.enabled=false"),
    "mig": ("--set", "node.mig.enabled=true"),
    "checkpoint": ("--set", "node.checkpoint.enabled=true"),
    "emulated": ("--set", "node.backend=emulated"),
    "host-network": ("--set", "node.hostNetwork=true"),
    "no-guard": ("--set", "node.guard.enabled=false"),
    "no-step-mounts": ("--set", "node.stepMounts.enabled=false"),
    "ec2-notices": ("--set", "node.notices.provider=EC2"),
    "one-replica": ("--set", "operator.replicas=1"),
    "mirror": ("--set", "image.registry=mirror.example.org:5000/team/"),
    "digests": (
        "--set", f"operator.image.digest={DIGEST}", "--set", f"node.image.digest={DIGEST}",
    ),
    "renamed": ("--set", "fullnameOverride=gpu", "--set", "nameOverride=sharing"),
    "pull-secrets": ("--set", "imagePullSecrets[0].name=mirror,imagePullSecrets[1].name=backup"),
    "orders-nodes": ("--set", "operator.orderNodes=true"),
}  # fmt: skip
"""Words for Helm, by the name of the installation."""


@dataclass(frozen=True, slots=True)
class Case:
    """One value with something else than its default, and what else it needs to count."""

    value: Any
    beside: tuple[str, ...] = ()

    def words(self, path: str) -> tuple[str, ...]:
        return (*self.beside, "--set-json", f"{path}={json.dumps(self.value)}")


RULES: Final = ("--set", "monitoring.prometheusRule.enabled=true")
DASHBOARDS: Final = ("--set", "monitoring.dashboards.enabled=true")
CERTIFICATES: Final = (
    "--set", "monitoring.secureMetrics.enabled=true",
    "--set", "monitoring.secureMetrics.certManager.enabled=true",
)  # fmt: skip
SECURE: Final = ("--set", "monitoring.secureMetrics.tlsSecret=tls")
MONITOR: Final = ("--set", "monitoring.podMonitor.enabled=true")
TEMPLATES: Final = ("--set", "admissionPolicy.templates.enabled=true")
WEBHOOK: Final = VARIANTS["webhook"]
BY_SECRET: Final = VARIANTS["webhook-with-a-secret"]
WARNINGS: Final = VARIANTS["warnings"]
SMALL: Final = {"requests": {"cpu": "1m"}}
TOLERATIONS: Final = [{"key": "dedicated", "operator": "Exists"}]
AFFINITY: Final = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
    {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}},
]}}  # fmt: skip
SPREAD: Final = [{
    "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway",
    "labelSelector": {"matchLabels": {"app.kubernetes.io/component": "operator"}},
}]  # fmt: skip
VOLUME: Final = '[{"name":"prices","configMap":{"name":"prices"}}]'

VALUES: Final[dict[str, Case]] = {
    "nameOverride": Case("sharing"),
    "fullnameOverride": Case("gpu"),
    "commonLabels": Case({"team": "platform"}),
    "image.registry": Case("mirror.example.org"),
    "imagePullSecrets": Case([{"name": "mirror"}]),
    **{
        f"{part}.{name}": Case(value)
        for part in ("operator", "node")
        for name, value in {
            "image.repository": "another",
            "image.tag": "edge",
            "image.digest": DIGEST,
            "image.pullPolicy": "Always",
            "logLevel": "debug",
            "priorityClassName": "",
            "resources": SMALL,
            "podLabels": {"team": "platform"},
            "podAnnotations": {"example.org/reviewed": "yes"},
            "nodeSelector": {"example.org/pool": "gpu"},
            "tolerations": TOLERATIONS,
            "affinity": AFFINITY,
        }.items()
    },
    "operator.replicas": Case(3),
    "operator.settings": Case({"ULLAGE_WRITE_PER_SECOND": "100"}),
    "operator.orderNodes": Case(True),
    "operator.leadImage": Case("mirror.example.org/lead:1"),
    "operator.routerImage": Case("mirror.example.org/router:1"),
    "operator.serviceAccountAnnotations": Case({"example.org/identity": "prices"}),
    "operator.extraVolumes": Case([{"name": "more", "emptyDir": {}}]),
    "operator.extraVolumeMounts": Case(
        [{"name": "prices", "mountPath": "/etc/ullage/prices"}],
        ("--set-json", f"operator.extraVolumes={VOLUME}"),
    ),
    "operator.topologySpreadConstraints": Case(SPREAD),
    "node.backend": Case("emulated"),
    "node.maxSharers": Case(4),
    "node.settings": Case({"ULLAGE_NODE_LATE_BINDING": "false"}),
    "node.runtimeClassName": Case("nvidia"),
    "node.guard.enabled": Case(False),
    "node.guard.resources": Case(SMALL),
    "node.stepMounts.enabled": Case(False),
    "node.mps.enabled": Case(False),
    "node.mps.resources": Case(SMALL),
    "node.mig.enabled": Case(True),
    "node.checkpoint.enabled": Case(True),
    "node.checkpoint.program": Case(
        "/opt/nvidia/cuda-checkpoint", ("--set", "node.checkpoint.enabled=true")
    ),
    "node.processes.resources": Case(SMALL),
    "node.notices.provider": Case("GCE"),
    "node.notices.url": Case("http://127.0.0.1:8111"),
    "node.notices.pollSeconds": Case(5),
    "node.hostNetwork": Case(True),
    "node.kubeletFolder": Case("/var/lib/k0s/kubelet"),
    "node.maxUnavailable": Case("10%"),
    "rbac.userRoles": Case(False),
    "admissionPolicy.enabled": Case(False),
    "admissionPolicy.extraUsers": Case(["backup"]),
    "admissionPolicy.extraGroups": Case(["restorers"]),
    "admissionPolicy.podControllers": Case(["system:kube-controller-manager"]),
    "admissionPolicy.advice.enabled": Case(False),
    "admissionPolicy.adoption.enabled": Case(False),
    "admissionPolicy.adoption.mode": Case("Webhook", BY_SECRET),
    "admissionPolicy.adoption.webhook.replicas": Case(3, WEBHOOK),
    "admissionPolicy.adoption.webhook.resources": Case(SMALL, WEBHOOK),
    "admissionPolicy.adoption.webhook.tlsSecret": Case("tls", WEBHOOK),
    "admissionPolicy.adoption.webhook.caBundle": Case(AUTHORITY, WEBHOOK),
    "admissionPolicy.adoption.webhook.certManager.enabled": Case(
        True, (*BY_SECRET, "--set", "admissionPolicy.adoption.mode=Webhook")
    ),
    "admissionPolicy.adoption.webhook.certManager.issuerRef": Case(
        {"kind": "ClusterIssuer", "name": "house"}, WEBHOOK
    ),
    "admissionPolicy.templates.enabled": Case(True),
    "admissionPolicy.templates.serviceAccounts": Case(["default", "trainer"], TEMPLATES),
    "admissionPolicy.templates.forbidHostAccess": Case(False, TEMPLATES),
    "admissionPolicy.templates.namespaceSelector": Case({"matchLabels": {"gpu": "yes"}}, TEMPLATES),
    "admission.tlsSecret": Case("tls", WARNINGS),
    "admission.caBundle": Case(AUTHORITY, WARNINGS),
    "admission.certManager.enabled": Case(True),
    "admission.certManager.issuerRef": Case({"kind": "ClusterIssuer", "name": "house"}, WARNINGS),
    "networkPolicy.enabled": Case(False),
    "monitoring.secureMetrics.enabled": Case(True, SECURE),
    "monitoring.secureMetrics.tlsSecret": Case("tls", CERTIFICATES),
    "monitoring.secureMetrics.certManager.enabled": Case(
        True, (*SECURE, "--set", "monitoring.secureMetrics.enabled=true")
    ),
    "monitoring.secureMetrics.certManager.issuerRef": Case(
        {"kind": "ClusterIssuer", "name": "house"}, CERTIFICATES
    ),
    "monitoring.podMonitor.enabled": Case(True),
    "monitoring.podMonitor.labels": Case({"release": "prometheus"}, MONITOR),
    "monitoring.podMonitor.interval": Case("15s", MONITOR),
    "monitoring.prometheusRule.enabled": Case(True),
    "monitoring.prometheusRule.labels": Case({"release": "prometheus"}, RULES),
    "monitoring.prometheusRule.alertLabels": Case({"team": "platform"}, RULES),
    "monitoring.prometheusRule.disabledAlerts": Case(["UllageNoLeader"], RULES),
    "monitoring.prometheusRule.runbookURL": Case("https://example.org/runbooks", RULES),
    "monitoring.dashboards.enabled": Case(True),
    "monitoring.dashboards.labels": Case({"sidecar": "yes"}, DASHBOARDS),
    "monitoring.dashboards.annotations": Case({"folder": "GPU"}, DASHBOARDS),
    "webPage.enabled": Case(True),
    "webPage.proxy": Case(True, ("--set", "webPage.enabled=true")),
    "retireHook.enabled": Case(False),
    "retireHook.timeoutSeconds": Case(90),
}
"""A case for every value that the chart has."""
