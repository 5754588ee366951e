# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""An elastic gang on two nodes: it loses one, trains on from its checkpoint, and grows back."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from demo.images import image_name
from e2e.conftest import DEVICES
from e2e.stack import Json, Stack, busy_template, eventually, share, training_job

STEPS = 10_000
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "05-elastic.yaml"
HOLD_S = 300 + 30
"""A running gang grows when five minutes have passed since its last change, and room lasts."""
AWAY = [
    {
        "key": f"node.kubernetes.io/{word}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 5,
    }
    for word in ("not-ready", "unreachable")
]
"""A pod that is taken away soon after its node stopped answering."""


def _elastic(name: str, namespace: str, template: Json | None = None) -> Json:
    """One or two members, no two of them on one device."""
    bounds = {"minReplicas": 1, "maxReplicas": 2}
    checkpoint = {"graceSeconds": 5}
    return training_job(
        name, namespace, template, elasticity=bounds, checkpoint=checkpoint, gpu=share(70)
    )


def _example(namespace: str) -> Json:
    """The example as users apply it, with our images, a folder of its own, and longer."""
    body: Json = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    body["metadata"]["namespace"] = namespace
    body["spec"]["work"]["steps"] = STEPS
    del body["spec"]["profileRef"]  # it stands in another namespace
    container = body["spec"]["template"]["spec"]["containers"][0]
    container["image"] = image_name("examples")
    for entry in container["env"]:
        if entry["name"] == "CHECKPOINT_DIR":
            entry["value"] = f"/checkpoints/{namespace}"
        elif entry["name"] == "STEPS":
            entry["value"] = str(STEPS)
    return body


def _runs_with(stack: Stack, name: str, namespace: str, members: int, within_s: float) -> Json:
    """Wait until so many members run, all made for that number; returns the status."""

    def look() -> Json | None:
        status = stack.job(name, namespace)
        sizes = [
            pod["metadata"]["annotations"].get("ullage.dev/world-size")
            for pod in stack.pods(namespace, name)
            if pod["status"].get("phase") == "Running"
            and "deletionTimestamp" not in pod["metadata"]
        ]
        right = sizes == [str(members)] * members and status.get("replicas") == members
        return status if right and status.get("phase") == "Running" else None

    return eventually(look, within_s=within_s, what=f"{name} runs with {members} members")


def _steps_done(stack: Stack, name: str, namespace: str) -> int:
    """The last step that the first member printed."""
    return max(
        map(int, re.findall(r"^step (\d+)/", stack.logs(f"{name}-0", namespace), re.M)), default=0
    )


def _take_away(stack: Stack, namespace: str, name: str, node: str) -> None:
    """The node takes nothing new, and the member on it goes without a warning."""
    stack.cluster.kubectl("cordon", node)
    lost = next(
        pod["metadata"]["name"]
        for pod in stack.pods(namespace, name)
        if pod["spec"].get("nodeName") == node
    )
    stack.delete("pod", lost, namespace, "--grace-period=0", "--force", "--wait=false")


@pytest.fixture
def second_node(stack: Stack) -> Iterator[str]:
    """node-2, which takes work before, and again whatever happens."""
    for node in DEVICES:  # agents of the test before may have just restarted
        eventually(lambda node=node: stack.takes_work(node), within_s=120, what=f"{node} is ready")
    yield "node-2"
    stack.cluster.kubectl("uncordon", "node-2")
    eventually(lambda: stack.takes_work("node-2"), within_s=120, what="node-2 takes work again")


