# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Probes and scrapes reach the ports on which the processes listen."""

from __future__ import annotations

import pytest

from chart.rendered import Helm, Rendered, annotations
from ullage.app.settings import Settings
from ullage_node.settings import HttpSettings

PODS = {
    ("Deployment", "ullage-operator"): Settings().http.port,
    ("DaemonSet", "ullage-node"): HttpSettings().port,
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


def test_the_operator_may_take_its_time_to_start_and_none_to_be_alive(rendered: Rendered) -> None:
    container = rendered.container("Deployment", "ullage-operator")
    start, life = container["startupProbe"], container["livenessProbe"]
    assert start["httpGet"] == life["httpGet"]
    assert start["periodSeconds"] * start["failureThreshold"] >= 60
    assert "initialDelaySeconds" not in life
    assert life["periodSeconds"] * life["failureThreshold"] <= 30


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
