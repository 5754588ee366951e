# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The charts render without a cluster, for every values file that is kept for that."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import yaml

from chart.rendered import CHART, CRD_CHART, NAMESPACE, ROOT, VALUES_FILES, Helm, Rendered
from chart.variants import SERVED

CLUSTER_WIDE = {
    "ClusterRole",
    "ClusterRoleBinding",
    "FlowSchema",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}
each_file = pytest.mark.parametrize("values", VALUES_FILES, ids=lambda path: path.stem)


def name(values: Path, override: str) -> str:
    """What an override of a values file says, else the chart's own name."""
    return str(yaml.safe_load(values.read_text(encoding="utf-8")).get(override, "ullage"))


def test_there_are_values_files_for_the_ways_of_running() -> None:
    names = {path.name for path in VALUES_FILES}
    assert {"default-values.yaml", "local-values.yaml", "minimal-values.yaml"} <= names


@each_file
def test_lint_finds_nothing(helm: Helm, values: Path) -> None:
    assert "0 chart(s) failed" in helm.run("lint", "--strict", str(CHART), "-f", str(values))


def test_lint_of_the_crd_chart_finds_nothing(helm: Helm) -> None:
    assert "0 chart(s) failed" in helm.run("lint", "--strict", str(CRD_CHART))


@each_file
def test_objects_are_whole_and_named_once(helm: Helm, values: Path) -> None:
    bodies = helm.template("-f", str(values)).objects
    names = [
        (
            body["apiVersion"],
            body["kind"],
            body["metadata"].get("namespace"),
            body["metadata"]["name"],
        )
        for body in bodies
    ]
    assert len(names) == len(set(names)) > 10
    for body in bodies:
        labels = body["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == name(values, "nameOverride")
        assert all(isinstance(value, str) for value in labels.values())
        inside = body["kind"] not in CLUSTER_WIDE
        assert body["metadata"].get("namespace") == (NAMESPACE if inside else None)


@each_file
def test_selectors_find_their_own_pods(helm: Helm, values: Path) -> None:
    rendered = helm.template("-f", str(values))
    selectors = []
    for kind, part in (("Deployment", "operator"), ("DaemonSet", "node")):
        spec = rendered.one(kind, f"{name(values, 'fullnameOverride')}-{part}")["spec"]
        selectors.append(spec["selector"]["matchLabels"])
        assert selectors[-1].items() <= spec["template"]["metadata"]["labels"].items()
    assert selectors[0] != selectors[1]


def test_the_namespace_is_nowhere_written_down(helm: Helm) -> None:
    text = yaml.safe_dump_all(helm.template(namespace="elsewhere").objects)
    assert "ullage-system" not in text


def test_templates_never_ask_the_cluster() -> None:
    for path in (*CHART.rglob("templates/*"), *CRD_CHART.rglob("templates/*")):
        assert "lookup" not in path.read_text(encoding="utf-8"), path


def test_minimal_values_leave_out_what_is_optional(helm: Helm) -> None:
    bodies = helm.template("-f", str(CHART / "ci" / "minimal-values.yaml"))
    assert not bodies.hooks()
    assert not bodies.all("NetworkPolicy")
    roles = {body["metadata"]["name"] for body in bodies.all("ClusterRole")}
    assert roles == {"ullage-operator", "ullage-node"}
    pods = [bodies.one("Deployment", "ullage-operator"), bodies.one("DaemonSet", "ullage-node")]
    assert all("priorityClassName" not in pod["spec"]["template"]["spec"] for pod in pods)


def test_platform_values_reach_the_pods(helm: Helm) -> None:
    bodies = helm.template("-f", str(CHART / "ci" / "platform-values.yaml"))
    operator = bodies.one("Deployment", "platform-ullage-operator")["spec"]["template"]
    node = bodies.one("DaemonSet", "platform-ullage-node")["spec"]["template"]
    assert operator["metadata"]["labels"]["cost-centre"] == "infrastructure"
    account = bodies.one("ServiceAccount", "platform-ullage-operator")["metadata"]
    assert account["annotations"]["eks.amazonaws.com/role-arn"].endswith("role/ullage-prices")
    assert {volume["name"] for volume in operator["spec"]["volumes"]} == {"tmp", "prices"}
    paths = {
        m["mountPath"]
        for m in bodies.container("Deployment", "platform-ullage-operator")["volumeMounts"]
    }
    assert paths == {"/tmp", "/etc/ullage/prices"}
    assert operator["metadata"]["annotations"]["example.org/reviewed"] == "yes"
    assert operator["spec"]["topologySpreadConstraints"][0]["maxSkew"] == 1
    assert "nodeAffinity" in operator["spec"]["affinity"]
    assert operator["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert operator["spec"]["priorityClassName"] == "platform-critical"
    assert node["spec"]["nodeSelector"] == {"ullage.dev/node": "true", "example.org/pool": "gpu"}
    assert node["spec"]["runtimeClassName"] == "nvidia"
    volumes = {
        volume["name"]: volume["hostPath"]["path"]
        for volume in node["spec"]["volumes"]
        if "hostPath" in volume
    }
    assert volumes["device-plugins"] == "/var/lib/k0s/kubelet/device-plugins"
    mounts = bodies.container("DaemonSet", "platform-ullage-node")["volumeMounts"]
    assert "/var/lib/kubelet/device-plugins" in {mount["mountPath"] for mount in mounts}
    for body in (*bodies.all("Job"), bodies.one("Deployment", "platform-ullage-operator")):
        assert body["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "mirror"}]
    assert all(body["metadata"]["labels"]["team"] == "platform" for body in bodies.objects)


def test_without_an_affinity_the_replicas_keep_apart(rendered: Rendered) -> None:
    pod = rendered.one("Deployment", "ullage-operator")["spec"]["template"]["spec"]
    (term,) = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"


def test_one_version_everywhere(rendered: Rendered) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for chart in (CHART, CRD_CHART):
        about = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))
        assert about["version"] == about["appVersion"] == project["version"]
    containers = [
        rendered.container("Deployment", "ullage-operator"),
        rendered.container("DaemonSet", "ullage-node"),
    ]
    for container in containers:
        assert container["image"].endswith(f":{project['version']}")


def test_notes_name_what_the_chart_made(helm: Helm) -> None:
    text = helm.notes("--set", "retireHook.enabled=false,fullnameOverride=gpu", *SERVED)
    assert f"--namespace {NAMESPACE} deployment/gpu-operator daemonset/gpu-node" in text
    assert "kubectl label node NODE ullage.dev/node=true" in text
    assert "ullage-operator retire" in text
    assert "--image=ullage-operator:0.1.0 --image-pull-policy=IfNotPresent" in text


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), "serves no MutatingAdmissionPolicy"),
        ((*SERVED, "--set", "admissionPolicy.adoption.enabled=false"), "adoption is off"),
    ],
)
def test_notes_show_no_label_that_nothing_reads(
    helm: Helm, words: tuple[str, ...], reason: str
) -> None:
    text = helm.notes(*words)
    assert reason in text
    assert "kubectl run" not in text
