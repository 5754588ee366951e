# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pods and templates with the operator's keys or slots are refused to every other writer."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from demo.images import ROOT
from demo.install import NAMESPACE
from e2e.stack import Stack, busy_template, eventually, training_job

OPERATOR = f"system:serviceaccount:{NAMESPACE}:ullage-operator"
TENANT = "tenant-b-user"
ADMIN = ""
"""The administrator of the kubeconfig: a member of system:masters."""

Json = dict[str, Any]

PLAIN: Json = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "main", "image": "example/web:1"}]},
}


def pod_of(
    *, labels: Json | None = None, annotations: Json | None = None, slots: str = "", init: str = ""
) -> Json:
    """A pod template with some of the operator's keys."""
    body = copy.deepcopy(PLAIN)
    body["metadata"]["labels"] |= labels or {}
    if annotations:
        body["metadata"]["annotations"] = annotations
    asked = {"requests": {"ullage.dev/slot": slots}, "limits": {"ullage.dev/slot": slots}}
    if slots:
        body["spec"]["containers"][0]["resources"] = asked
    if init:
        asked = {"limits": {"ullage.dev/slot": init}}
        first = {"name": "first", "image": "example/web:1", "resources": asked}
        body["spec"]["initContainers"] = [first]
    return body


FORGED = {
    "managed": pod_of(labels={"ullage.dev/managed": "true"}),
    "owner": pod_of(labels={"ullage.dev/owner": "train"}),
    "unheard-of": pod_of(labels={"ullage.dev/of-a-later-version": "x"}),
    "hash": pod_of(annotations={"ullage.dev/template-hash": "0123456789ab"}),
    "slot": pod_of(slots="1"),
    "init-slot": pod_of(init="1"),
}
ALLOWED = {
    "plain": PLAIN,
    "class": pod_of(labels={"ullage.dev/class": "resnet", "ullage.dev/family": "cnn"}),
    "adopted": pod_of(
        labels={"ullage.dev/share": "30-60", "ullage.dev/gang": "g"},
        annotations={"ullage.dev/max-slowdown": "1.3", "ullage.dev/gang-size": "2"},
    ),
}


def manifest(kind: str, name: str, template: Json) -> Json:
    """An object of a kind that has pods made from this template."""
    meta = {"name": name}
    if kind == "Pod":
        return {
            "apiVersion": "v1",
            "kind": kind,
            "metadata": meta | template["metadata"],
            "spec": template["spec"],
        }
    version = {"Job": "batch/v1", "CronJob": "batch/v1", "ReplicationController": "v1"}
    spec: Json = {"template": template}
    if kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"):
        spec["selector"] = {"matchLabels": {"app": "web"}}
    if kind == "Deployment":
        spec["strategy"] = {"type": "Recreate"}  # as a gang needs it
    if kind == "StatefulSet":
        spec["podManagementPolicy"] = "Parallel"  # as a gang needs it
    if kind == "ReplicationController":
        spec["selector"] = {"app": "web"}
    if kind in ("Job", "CronJob"):
        template = copy.deepcopy(template)
        template["spec"]["restartPolicy"] = "Never"
        spec["template"] = template
    if kind == "CronJob":
        spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": spec}}
    api = version.get(kind, "apps/v1")
    return {"apiVersion": api, "kind": kind, "metadata": meta, "spec": spec}


TEMPLATES = (
    "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob",
    "ReplicationController",
)  # fmt: skip


def write(stack: Stack, namespace: str, user: str, *words: str, body: Json | None = None) -> str:
    """What the API server says to a user; empty where it takes the object."""
    spoken = ("--as", user, "--as-group", "system:authenticated") if user else ()
    done = stack.cluster.kubectl(
        *words, "--namespace", namespace, *spoken,
        stdin=json.dumps(body) if body is not None else None, check=False,
    )  # fmt: skip
    return "" if done.returncode == 0 else done.stderr


def create(stack: Stack, namespace: str, user: str, body: Json, *, dry: bool = True) -> str:
    """Create an object; by default only to hear what admission says."""
    words = ("create", "-f", "-", *(("--dry-run=server",) if dry else ()))
    return write(stack, namespace, user, *words, body=body)


@pytest.fixture
def tenant(stack: Stack, namespace: str) -> str:
    """A user who may edit what is in the namespace."""
    words = ("create", "rolebinding", "tenant", "--clusterrole=edit", f"--user={TENANT}")
    assert not write(stack, namespace, ADMIN, *words)
    # the API server follows a new binding a moment later
    eventually(
        lambda: not create(stack, namespace, TENANT, manifest("Pod", "plain", PLAIN)),
        within_s=60,
        what="the tenant may create pods",
    )
    return TENANT


def test_pods_with_the_operators_keys_are_refused_and_say_what_to_do(
    stack: Stack, namespace: str, tenant: str
) -> None:
    for user in (tenant, ADMIN, "system:serviceaccount:kube-system:job-controller"):
        for name, template in FORGED.items():
            said = create(stack, namespace, user, manifest("Pod", name, template))
            assert "only the Ullage operator" in said, f"{user or 'admin'}: {name}: {said}"
            assert "TrainingJob or an InferenceDeployment" in said
    for name, template in ALLOWED.items():
        assert not create(stack, namespace, tenant, manifest("Pod", name, template)), name
    for template in FORGED.values():
        assert not create(stack, namespace, OPERATOR, manifest("Pod", "ours", template))


