# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""In steady state nothing is written; metrics and the command line tell what goes on."""

from __future__ import annotations

import subprocess
import sys
import time

from demo.install import NAMESPACE
from e2e.stack import Stack, busy_template, eventually, share, training_job

QUIET_S = 40
"""The operator looks at everything again every 30 s."""
PAUSE_S = 0.5
"""Most of a step: whatever else the machine does, it takes about as long each time."""


def _metrics(stack: Stack, pod: str, port: int) -> str:
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}:{port}/proxy/metrics"
    return stack.cluster.kubectl("get", "--raw", path).stdout


def _pods_of(stack: Stack, component: str) -> list[str]:
    selector = f"app.kubernetes.io/component={component}"
    return [p["metadata"]["name"] for p in stack.list("pods", NAMESPACE, selector)]


def _writes(stack: Stack) -> dict[str, float]:
    lines = _metrics(stack, stack.leader(), 8080).splitlines()
    return {
        line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
        for line in lines
        if line.startswith("ullage_writes_total")
    }


def _versions(stack: Stack, namespace: str) -> dict[str, str]:
    """Versions of what only we write; kubelet may touch the status of a pod at any time."""
    seen = {
        item["metadata"]["name"]: item["metadata"]["resourceVersion"]
        for item in stack.list("trainingjobs.ullage.dev", namespace)
    }
    ours = ("ullage-operator", "ullage-node", "kubectl-ullage")
    events = [e for e in stack.list("events") if e.get("source", {}).get("component") in ours]
    return seen | {"events": str(len(events))}


def _is_quiet(stack: Stack, namespace: str) -> bool:
    """Whether nothing is written for a while, longer than everything is looked at again."""
    writes, versions = _writes(stack), _versions(stack, namespace)
    time.sleep(QUIET_S)
    after = _versions(stack, namespace)
    changed = {name for name, version in after.items() if versions.get(name) != version}
    # one change of a figure by a tenth, at most
    return sum(_writes(stack).values()) - sum(writes.values()) <= 1 and changed <= {"calm"}


def test_nothing_is_written_in_steady_state(stack: Stack, namespace: str) -> None:
    stack.apply(training_job("calm", namespace, busy_template(pause_s=PAUSE_S), gpu=share(20)))
    stack.apply(training_job("waits", namespace, accelerators=["no-such-device"]))
    stack.job_reaches("calm", namespace, "Running")
    stack.job_waits_for("waits", namespace, "UnknownAccelerator")
    # the first observation and the heartbeat behind it come before
    eventually(lambda: _is_quiet(stack, namespace), within_s=120, what=f"{QUIET_S} s of quiet")


def test_operator_and_agents_serve_metrics(stack: Stack) -> None:
    leader = _metrics(stack, stack.leader(), 8080)
    for name in (
        "ullage_decision_seconds",
        "ullage_leader 1.0",
        "ullage_writes_total",
        "ullage_reflector_objects",
    ):
        assert name in leader
    agent = _metrics(stack, _pods_of(stack, "node")[0], 8081)
    assert "ullage_node_slots" in agent


def _cli(stack: Stack, *words: str) -> str:
    kubeconfig = str(stack.cluster.kubeconfig)
    done = subprocess.run(
        [sys.executable, "-m", "ullage.cli.main", "--kubeconfig", kubeconfig, *words],
        capture_output=True,
        text=True,
        check=False,
        env={"COLUMNS": "200", "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_command_line_tells_what_runs_and_why_something_waits(
    stack: Stack, namespace: str
) -> None:
    stack.apply(training_job("shown", namespace, gpu=share(80)))
    stack.job_reaches("shown", namespace, "Running")
    stack.apply(training_job("second", namespace, gpu=share(80)))
    stack.job_reaches("second", namespace, "Running")
    stack.apply(training_job("third", namespace, gpu=share(50)))
    stack.job_waits_for("third", namespace, "PercentLimit")
    overview = _cli(stack, "status", "--namespace", namespace)
    assert "shown" in overview
    assert "PercentLimit" in overview
    why = _cli(stack, "why", "third", "--namespace", namespace)
    assert "PercentLimit" in why
    assert "emulated-node-" in why
    assert "node-1" in _cli(stack, "top")
    checks = _cli(stack, "doctor", "node-1")
    assert "Agent" in checks
    assert "Devices" in checks
    assert "failed" not in checks
    assert "percent" in _cli(stack, "explain", "PercentLimit").lower()
