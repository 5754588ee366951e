# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pods that controllers of other projects make share devices by a label in their templates.

Pods of the shape that KubeRay, the training operator and JobSet give them, owned by objects of
their kinds; no such controller runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bench.adopt_kinds import definition
from demo.progress import CommandFailed
from e2e.stack import Json, Stack, eventually
from e2e.test_existing_workloads_share_devices import run_under_shares, slices, template

KINDS = {
    "RayCluster": ("ray.io", "v1", "rayclusters"),
    "PyTorchJob": ("kubeflow.org", "v1", "pytorchjobs"),
}
APP = "theirs"


@pytest.fixture
def owner(stack: Stack, namespace: str, request: pytest.FixtureRequest) -> Iterator[Json]:
    """A reference to an object of a kind that the cluster did not know."""
    kind: str = request.param
    group, version, plural = KINDS[kind]
    stack.apply(definition(kind, group))
    crd = f"crd/{plural}.{group}"
    stack.cluster.kubectl("wait", "--for=condition=Established", crd, "--timeout=600s")
    body = {
        "apiVersion": f"{group}/{version}",
        "kind": kind,
        "metadata": {"name": APP, "namespace": namespace},
    }
    eventually(lambda: _applied(stack, body), within_s=20, what=f"{kind} is served")
    made = stack.get(f"{plural}.{group}", APP, namespace)
    assert made is not None
    yield {
        "apiVersion": body["apiVersion"],
        "kind": kind,
        "name": APP,
        "uid": made["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    stack.cluster.kubectl("delete", "crd", f"{plural}.{group}")


def _applied(stack: Stack, body: Json) -> bool:
    try:
        stack.apply(body)
    except CommandFailed as error:
        if "no matches for kind" not in str(error):
            raise
        return False
    return True


def member(
    name: str, namespace: str, owner: Json, share: str, container: str, **given: Any
) -> Json:
    """A pod as such a controller makes it."""
    pod = template(APP, share, **given)
    pod["spec"]["containers"][0]["name"] = container
    pod["spec"]["restartPolicy"] = "Never"
    meta = {"name": name, "namespace": namespace, "ownerReferences": [owner]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta | pod["metadata"],
        "spec": pod["spec"],
    }


def ray_pods(namespace: str, owner: Json) -> list[Json]:
    def of(kind: str, name: str, share: str) -> Json:
        labels = {"ray.io/cluster": APP, "ray.io/node-type": kind, "ray.io/group": f"{kind}group"}
        return member(name, namespace, owner, share, f"ray-{kind}", labels=labels)

    return [
        of("head", "theirs-head-x7k2p", "30"),
        of("worker", "theirs-worker-a1b2c", "20-40"),
        of("worker", "theirs-worker-d3e4f", "20-40"),
    ]


def pytorch_pods(namespace: str, owner: Json) -> list[Json]:
    """A gang: the training operator's pods wait for each other."""

    def of(role: str) -> Json:
        labels = {
            "training.kubeflow.org/job-name": APP,
            "training.kubeflow.org/replica-type": role,
            "training.kubeflow.org/replica-index": "0",
            "ullage.dev/gang": APP,
        }
        notes = {"ullage.dev/gang-size": "2"}
        name = f"theirs-{role}-0"
        return member(name, namespace, owner, "20-30", "pytorch", labels=labels, notes=notes)

    return [of("master"), of("worker")]


@pytest.mark.parametrize(
    ("owner", "made"),
    [("RayCluster", ray_pods), ("PyTorchJob", pytorch_pods)],
    indirect=["owner"],
    ids=["RayCluster", "PyTorchJob"],
)
def test_pods_of_an_unknown_kind_run_under_shares_and_go_with_their_owner(
    stack: Stack, namespace: str, owner: Json, made: Any
) -> None:
    pods = made(namespace, owner)
    stack.apply(*pods)
    run_under_shares(stack, namespace, APP, len(pods))
    stack.books_balance()
    stack.delete(f"{owner['kind'].lower()}", APP, namespace)
    eventually(lambda: not slices(stack, namespace), within_s=60, what="their slices are released")


def test_an_indexed_job_of_a_job_set_runs_under_shares(stack: Stack, namespace: str) -> None:
    labels = {
        "jobset.sigs.k8s.io/jobset-name": APP,
        "jobset.sigs.k8s.io/replicatedjob-name": "workers",
        "jobset.sigs.k8s.io/job-index": "0",
    }
    pod = template(APP, labels={**labels, "ullage.dev/gang": APP})
    pod["metadata"]["annotations"] = {"ullage.dev/gang-size": "2"}
    pod["spec"] |= {"restartPolicy": "Never", "subdomain": APP}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"{APP}-workers-0", "namespace": namespace, "labels": labels},
        "spec": {
            "completionMode": "Indexed", "parallelism": 2, "completions": 2, "backoffLimit": 0,
            "template": pod,
        },
    }  # fmt: skip
    stack.apply(job)
    found = run_under_shares(stack, namespace, APP, 2)
    indices = {
        one["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] for one in found
    }
    assert indices == {"0", "1"}
    stack.delete("job", f"{APP}-workers-0", namespace)
    eventually(lambda: not slices(stack, namespace), within_s=60, what="their slices are released")