@pytest.mark.parametrize("kind", TEMPLATES)
def test_templates_with_the_operators_keys_are_refused_where_they_are_written(
    stack: Stack, namespace: str, tenant: str, kind: str
) -> None:
    for name, template in FORGED.items():
        said = create(stack, namespace, tenant, manifest(kind, name, template))
        assert "only the Ullage operator" in said, f"{name}: {said}"
    for name, template in ALLOWED.items():
        assert not create(stack, namespace, tenant, manifest(kind, name, template)), name


def test_the_keys_of_a_pod_that_exists_stay_as_they_are(
    stack: Stack, namespace: str, tenant: str
) -> None:
    labels = {"ullage.dev/managed": "true", "ullage.dev/kind": "TrainingJob"}
    ours = pod_of(labels=labels, annotations={"ullage.dev/template-hash": "0123456789ab"})
    assert not create(stack, namespace, OPERATOR, manifest("Pod", "ours-0", ours), dry=False)
    assert not create(stack, namespace, tenant, manifest("Pod", "theirs", PLAIN), dry=False)
    refused = (
        ("label", "pod", "theirs", "ullage.dev/managed=true"),
        ("label", "pod", "ours-0", "ullage.dev/managed-"),
        ("label", "pod", "ours-0", "ullage.dev/kind=InferenceDeployment", "--overwrite"),
        ("annotate", "pod", "ours-0", "ullage.dev/template-hash=other", "--overwrite"),
        ("annotate", "pod", "ours-0", "ullage.dev/template-hash-"),
        ("annotate", "pod", "theirs", "ullage.dev/max-slowdown=1.3"),
        ("label", "pod", "theirs", "ullage.dev/share=30"),
    )
    for words in refused:
        assert "only the Ullage operator" in write(stack, namespace, tenant, *words), words
    taken = (
        ("label", "pod", "ours-0", "team=b"),
        ("annotate", "pod", "theirs", "example.org/note=x"),
    )
    for words in taken:
        assert not write(stack, namespace, tenant, *words), words
    stack.delete("pod", "ours-0", namespace, "--grace-period=0", "--force")
    stack.delete("pod", "theirs", namespace, "--grace-period=0", "--force")


def test_kubernetes_makes_the_pods_of_the_operators_deployments(
    stack: Stack, namespace: str, tenant: str
) -> None:
    ours = pod_of(labels={"ullage.dev/managed": "true"}, slots="1")
    ours["spec"]["schedulingGates"] = [{"name": "ullage.dev/placement"}]
    fleet = manifest("Deployment", "serve", ours)
    assert not create(stack, namespace, OPERATOR, fleet, dry=False)

    def pods(count: int) -> bool:
        return len(stack.list("pods", namespace)) == count

    eventually(lambda: pods(1), within_s=30, what="the ReplicaSet controller's pod")
    assert not write(stack, namespace, tenant, "scale", "deployment", "serve", "--replicas=2")
    assert not write(stack, namespace, tenant, "annotate", "deployment", "serve", "team=b")
    eventually(lambda: pods(2), within_s=30, what="the second pod")
    bare = json.dumps([{"op": "remove", "path": "/spec/template/spec/containers/0/resources"}])
    said = write(
        stack, namespace, tenant, "patch", "deployment", "serve", "--type=json", f"-p={bare}"
    )
    assert "only the Ullage operator" in said
    stack.delete("deployment", "serve", namespace)


@pytest.fixture
def narrow(stack: Stack) -> Iterator[None]:
    """The policy that narrows templates, which an administrator switches on."""
    policy = stack.cluster.helm(
        "template", "ullage", str(ROOT / "charts" / "ullage"), "--namespace", NAMESPACE,
        "--set", "admissionPolicy.templates.enabled=true",
        "--show-only", "templates/template-policy.yaml",
    )  # fmt: skip
    stack.cluster.kubectl("apply", "-f", "-", stdin=policy)
    yield
    stack.cluster.kubectl("delete", "-f", "-", stdin=policy)


WIDE: dict[str, Json] = {
    "account": {"serviceAccountName": "admin"},
    "old-account": {"serviceAccount": "admin"},
    "network": {"hostNetwork": True},
    "processes": {"hostPID": True},
    "memory": {"hostIPC": True},
    "folder": {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]},
    "privileged": {"container": {"securityContext": {"privileged": True}}},
    "port": {"container": {"ports": [{"containerPort": 80, "hostPort": 80}]}},
}


def test_templates_are_narrowed_where_the_administrator_wants_it(
    stack: Stack, namespace: str, narrow: None
) -> None:
    def said(**pod: Any) -> str:
        job = training_job("narrow", namespace, busy_template(**pod), suspend=True)
        return create(stack, namespace, ADMIN, job)

    eventually(lambda: "serviceAccountName" in said(**WIDE["account"]), within_s=30, what="policy")
    for name, pod in WIDE.items():
        assert "denied request: " in said(**pod), name
    assert not said()
    assert not said(serviceAccountName="default")
