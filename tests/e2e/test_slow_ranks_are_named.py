# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The slow rank of a gang is named with its cause, on real kubelets, by an unchanged program."""

from __future__ import annotations

import subprocess
import sys

from bench.tracing_programs import template
from e2e.stack import Json, Stack, eventually, share, training_job

RANKS = 3
PERCENT = 20
CAUSES = ("RankComputesLonger", "RankThrottled", "RankBesideNeighbours")
"""Which of them depends on what runs beside the rank, and on how busy the machine is."""


def gang(name: str, namespace: str, slow: str) -> Json:
    body = template("", env=[{"name": "SLOW", "value": slow}])
    return training_job(
        name, namespace, body, replicas=RANKS, gpu=share(PERCENT), runtime={"inject": "Auto"}
    )


def named(stack: Stack, name: str, namespace: str) -> Json | None:
    """The condition on a slow rank, if the status has one."""
    conditions = stack.job(name, namespace).get("conditions", ())
    return next((shown for shown in conditions if shown["type"] == "StragglerPresent"), None)


def test_a_slow_rank_is_named_with_its_pod_and_cause(stack: Stack, namespace: str) -> None:
    stack.apply(gang("uneven", namespace, slow="1x3"))
    stack.job_reaches("uneven", namespace, "Running", within_s=120)
    shown = eventually(
        lambda: named(stack, "uneven", namespace), within_s=180, what="the slow rank is named"
    )
    assert shown["reason"] in CAUSES, shown
    assert shown["message"].startswith("rank 1 in uneven-1 on node-"), shown
    stack.tells(namespace, "uneven", "StragglerFound")
    command = [
        sys.executable, "-m", "ullage.cli.main", "--kubeconfig", str(stack.cluster.kubeconfig),
        "why", "tj/uneven", "-n", namespace,
    ]  # fmt: skip
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "rank 1" in answer
