# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Unused device time is measured, explained and booked on real kubelets and emulated devices.

One job holds far more than it needs, another uses what it holds. Agents measure in short windows
meanwhile: half an hour of evidence would be a long test.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from demo.install import NAMESPACE, agents_rolled
from e2e.stack import Json, Stack, busy_template, eventually, share, training_job

WINDOW = "ULLAGE_NODE_PERIODS_USAGE_WINDOW_SECONDS"
WINDOW_S = 20
AGENTS = ("daemonset/ullage-node", "--namespace", NAMESPACE)
HELD = 50
"""Share of the job that holds too much, percent."""
USED = 20
"""Share of the job that uses all of it."""
MEMORY = {"memory": {"limit": "512Mi"}}
"""Too little for a finding on memory."""


@pytest.fixture(scope="module")
def short_windows(stack: Stack) -> Iterator[None]:
    """Agents whose windows are seconds long, as long as these tests run."""
    stack.cluster.kubectl("set", "env", *AGENTS, f"{WINDOW}={WINDOW_S}")
    agents_rolled(stack.cluster)
    yield
    stack.cluster.kubectl("set", "env", *AGENTS, f"{WINDOW}-")
    agents_rolled(stack.cluster)


def ullage(stack: Stack, *words: str) -> str:
    """What the command prints."""
    done = subprocess.run(
        [
            sys.executable, "-m", "ullage.cli.main", "--kubeconfig",
            str(stack.cluster.kubeconfig), *words,
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def entries(stack: Stack, namespace: str) -> dict[str, Json]:
    """Workloads with their findings, by name."""
    said = json.loads(ullage(stack, "efficiency", "-n", namespace, "-o", "json"))
    return {entry["name"]: entry for entry in said["workloads"]}


def rules(entry: Json) -> set[str]:
    return {finding["rule"] for finding in entry.get("findings", ())}


def two_jobs(stack: Stack, namespace: str) -> None:
    """One that makes a short step every while, and one that computes all the time."""
    idle = busy_template(pause_s=0.05)
    busy = busy_template(pause_s=None)
    stack.apply(
        training_job("big", namespace, idle, gpu=share(HELD, **MEMORY)),
        training_job("busy", namespace, busy, gpu=share(USED, **MEMORY)),
    )
    for name in ("big", "busy"):
        stack.job_reaches(name, namespace, "Running")


@pytest.mark.usefixtures("short_windows")
def test_a_share_that_is_too_large_is_found_and_one_in_use_is_not(
    stack: Stack, namespace: str
) -> None:
    two_jobs(stack, namespace)

    def look() -> Json | None:
        listed = entries(stack, namespace)
        both = {"big", "busy"} <= listed.keys()
        return listed if both and "OversizedShare" in rules(listed["big"]) else None

    listed = eventually(look, within_s=6 * WINDOW_S, what="the share is found", every_s=2)
    assert "OversizedShare" not in rules(listed["busy"])
    (finding,) = (f for f in listed["big"]["findings"] if f["rule"] == "OversizedShare")
    assert 0 < float(finding["gain"]) < 1
    assert "kubectl patch trainingjob big" in finding["command"]
    told = ullage(stack, "why", "tj/big", "-n", namespace, "--efficiency")
    assert "OversizedShare" in told
    assert "set share" in told
    assert "OversizedShare" not in ullage(stack, "why", "tj/busy", "-n", namespace, "--efficiency")
    for name in ("big", "busy"):  # a row is stored with the next change of a status
        spec = {"spec": {"ttlSecondsAfterFinished": 86_400}}
        stack.patch("trainingjobs.ullage.dev", name, namespace, spec)
    stored = eventually(
        lambda: stack.job("big", namespace).get("efficiency", {}).get("findings"),
        within_s=60, what="the finding is in the status",
    )  # fmt: skip
    assert "OversizedShare" in {f["rule"] for f in stored}
    kept = stack.job("busy", namespace).get("efficiency", {}).get("findings", ())
    assert "OversizedShare" not in {f["rule"] for f in kept}


@pytest.mark.usefixtures("short_windows")
def test_the_books_of_a_job_that_has_ended_stay_in_the_report(stack: Stack, namespace: str) -> None:
    two_jobs(stack, namespace)

    def counted_at_all() -> bool:
        listed = entries(stack, namespace)
        return all(listed.get(name, {}).get("allocatedMs") for name in ("big", "busy"))

    eventually(counted_at_all, within_s=6 * WINDOW_S, what="device time is counted", every_s=2)
    for pod in stack.pods(namespace, "big"):
        stack.finish(pod["metadata"]["name"], namespace)
    stack.job_reaches("big", namespace, "Succeeded")
    counted = stack.job("big", namespace)["efficiency"]["row"]["allocatedMs"]
    assert counted > 0
    stack.apply(
        {
            "apiVersion": "ullage.dev/v1alpha1",
            "kind": "EfficiencyReport",
            "metadata": {"name": "team", "namespace": namespace},
            "spec": {"top": 10},
        }
    )

    def rows() -> dict[str, Json] | None:
        status = stack.status("efficiencyreports.ullage.dev", "team", namespace)
        listed = {row["name"]: row for row in status.get("rows", ())}
        return listed if {"big", "busy"} <= listed.keys() else None

    listed = eventually(rows, within_s=60, what="both jobs are in the report", every_s=2)
    assert listed["big"]["time"]["allocatedMs"] == counted
    assert listed["busy"]["time"]["usedMs"] > 0
