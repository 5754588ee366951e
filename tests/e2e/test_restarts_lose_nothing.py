# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Any process may be restarted at any time: nothing is lost, nothing is given twice."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from demo.install import NAMESPACE
from e2e.stack import Stack, busy_template, eventually, share, training_job

JOBS = {"solo": 1, "pair": 2}


@pytest.fixture(scope="module")
def namespace(stack: Stack) -> Iterator[str]:
    """One for all: whatever is restarted, the same pods go on."""
    with stack.own_namespace() as name:
        yield name


@pytest.fixture(scope="module")
def running(stack: Stack, namespace: str) -> dict[str, str]:
    """Three pods of two jobs, running: uid by name."""
    for name, replicas in JOBS.items():
        stack.apply(training_job(name, namespace, replicas=replicas, gpu=share(25)))
    for name in JOBS:
        stack.job_reaches(name, namespace, "Running")
    return {p["metadata"]["name"]: p["metadata"]["uid"] for p in stack.pods(namespace)}


def _same_pods(stack: Stack, namespace: str, before: dict[str, str]) -> None:
    def only_these() -> bool:
        return before == {
            p["metadata"]["name"]: p["metadata"]["uid"] for p in stack.pods(namespace)
        }

    # pods of a deleted job go a moment later
    eventually(only_these, within_s=60, what=f"the pods are {before}")
    for name in JOBS:
        status = stack.job_reaches(name, namespace, "Running")
        assert status.get("restarts", 0) == 0
    stack.books_balance()


def _a_new_job_runs(stack: Stack, namespace: str) -> None:
    stack.apply(training_job("after", namespace, busy_template(2), gpu=share(20)))
    stack.job_reaches("after", namespace, "Succeeded", within_s=120)
    stack.delete("trainingjob.ullage.dev", "after", namespace)


def test_a_kubelet_restart_leaves_running_pods_alone(
    stack: Stack, namespace: str, running: dict[str, str]
) -> None:
    for node in ("node-1", "node-2"):
        stack.cluster.restart("kubelet", node)
    _same_pods(stack, namespace, running)
    _a_new_job_runs(stack, namespace)


def test_an_agent_restart_leaves_running_pods_alone(
    stack: Stack, namespace: str, running: dict[str, str]
) -> None:
    stack.cluster.kubectl(
        "delete", "pods", "--namespace", NAMESPACE,
        "--selector", "app.kubernetes.io/component=node", "--wait=false",
    )  # fmt: skip
    _same_pods(stack, namespace, running)
    _a_new_job_runs(stack, namespace)


def test_an_operator_restart_repeats_and_loses_nothing(
    stack: Stack, namespace: str, running: dict[str, str]
) -> None:
    before = stack.get("leases", "ullage-operator", NAMESPACE)
    assert before is not None
    leader = eventually(stack.leader, within_s=60, what="someone leads")
    stack.apply(training_job("during", namespace, busy_template(5), replicas=2, gpu=share(20)))
    stack.cluster.kubectl(
        "delete", "pod", leader, "--namespace", NAMESPACE, "--grace-period=0", "--force"
    )
    stack.job_reaches("during", namespace, "Succeeded", within_s=120)
    after = stack.get("leases", "ullage-operator", NAMESPACE)
    assert after is not None
    assert after["spec"]["leaseTransitions"] > before["spec"]["leaseTransitions"]
    stack.delete("trainingjob.ullage.dev", "during", namespace)
    _same_pods(stack, namespace, running)


def test_an_api_server_restart_is_survived(
    stack: Stack, namespace: str, running: dict[str, str]
) -> None:
    stack.cluster.restart("apiserver")
    _same_pods(stack, namespace, running)
    _a_new_job_runs(stack, namespace)


def test_a_leader_that_was_paused_does_not_write_after_it_was_replaced(
    stack: Stack, namespace: str, running: dict[str, str]
) -> None:
    leader = eventually(stack.leader, within_s=60, what="someone leads")
    processes = _operator_processes(stack, leader)
    assert processes
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        eventually(
            lambda: stack.leader() not in ("", leader), within_s=40, what="another one leads"
        )
        _a_new_job_runs(stack, namespace)
    finally:
        for process in processes:
            with suppress(ProcessLookupError):  # kubelet ends who answers no probe for long
                os.kill(process, signal.SIGCONT)
    time.sleep(3)
    assert stack.leader() != leader
    _same_pods(stack, namespace, running)


def _operator_processes(stack: Stack, pod: str) -> list[int]:
    """Processes of an operator pod: its name stands in their environment."""
    found = []
    for process in stack.cluster.processes_of_pods():
        try:
            command = Path(f"/proc/{process}/cmdline").read_bytes()
            environment = Path(f"/proc/{process}/environ").read_bytes()
        except OSError:
            continue  # it has ended
        if b"python" in command and f"ULLAGE_IDENTITY={pod}\0".encode() in environment:
            found.append(process)
    return found
