# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Two real jobs of whole devices that allow it run side by side, and one alone has all again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from demo.cluster import EmulatedDevice
from e2e.conftest import DEVICES
from e2e.stack import Json, Stack, busy_template, eventually, training_job

MODEL = "emulated-paired"
NODES = {
    "node-1": [EmulatedDevice(core=0, percent=60, model=MODEL)],
    "node-2": [EmulatedDevice(core=1, percent=60, model="emulated-other")],
}
ROUND_S = 15
CLASS = "paired"


@pytest.fixture
def paired(stack: Stack, namespace: str) -> Iterator[str]:
    """A policy that divides time, and a class that uses a part of a device."""
    stack.offer(NODES)
    policy = {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "SchedulingPolicy",
        "metadata": {"name": "default"},
        "spec": {
            "objective": "MaxMinFairness",
            "roundSeconds": ROUND_S,
            "risk": {"predictor": "UtilisationSum"},
        },
    }
    profile = {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "WorkloadProfile",
        "metadata": {"name": CLASS, "namespace": namespace},
        "spec": {
            "class": CLASS,
            "solo": [{"device": MODEL, "share": 100, "smUtil": 0.4, "stepsPerSecond": 12.0}],
        },
    }
    try:
        stack.apply(policy, profile)
        yield namespace
    finally:
        stack.cluster.kubectl("delete", "trainingjobs.ullage.dev", "--all", "-n", namespace)
        stack.cluster.kubectl(
            "delete", "schedulingpolicies.ullage.dev", "default", "--ignore-not-found"
        )
        stack.offer(DEVICES)


def _job(name: str, namespace: str) -> Json:
    template = busy_template()
    template["metadata"] = {"labels": {"ullage.dev/class": CLASS}}
    return training_job(
        name, namespace, template,
        gpu={"mode": "Exclusive", "count": 1, "memory": {"limit": "256Mi"}},
        accelerators=[MODEL],
        profileRef=CLASS,
        checkpoint={"signal": "SIGTERM", "graceSeconds": 5},
        sharing={"allowPacking": True},
    )  # fmt: skip


def _percents(stack: Stack, namespace: str) -> list[int]:
    """Shares of those who run on the device."""
    jobs = stack.list("trainingjobs.ullage.dev", namespace)
    running = [job["status"] for job in jobs if job.get("status", {}).get("phase") == "Running"]
    return sorted(place["percent"] for one in running for place in one.get("placement", []))


def test_two_jobs_share_a_device_and_one_alone_has_all_of_it(stack: Stack, paired: str) -> None:
    stack.apply(_job("one", paired), _job("two", paired))
    eventually(lambda: _percents(stack, paired) == [50, 50], within_s=90, what="two run together")

    def paired_since() -> Json | None:
        pairs = stack.job("one", paired).get("allocation", {}).get("pairs", [])
        return pairs[0] if len(pairs) == 1 and pairs[0].get("since") else None

    pair = eventually(paired_since, within_s=60, what="one says since when it has a partner")
    assert pair["partner"] == f"{paired}/two"
    done = subprocess.run(
        [
            sys.executable, "-m", "ullage.cli.main", "--kubeconfig",
            str(stack.cluster.kubeconfig), "why", "one", "-n", paired,
        ],
        capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip
    assert f"{paired}/two" in done.stdout
    assert "(predicted)" in done.stdout
    stack.books_balance()
    stack.delete("trainingjobs.ullage.dev", "two", paired)
    eventually(lambda: _percents(stack, paired) == [100], within_s=90, what="one has all again")
