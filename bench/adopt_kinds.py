# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Kinds of existing workloads, each run on the local cluster until a pod of it shares a device.

The controllers of Kubernetes make their pods themselves. Of the other kinds there is an object
that owns pods of the shape which their controllers give them; no such controller runs here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from demo.cluster import LocalCluster
from demo.first_install import Json, shares
from demo.images import image_name
from demo.progress import CommandFailed, Progress

NAMESPACE: Final = "adopt-kinds"
APP: Final = "app"
SHARE: Final = "6"
"""Every pod, and what a CronJob starts meanwhile, has room on two devices."""
LOOK_S: Final = 0.5
LIMIT_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A kind and how its pods come to be.

    Attributes:
        kind: Whose object owns the pods, through whatever stands between.
        bodies: Objects to apply, given the uid of the object of a foreign kind ("" = none).
        pods: Pods that share.
        group: API group of a foreign kind; "" = Kubernetes knows the kind.
    """

    kind: str
    bodies: Callable[[str], list[Json]]
    pods: int = 1
    group: str = ""

    @property
    def app(self) -> str:
        """Value of the label of its pods."""
        return self.kind.lower()


def template(kind: str, labels: Mapping[str, str] | None = None, **spec: object) -> Json:
    """A pod template that shares a device."""
    container = {
        "name": "main", "image": image_name("examples"), "imagePullPolicy": "Never",
        "command": ["sleep", "3600"],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    }  # fmt: skip
    keys = {APP: kind.lower(), "ullage.dev/share": SHARE, **(labels or {})}
    pod = {"containers": [container], "terminationGracePeriodSeconds": 1, **spec}
    return {"metadata": {"labels": keys}, "spec": pod}


def _controller(kind: str, version: str, **spec: object) -> Case:
    """A kind whose controller runs in every cluster."""
    batch = version.startswith("batch/")
    pod = template(kind, restartPolicy="Never" if batch else "Always")
    inner: Json = {"template": pod}
    if not batch:
        inner["selector"] = {"matchLabels": {APP: kind.lower()}}
    if kind == "CronJob":
        inner = {"jobTemplate": {"spec": inner}}
    meta = {"name": kind.lower(), "namespace": NAMESPACE}
    body = {"apiVersion": version, "kind": kind, "metadata": meta, "spec": inner | spec}
    return Case(kind=kind, bodies=lambda _: [body])


def _bare() -> Case:
    pod = template("Pod")
    pod["metadata"] |= {"name": "pod", "namespace": NAMESPACE}
    return Case(kind="Pod", bodies=lambda _: [{"apiVersion": "v1", "kind": "Pod", **pod}])


def _owned(kind: str, group: str, name: str, uid: str) -> Json:
    owner = {"apiVersion": f"{group}/v1", "kind": kind, "name": kind.lower(), "uid": uid}
    meta: Json = {"name": name, "namespace": NAMESPACE}
    return meta | {"ownerReferences": [owner | {"controller": True}]}


def _members(kind: str, group: str, names: Mapping[str, Mapping[str, str]]) -> Case:
    """Pods that a foreign kind owns itself, by name with their labels."""

    def bodies(uid: str) -> list[Json]:
        found = []
        for name, labels in names.items():
            pod = template(kind, labels, restartPolicy="Never")
            pod["metadata"] |= _owned(kind, group, name, uid)
            found.append({"apiVersion": "v1", "kind": "Pod", **pod})
        return found

    return Case(kind=kind, bodies=bodies, pods=len(names), group=group)


def _job_set() -> Case:
    """An indexed Job that a JobSet owns."""
    kind, group = "JobSet", "jobset.x-k8s.io"
    labels = {"jobset.sigs.k8s.io/jobset-name": "jobset"}

    def bodies(uid: str) -> list[Json]:
        pod = template(kind, labels, restartPolicy="Never", subdomain="jobset")
        spec = {"completionMode": "Indexed", "parallelism": 2, "completions": 2, "template": pod}
        meta = _owned(kind, group, "jobset-workers-0", uid)
        return [{"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}]

    return Case(kind=kind, bodies=bodies, pods=2, group=group)


CASES: Final = (
    _controller(  # fires while others run
        "CronJob", "batch/v1", schedule="* * * * *", concurrencyPolicy="Forbid"
    ),
    _bare(),
    _controller("Job", "batch/v1"),
    _controller("Deployment", "apps/v1"),
    _controller("StatefulSet", "apps/v1", serviceName="statefulset"),
    _controller("DaemonSet", "apps/v1"),
    _members(
        "RayCluster",
        "ray.io",
        {
            "raycluster-head": {"ray.io/node-type": "head"},
            "raycluster-worker": {"ray.io/node-type": "worker"},
        },
    ),
    _members(
        "PyTorchJob",
        "kubeflow.org",
        {
            "pytorchjob-master-0": {"training.kubeflow.org/replica-type": "master"},
            "pytorchjob-worker-0": {"training.kubeflow.org/replica-type": "worker"},
        },
    ),
    _job_set(),
)


def definition(kind: str, group: str) -> Json:
    """A definition of a foreign kind whose objects may hold anything."""
    plural = f"{kind.lower()}s"
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": "v1", "served": True, "storage": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [served | {"schema": {"openAPIV3Schema": anything}}],
        },
    }


def shared_kinds(cluster: LocalCluster, steps: Progress) -> dict[str, float]:
    """Run every case, one beside the other, and leave nothing of them.

    Returns:
        Seconds from apply until all its pods shared, by kind; kinds that never did are left out.
    """
    cluster.kubectl("create", "namespace", NAMESPACE)
    took: dict[str, float] = {}
    started: dict[str, float] = {}
    try:
        for case in CASES:
            uid = _foreign(cluster, case) if case.group else ""
            started[case.kind] = time.monotonic()
            _apply(cluster, *case.bodies(uid))
        with steps.step("a pod of every kind shares a device", expect_s=60):
            while len(took) < len(CASES) and time.monotonic() < min(started.values()) + LIMIT_S:
                found = _sharing(cluster)
                for case in CASES:
                    if case.kind not in took and found.get(case.app, 0) >= case.pods:
                        took[case.kind] = time.monotonic() - started[case.kind]
                time.sleep(LOOK_S)
        return took
    finally:
        cluster.kubectl("delete", "namespace", NAMESPACE, "--wait")
        for case in CASES:
            if case.group:
                name = definition(case.kind, case.group)["metadata"]["name"]
                cluster.kubectl("delete", "crd", name, "--ignore-not-found")


def _sharing(cluster: LocalCluster) -> dict[str, int]:
    """How many pods share, by their label."""
    done = cluster.kubectl("get", "pods", "--namespace", NAMESPACE, "--output", "json")
    found: dict[str, int] = {}
    for pod in json.loads(done.stdout)["items"]:
        if shares(pod):
            app = pod["metadata"]["labels"][APP]
            found[app] = found.get(app, 0) + 1
    return found


def _foreign(cluster: LocalCluster, case: Case) -> str:
    """Uid of an object of a kind that the cluster did not know."""
    crd = definition(case.kind, case.group)
    _apply(cluster, crd)
    name = crd["metadata"]["name"]
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", f"crd/{name}")
    meta = {"name": case.app, "namespace": NAMESPACE}
    body = {"apiVersion": f"{case.group}/v1", "kind": case.kind, "metadata": meta}
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            _apply(cluster, body)
            break
        except CommandFailed as error:  # a new kind is served a moment later
            if "no matches for kind" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(LOOK_S)
    words = ("--namespace", NAMESPACE, "--output", "jsonpath={.metadata.uid}")
    return cluster.kubectl("get", name, case.app, *words).stdout


def _apply(cluster: LocalCluster, *bodies: Json) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(bodies)})
    cluster.kubectl("apply", "--filename", "-", stdin=text)
