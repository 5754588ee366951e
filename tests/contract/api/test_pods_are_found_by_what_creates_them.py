# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``kubectl ullage why deploy/web`` on objects as an API server gives them."""

from __future__ import annotations

from typing import Any

import pytest

from builders_raw import raw_adopted_pod, raw_meta
from fakes.apiserver import FakeApiServer
from ullage import ports
from ullage.cli import owners
from ullage.kube.client import K8sCluster


def holder(kind: str, name: str, api: str = "apps/v1") -> dict[str, Any]:
    return {
        "apiVersion": api, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True,
    }  # fmt: skip


def fill(api: FakeApiServer) -> None:
    """A Deployment with one ReplicaSet, a CronJob with one Job, a bare pod; and namesakes."""
    for namespace in ("a", "b"):
        replicas = raw_meta("web-1", namespace, ownerReferences=[holder("Deployment", "web")])
        api.put(ports.REPLICA_SET, {"metadata": replicas, "spec": {}})
        job = raw_meta("nightly-1", namespace, ownerReferences=[holder("CronJob", "nightly")])
        api.put(ports.JOB, {"metadata": job, "spec": {}})
        indexed = raw_meta("set-0", namespace, ownerReferences=[holder("JobSet", "set", "j/v1")])
        api.put(ports.JOB, {"metadata": indexed, "spec": {}})
        for name, controller in (
            ("set-0-0", holder("Job", "set-0", "batch/v1")),
            ("head", holder("RayCluster", "ray", "ray.io/v1")),
            ("web-1-x", holder("ReplicaSet", "web-1")),
            ("web-1-y", holder("ReplicaSet", "web-1")),
            ("nightly-1-x", holder("Job", "nightly-1", "batch/v1")),
            ("orphan", holder("ReplicaSet", "gone")),
            ("bare", None),
        ):
            uid = {"uid": f"uid-{namespace}-{name}"}
            pod = raw_adopted_pod(name, namespace=namespace, controller=controller, meta=uid)
            api.put(ports.POD, pod)


@pytest.mark.parametrize(
    ("kind", "name", "found"),
    [
        ("Pod", "bare", {"bare"}),
        ("Pod", "web-1-x", {"web-1-x"}),
        ("ReplicaSet", "web-1", {"web-1-x", "web-1-y"}),
        ("Deployment", "web", {"web-1-x", "web-1-y"}),
        ("CronJob", "nightly", {"nightly-1-x"}),
        ("JobSet", "set", {"set-0-0"}),
        ("RayCluster", "ray", {"head"}),
        ("Deployment", "nightly", set()),
        ("StatefulSet", "web", set()),
    ],
)
async def test_owners_are_followed_inside_the_namespace(
    api: FakeApiServer, cluster: K8sCluster, kind: str, name: str, found: set[str]
) -> None:
    fill(api)
    seen = await owners.pods_of(cluster, kind, "a", name)
    assert {one.ref.name for one in seen.workloads.values()} == found
    assert {one.ref.namespace for one in seen.workloads.values()} <= {"a"}


async def test_a_pod_of_a_rollout_names_those_that_have_to_go_after_it(
    api: FakeApiServer, cluster: K8sCluster
) -> None:
    fill(api)
    revision = raw_meta("web-2", "a", ownerReferences=[holder("Deployment", "web")])
    api.put(ports.REPLICA_SET, {"metadata": revision, "spec": {}})
    for name, phase in (
        ("web-2-new", "Pending"),
        ("web-2-twin", "Running"),
        ("web-1-x", "Running"),
        ("web-1-y", "Succeeded"),
    ):
        pod = raw_adopted_pod(
            name,
            namespace="a",
            controller=holder("ReplicaSet", name[:5]),
            meta={"uid": f"uid-a-{name}"},
        )
        api.put(ports.POD, {**pod, "status": {"phase": phase}})
    assert await owners.predecessors(cluster, "a", "web-2-new") == ["web-1-x"]
    for name in ("bare", "nightly-1-x", "orphan", "none"):
        assert await owners.predecessors(cluster, "a", name) == [], name
