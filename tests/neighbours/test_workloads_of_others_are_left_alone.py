# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""JobSet and LeaderWorkerSet work beside us as without us, and we work when they are down."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from demo.images import image_name
from e2e.stack import Json, Stack, busy_template, eventually, training_job
from neighbours.controllers import (
    JOBSET,
    LEADER_WORKER_SET,
    Neighbour,
    controller,
    remove_webhooks,
)


def container(seconds: int) -> Json:
    return {
        "name": "main",
        "image": image_name("examples"),
        "imagePullPolicy": "Never",
        "command": ["sleep", str(seconds)],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    }


def a_jobset(namespace: str) -> Json:
    pod = {"restartPolicy": "Never", "containers": [container(3)]}
    job = {"parallelism": 2, "completions": 2, "template": {"spec": pod}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "theirs", "namespace": namespace},
        "spec": {"replicatedJobs": [{"name": "workers", "template": {"spec": job}}]},
    }


def a_leader_worker_set(namespace: str) -> Json:
    template = {"spec": {"containers": [container(3600)], "terminationGracePeriodSeconds": 1}}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "theirs", "namespace": namespace},
        "spec": {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template}},
    }


def jobset_done(stack: Stack, namespace: str) -> bool:
    found = stack.get("jobsets.jobset.x-k8s.io", "theirs", namespace) or {}
    return found.get("status", {}).get("terminalState") == "Completed"


def leader_worker_set_ready(stack: Stack, namespace: str) -> bool:
    found = stack.get("leaderworkersets.leaderworkerset.x-k8s.io", "theirs", namespace) or {}
    return bool(found.get("status", {}).get("readyReplicas") == 1)


@pytest.mark.parametrize(
    ("neighbour", "theirs", "done"),
    [
        (JOBSET, a_jobset, jobset_done),
        (LEADER_WORKER_SET, a_leader_worker_set, leader_worker_set_ready),
    ],
    ids=["JobSet", "LeaderWorkerSet"],
)
def test_a_neighbours_workload_runs_untouched_and_ours_runs_without_its_controller(
    stack: Stack,
    namespace: str,
    tmp_path: Path,
    neighbour: Neighbour,
    theirs: Callable[[str], Json],
    done: Callable[[Stack, str], bool],
) -> None:
    try:
        with controller(stack.cluster, neighbour, tmp_path):
            stack.apply(training_job("beside", namespace, busy_template(3)))
            eventually(
                lambda: _applied(stack, theirs(namespace)), within_s=60, what="webhooks answer"
            )
            eventually(lambda: done(stack, namespace), within_s=180, what="theirs is done")
            stack.job_reaches("beside", namespace, "Succeeded", within_s=120)
            pods = stack.list("pods", namespace, neighbour.pod_label)
            assert len(pods) == 2
            for pod in pods:
                text = json.dumps([pod["metadata"], pod["spec"]])
                assert "ullage.dev" not in text, "none of our keys, gates or resources"
        # its webhooks are still there, and no one answers them
        stack.apply(training_job("alone", namespace, busy_template(3)))
        stack.job_reaches("alone", namespace, "Succeeded", within_s=120)
    finally:
        remove_webhooks(stack.cluster, neighbour)


def _applied(stack: Stack, body: Json) -> bool:
    """Whether the API server took it; a webhook that has just started may not answer yet."""
    done = stack.cluster.kubectl("apply", "--filename", "-", stdin=json.dumps(body), check=False)
    return done.returncode == 0
