# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pods that real JobSet, LeaderWorkerSet and Trainer make share devices by a label of ours."""

from __future__ import annotations

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
