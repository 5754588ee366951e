# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""JobSet, LeaderWorkerSet, Trainer and Kueue work beside us as without us; we work without them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from demo.images import image_name
from e2e.stack import Json, Stack, busy_template, eventually, training_job
from neighbours.controllers import (
    JOBSET,
    KUEUE,
    LEADER_WORKER_SET,
    TRAINER,
    Neighbour,
    controller,
    remove_webhooks,
)
from neighbours.kueue import QUEUE, applied, cluster_queue, flavor, local_queue, narrow_to

NONE: Json = {}


def container(seconds: int) -> Json:
    return {
        "name": "main",
        "image": image_name("examples"),
        "imagePullPolicy": "Never",
        "command": ["sleep", str(seconds)],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    }


def template(name: str, seconds: int, labels: Json, **pod: object) -> Json:
    """A pod template whose container of this name sleeps for a while."""
    spec = {"containers": [container(seconds) | {"name": name}], **pod}
    return {"metadata": {"labels": labels}, "spec": spec}


def a_jobset(namespace: str, labels: Json = NONE, seconds: int = 3) -> Json:
    pod = template("main", seconds, labels, restartPolicy="Never")
    job = {"parallelism": 2, "completions": 2, "template": pod}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "theirs", "namespace": namespace},
        "spec": {"replicatedJobs": [{"name": "workers", "template": {"spec": job}}]},
    }


def a_leader_worker_set(namespace: str, labels: Json = NONE, seconds: int = 3600) -> Json:
    pod = template("main", seconds, labels, terminationGracePeriodSeconds=1)
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "theirs", "namespace": namespace},
        "spec": {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": pod}},
    }


def a_train_job(namespace: str, labels: Json = NONE, seconds: int = 3) -> Json:
    pod = template("node", seconds, labels, restartPolicy="Never")
    step = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    job = {"name": "node", "template": {"metadata": step, "spec": {"template": pod}}}
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {
            "name": "plain",
            "namespace": namespace,
            "labels": {"trainer.kubeflow.org/framework": "torch"},
        },
        "spec": {
            "mlPolicy": {"numNodes": 2, "torch": {}},
            "template": {"spec": {"replicatedJobs": [job]}},
        },
    }
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "theirs", "namespace": namespace},
        "spec": {
            "runtimeRef": {"name": "plain", "kind": "TrainingRuntime"},
            "trainer": {"numProcPerNode": 1},
        },
    }
    return {"apiVersion": "v1", "kind": "List", "items": [runtime, job]}


def a_queued_job(namespace: str) -> Json:
    pod = {"restartPolicy": "Never", "containers": [container(3)]}
    labels = {QUEUE: "plain"}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "theirs", "namespace": namespace, "labels": labels},
        "spec": {
            "parallelism": 2,
            "completions": 2,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    queue = cluster_queue("plain", "any", {"cpu": 4, "memory": "4Gi"})
    items = [flavor("any", {}), queue, local_queue("plain", namespace), job]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def job_done(stack: Stack, namespace: str) -> bool:
    found = stack.get("jobs.batch", "theirs", namespace) or {}
    return bool(found.get("status", {}).get("succeeded") == 2)


def train_job_done(stack: Stack, namespace: str) -> bool:
    found = stack.get("trainjobs.trainer.kubeflow.org", "theirs", namespace) or {}
    conditions = found.get("status", {}).get("conditions", [])
    return any(one["type"] == "Complete" and one["status"] == "True" for one in conditions)


def jobset_done(stack: Stack, namespace: str) -> bool:
    found = stack.get("jobsets.jobset.x-k8s.io", "theirs", namespace) or {}
    return found.get("status", {}).get("terminalState") == "Completed"


def leader_worker_set_ready(stack: Stack, namespace: str) -> bool:
    found = stack.get("leaderworkersets.leaderworkerset.x-k8s.io", "theirs", namespace) or {}
    return bool(found.get("status", {}).get("readyReplicas") == 1)


@pytest.mark.parametrize(
    ("neighbours", "theirs", "done"),
    [
        ([JOBSET], a_jobset, jobset_done),
        ([LEADER_WORKER_SET], a_leader_worker_set, leader_worker_set_ready),
        ([JOBSET, TRAINER], a_train_job, train_job_done),
        ([KUEUE], a_queued_job, job_done),
    ],
    ids=["JobSet", "LeaderWorkerSet", "Trainer", "Kueue"],
)
def test_a_neighbours_workload_runs_untouched_and_ours_runs_without_its_controller(
    stack: Stack,
    namespace: str,
    tmp_path: Path,
    neighbours: Sequence[Neighbour],
    theirs: Callable[[str], Json],
    done: Callable[[Stack, str], bool],
) -> None:
    try:
        with ExitStack() as running:
            for neighbour in neighbours:
                folder = tmp_path / neighbour.tool
                folder.mkdir()
                running.enter_context(controller(stack.cluster, neighbour, folder))
            eventually(
                lambda: applied(stack, theirs(namespace)), within_s=60, what="webhooks answer"
            )
            stack.apply(training_job("beside", namespace, busy_template(3)))
            eventually(lambda: done(stack, namespace), within_s=180, what="theirs is done")
            stack.job_reaches("beside", namespace, "Succeeded", within_s=120)
            pods = stack.list("pods", namespace, neighbours[-1].pod_label)
            assert len(pods) == 2
            for pod in pods:
                text = json.dumps([pod["metadata"], pod["spec"]])
                assert "ullage.dev" not in text, "none of our keys, gates or resources"
            if KUEUE in neighbours:
                stack.delete("jobs.batch", "theirs", namespace)  # its pods go with its help only
                stack.cluster.kubectl("delete", "clusterqueues.kueue.x-k8s.io", "plain")
        # its webhooks are still there, and no one answers them
        if KUEUE in neighbours:
            narrow_to(stack, {"queues": "true"})
        stack.apply(training_job("alone", namespace, busy_template(3)))
        stack.job_reaches("alone", namespace, "Succeeded", within_s=120)
    finally:
        for neighbour in neighbours:
            remove_webhooks(stack.cluster, neighbour)