@pytest.mark.timeout(1800, func_only=True)
def test_training_goes_on_with_what_is_left_and_ends_as_well(
    stack: Stack, namespace: str, second_node: str
) -> None:
    stack.apply(_example(namespace))
    name = "digits-elastic"
    _runs_with(stack, name, namespace, 2, within_s=90)
    # from the log: the status tells progress once a minute, when a fast machine may be done
    eventually(
        lambda: _steps_done(stack, name, namespace) > 600,
        within_s=180,
        what="a checkpoint was saved",
    )
    _take_away(stack, namespace, name, second_node)
    alone = _runs_with(stack, name, namespace, 1, within_s=120)
    assert alone["size"]["reason"] == "Shrunk"
    assert "goes on with 1 of 2 members from its checkpoint" in alone["size"]["message"]
    assert alone.get("restarts", 0) == 0
    assert alone["nodes"] == "node-1"
    stack.tells(namespace, name, "Shrunk")
    found = eventually(
        lambda: re.search(r"resumed at step (\d+)", stack.logs(f"{name}-0", namespace)),
        within_s=30,
        what="it begins where the checkpoint was",
    )
    assert int(found.group(1)) >= 500
    done = stack.job_reaches(name, namespace, "Succeeded", within_s=400)
    assert done.get("restarts", 0) == 0
    log = stack.logs(f"{name}-0", namespace)
    accuracy = re.search(r"test accuracy ([0-9.]+)", log)
    assert accuracy is not None
    print(f"final accuracy {accuracy.group(1)}, resumed at step {found.group(1)}")
    assert float(accuracy.group(1)) > 0.9
    stack.books_balance()


@pytest.mark.skipif(
    not os.environ.get("ULLAGE_E2E_LONG"),
    reason="six minutes of waiting for the hold to end: make test-e2e E2E_LONG=1",
)
@pytest.mark.timeout(1800, func_only=True)
def test_it_grows_back_when_there_is_lasting_room_again(
    stack: Stack, namespace: str, second_node: str
) -> None:
    stack.apply(_elastic("grows", namespace))
    _runs_with(stack, "grows", namespace, 2, within_s=90)
    _take_away(stack, namespace, "grows", second_node)
    _runs_with(stack, "grows", namespace, 1, within_s=90)
    stack.cluster.kubectl("uncordon", second_node)
    grown = _runs_with(stack, "grows", namespace, 2, within_s=HOLD_S + 120)
    assert grown["size"]["reason"] == "Grown"
    assert grown.get("restarts", 0) == 0
    stack.tells(namespace, "grows", "Shrunk", "Grown")
    stack.books_balance()


def test_a_node_that_stops_answering_does_not_tear_the_gang_down_and_gets_nothing(
    stack: Stack, namespace: str, second_node: str
) -> None:
    stack.apply(_elastic("survives", namespace, busy_template(tolerations=AWAY)))
    _runs_with(stack, "survives", namespace, 2, within_s=90)
    stack.cluster.control("stop", "kubelet", second_node)
    try:
        # it is not Ready after a while, its pods are taken away, and 30 s later written off
        alone = _runs_with(stack, "survives", namespace, 1, within_s=240)
        assert alone["nodes"] == "node-1"
        assert alone["size"]["reason"] == "Shrunk"
        assert alone.get("restarts", 0) == 0
        stack.apply(training_job("late", namespace, gpu=share(70)))
        eventually(
            lambda: stack.job("late", namespace).get("decision"),
            within_s=60,
            what="a decision on the late job",
        )
        assert stack.job("late", namespace)["phase"] == "Pending", "node-1 is full, node-2 away"
    finally:
        stack.cluster.control("start", "kubelet", second_node)
    late = stack.job_reaches("late", namespace, "Running", within_s=120)
    assert late["nodes"] == second_node
    stack.books_balance(within_s=120)


def test_urgent_work_takes_what_the_gang_can_spare(stack: Stack, namespace: str) -> None:
    stack.apply(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": f"urgent-{namespace}"},
            "value": 1000,
        }
    )
    try:
        stack.apply(_elastic("gives", namespace))
        _runs_with(stack, "gives", namespace, 2, within_s=90)
        template = busy_template(priorityClassName=f"urgent-{namespace}")
        stack.apply(training_job("urgent", namespace, template, gpu=share(70)))
        stack.job_reaches("urgent", namespace, "Running", within_s=90)
        left = _runs_with(stack, "gives", namespace, 1, within_s=60)
        assert "which has a higher priority" in left["size"]["message"]
        stack.finish("urgent-0", namespace)
        stack.job_reaches("urgent", namespace, "Succeeded", within_s=120)
    finally:
        stack.cluster.kubectl("delete", "priorityclass", f"urgent-{namespace}", check=False)
    stack.books_balance()
