# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A pod of another namespace that claims a job's uid gets nothing and costs the job nothing."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator

import pytest

from demo.install import NAMESPACE
from e2e.stack import Json, Stack, busy_template, share, training_job

OPERATOR = f"system:serviceaccount:{NAMESPACE}:ullage-operator"
LOOKS_S = 15.0
"""Several decisions, and as many resyncs of the operator's picture."""


@pytest.fixture
def other(stack: Stack) -> Iterator[str]:
    """A second namespace."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    stack.create_namespace(name)
    yield name
    stack.cluster.kubectl("delete", "namespace", name, "--wait=false")


def forged(job: Json, namespace: str, rank: int) -> Json:
    """What the pod of that rank looks like, in a namespace that is not the job's."""
    name = job["metadata"]["name"]
    pod = busy_template(3600)
    pod["spec"] |= {"schedulingGates": [{"name": "ullage.dev/placement"}], "restartPolicy": "Never"}
    asked = {"ullage.dev/slot": "1"}
    pod["spec"]["containers"][0]["resources"] = {"requests": asked, "limits": asked}
    labels = {
        "ullage.dev/managed": "true",
        "ullage.dev/kind": "TrainingJob",
        "ullage.dev/owner": name,
        "ullage.dev/rank": str(rank),
    }
    owner = {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "TrainingJob",
        "name": name,
        "uid": job["metadata"]["uid"],
        "controller": True,
    }
    meta = {
        "name": f"{name}-{rank}",
        "namespace": namespace,
        "labels": labels,
        "ownerReferences": [owner],
        # the garbage collector takes a pod away whose owner is not in its namespace
        "finalizers": ["example.com/stays"],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod["spec"]}


def test_a_pod_that_claims_a_job_of_another_namespace_changes_nothing(
    stack: Stack, namespace: str, other: str
) -> None:
    stack.apply(training_job("train", namespace, gpu=share(40)))
    before = stack.job_reaches("train", namespace, "Running")
    job = stack.get("trainingjobs.ullage.dev", "train", namespace)
    (pod,) = stack.pods(namespace, "train")
    assert job is not None
    for rank in (0, 1):
        body = json.dumps(forged(job, other, rank))
        # admission would refuse it: this is a cluster whose policy is off
        stack.cluster.kubectl("create", "-f", "-", "--as", OPERATOR, stdin=body)
    end = time.monotonic() + LOOKS_S
    try:
        while time.monotonic() < end:
            time.sleep(1)
            status = stack.job("train", namespace)
            assert (status["phase"], status.get("restarts", 0)) == (
                "Running",
                before.get("restarts", 0),
            )
            (still,) = stack.pods(namespace, "train")
            assert still["metadata"]["uid"] == pod["metadata"]["uid"]
            assert "deletionTimestamp" not in still["metadata"]
            claimed = {one["metadata"]["uid"] for one in stack.list("pods", other)}
            assert len(claimed) == 2
            for one in stack.list("pods", other):
                assert one["spec"]["schedulingGates"] == [{"name": "ullage.dev/placement"}]
            given = {piece["podUID"] for piece in stack.slices()}
            assert not given & claimed
        assert [one for one in stack.events(other, "train") if one["reason"] == "ForeignPod"] == []
    finally:
        for rank in (0, 1):
            bare = json.dumps([{"op": "remove", "path": "/metadata/finalizers"}])
            stack.cluster.kubectl(
                "patch", "pod", f"train-{rank}", "--namespace", other, "--type=json", f"-p={bare}"
            )
    stack.books_balance()
