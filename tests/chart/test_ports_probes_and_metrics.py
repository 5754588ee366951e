# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Probes and scrapes reach the ports on which the processes listen."""

from __future__ import annotations

import pytest

from chart.rendered import ChartRefused, Helm, Rendered, annotations
from ullage.app.settings import Settings
from ullage_node.settings import AgentHttpSettings

PODS = {
    ("Deployment", "ullage-operator"): Settings().http.port,
    ("DaemonSet", "ullage-node"): AgentHttpSettings().port,
}
both = pytest.mark.parametrize("pod", PODS, ids=lambda pod: pod[1])
Pod = tuple[str, str]


@both
def test_the_port_is_the_one_of_the_settings(rendered: Rendered, pod: Pod) -> None:
    (port,) = rendered.container(*pod)["ports"]
    assert port == {"name": "http", "containerPort": PODS[pod]}


@both
def test_probes_ask_for_life_and_readiness(rendered: Rendered, pod: Pod) -> None:
    container = rendered.container(*pod)
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}


@both
def test_a_pod_may_take_its_time_to_start_and_none_to_be_alive(
    rendered: Rendered, pod: Pod
) -> None:
    container = rendered.container(*pod)
    start, life = container["startupProbe"], container["livenessProbe"]
    assert start["httpGet"] == life["httpGet"]
    assert start["periodSeconds"] * start["failureThreshold"] >= 60
    assert "initialDelaySeconds" not in life
    assert life["periodSeconds"] * life.get("failureThreshold", 3) <= 30


@both
def test_pods_say_where_they_are_scraped(rendered: Rendered, pod: Pod) -> None:
    said = annotations(rendered.one(*pod)["spec"]["template"])
    assert said == {"prometheus.io/scrape": "true", "prometheus.io/port": str(PODS[pod])}


def test_an_annotation_of_the_values_wins(helm: Helm) -> None:
    bodies = helm.template("--set-string", r"operator.podAnnotations.prometheus\.io/scrape=false")
    said = annotations(bodies.one("Deployment", "ullage-operator")["spec"]["template"])
    assert said["prometheus.io/scrape"] == "false"


def test_the_network_policy_lets_in_what_is_served(rendered: Rendered) -> None:
    spec = rendered.one("NetworkPolicy", "ullage")["spec"]
    (rule,) = spec["ingress"]
    assert {port["port"] for port in rule["ports"]} == set(PODS.values())
    assert spec["policyTypes"] == ["Ingress"]


def test_a_pod_monitor_is_there_only_when_asked_for(rendered: Rendered) -> None:
    assert not rendered.all("PodMonitor")


def test_a_pod_monitor_finds_both_pods_and_no_hook(helm: Helm) -> None:
    bodies = helm.template(
        "--set", "monitoring.podMonitor.enabled=true",
        "--set", "monitoring.podMonitor.labels.release=prometheus",
    )  # fmt: skip
    monitor = bodies.one("PodMonitor", "ullage")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("http", "/metrics")
    (expression,) = monitor["spec"]["selector"]["matchExpressions"]
    for pod in PODS:
        template = bodies.one(*pod)["spec"]["template"]
        labels = template["metadata"]["labels"]
        assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
        assert labels[expression["key"]] in expression["values"]
        assert "prometheus.io/scrape" not in annotations(template)
    for job in bodies.all("Job"):
        assert expression["key"] not in job["spec"]["template"]["metadata"]["labels"]


SECURE = (
    "--set", "monitoring.secureMetrics.enabled=true",
    "--set", "monitoring.podMonitor.enabled=true",
)  # fmt: skip


def test_metrics_over_tls_need_a_certificate_from_somewhere(helm: Helm) -> None:
    with pytest.raises(ChartRefused, match="tlsSecret"):
        helm.template(*SECURE)


def test_metrics_over_tls_are_scraped_with_a_token_that_may_read_them(helm: Helm) -> None:
    bodies = helm.template(*SECURE, "--set", "monitoring.secureMetrics.certManager.enabled=true")
    (endpoint,) = bodies.one("PodMonitor", "ullage")["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["scheme"]) == ("metrics", "https")
    token = bodies.one("Secret", endpoint["authorization"]["credentials"]["name"])
    reader = token["metadata"]["annotations"]["kubernetes.io/service-account.name"]
    bodies.one("ServiceAccount", reader)
    (subject,) = bodies.one("ClusterRoleBinding", "ullage-metrics-reader")["subjects"]
    assert subject["name"] == reader
    certificate = bodies.one("Certificate", "ullage-metrics")["spec"]
    assert endpoint["tlsConfig"]["serverName"] in certificate["dnsNames"]
    assert endpoint["tlsConfig"]["ca"]["secret"]["name"] == certificate["secretName"]
    (rule,) = bodies.one("NetworkPolicy", "ullage")["spec"]["ingress"]
    for (kind, name), variable in zip(PODS, ("ULLAGE_HTTP", "ULLAGE_NODE_HTTP"), strict=True):
        container = bodies.container(kind, name)
        port = next(port for port in container["ports"] if port["name"] == "metrics")
        assert {"port": port["containerPort"], "protocol": "TCP"} in rule["ports"]
        settings = {one["name"]: one.get("value") for one in container["env"]}
        assert settings[f"{variable}_METRICS_PORT"] == str(port["containerPort"])
        (mount,) = [one for one in container["volumeMounts"] if "certificate" in one["name"]]
        assert mount["mountPath"] == Settings().http.certificate_dir
        assert mount["mountPath"] == str(AgentHttpSettings().certificate_dir)
        template = bodies.one(kind, name)["spec"]["template"]
        (volume,) = [one for one in template["spec"]["volumes"] if one["name"] == mount["name"]]
        assert volume["secret"]["secretName"] == certificate["secretName"]
        assert "prometheus.io/scrape" not in annotations(template)


def test_no_one_may_ask_about_tokens_where_metrics_are_for_all(rendered: Rendered) -> None:
    rules = [rule for body in rendered.all("ClusterRole") for rule in body["rules"]]
    assert not [rule for rule in rules if "tokenreviews" in rule.get("resources", ())]
