# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pods that real JobSet, LeaderWorkerSet and Trainer make share devices by a label of ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

from e2e.stack import Json, Stack, eventually
from e2e.test_existing_workloads_share_devices import run_under_shares, slices
from neighbours.controllers import (
    JOBSET,
    LEADER_WORKER_SET,
    TRAINER,
    Neighbour,
    controller,
    remove_webhooks,
)
from neighbours.kueue import applied
from neighbours.test_workloads_of_others_are_left_alone import (
    a_jobset,
    a_leader_worker_set,
    a_train_job,
    jobset_done,
    train_job_done,
)
from ullage.cli.main import app

APP = "theirs"
LABELS = {"app": APP, "ullage.dev/share": "20-30"}
SECONDS = 30
"""Long enough that both pods are seen under their shares."""


def deleted(stack: Stack, namespace: str) -> bool:
    """A LeaderWorkerSet serves until it is deleted."""
    stack.delete("leaderworkersets.leaderworkerset.x-k8s.io", APP, namespace)
    return True


def patched_train_job(namespace: str, trainer: Json) -> Json:
    """A TrainJob that labels its pods by a patch of its runtime, to be judged and not to run."""
    pod = {"template": {"spec": {"template": {"metadata": {"labels": LABELS}}}}, "name": "node"}
    patch = {"template": {"spec": {"replicatedJobs": [pod]}}}
    found = a_train_job(namespace)["items"][1]
    found["metadata"]["name"] = "judged"
    found["spec"] |= {
        "trainer": trainer,
        "runtimePatches": [{"manager": "example.org/user", "trainingRuntimeSpec": patch}],
    }
    return found


def warnings(stack: Stack, body: Json) -> str:
    """What the API server warns of, of an object that it takes."""
    words = ("apply", "--dry-run=server", "--filename", "-")
    return stack.cluster.kubectl(*words, stdin=json.dumps(body)).stderr


def test_a_train_job_of_a_process_a_cpu_is_warned_of(
    stack: Stack, namespace: str, tmp_path: Path
) -> None:
    try:
        with ExitStack() as running:
            for neighbour in (JOBSET, TRAINER):
                folder = tmp_path / neighbour.tool
                folder.mkdir()
                running.enter_context(controller(stack.cluster, neighbour, folder))
            runtime = a_train_job(namespace, LABELS)["items"][0]
            eventually(lambda: applied(stack, runtime), within_s=60, what="webhooks answer")
            remedy = "write spec.trainer.numProcPerNode: 1"
            assert remedy in warnings(stack, runtime)
            assert remedy in warnings(stack, patched_train_job(namespace, {"numNodes": 1}))
            right = patched_train_job(namespace, {"numProcPerNode": 1})
            assert remedy not in warnings(stack, right)
            assert remedy not in warnings(stack, a_train_job(namespace)["items"][0])
    finally:
        for neighbour in (JOBSET, TRAINER):
            remove_webhooks(stack.cluster, neighbour)


def why(stack: Stack, namespace: str, word: str) -> str:
    words = ["--kubeconfig", str(stack.cluster.kubeconfig), "why", word, "-n", namespace]
    return CliRunner().invoke(app, words).output


@pytest.mark.parametrize(
    ("neighbours", "theirs", "ended", "asked"),
    [
        ([JOBSET], a_jobset, jobset_done, "jobset/theirs"),
        ([LEADER_WORKER_SET], a_leader_worker_set, deleted, ""),
        ([JOBSET, TRAINER], a_train_job, train_job_done, ""),
    ],
    ids=["JobSet", "LeaderWorkerSet", "Trainer"],
)
def test_pods_of_a_neighbour_run_under_shares_say_where_and_end(
    stack: Stack,
    namespace: str,
    tmp_path: Path,
    neighbours: Sequence[Neighbour],
    theirs: Callable[[str, Json, int], Json],
    ended: Callable[[Stack, str], bool],
    asked: str,
) -> None:
    try:
        with ExitStack() as running:
            for neighbour in neighbours:
                folder = tmp_path / neighbour.tool
                folder.mkdir()
                running.enter_context(controller(stack.cluster, neighbour, folder))
            body = theirs(namespace, LABELS, SECONDS)
            eventually(lambda: applied(stack, body), within_s=60, what="webhooks answer")
            pods = run_under_shares(stack, namespace, APP, 2)
            given = slices(stack, namespace)
            for pod in pods:
                name = pod["metadata"]["name"]
                assert neighbours[-1].pod_label in pod["metadata"]["labels"]
                variables = pod["spec"]["containers"][0].get("env", [])
                processes = [one for one in variables if one["name"] == "PET_NPROC_PER_NODE"]
                assert all(one["value"] == "1" for one in processes), "one device, one process"
                assert bool(processes) == (TRAINER in neighbours)
                assert 20 <= given[name]["percent"] <= 30
                said = why(stack, namespace, asked or f"pod/{name}")
                assert "Placed" in said
                assert given[name]["gpu"] in said
            eventually(lambda: ended(stack, namespace), within_s=120, what="it ends")
            eventually(lambda: not slices(stack, namespace), within_s=60, what="slices go")
        stack.books_balance()
    finally:
        for neighbour in neighbours:
            remove_webhooks(stack.cluster, neighbour)
