# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""More notebooks live on the devices than these have memory for: idle ones are suspended."""

from __future__ import annotations

from collections import Counter

from e2e.stack import Json, Stack, busy_template, eventually

COUNT = 5
"""On two devices, so at least three share one, and each keeps three fifths of it."""
STEPS = 3
NOTEBOOK = """
import time
from ullage_run import lanes
lane = lanes.join()
for number in range(1, 1000):
    with lane.step():
        time.sleep(0.2)
    print("step", number, flush=True)
    time.sleep(15)
"""


def _notebook(name: str, namespace: str, keeps_mib: int) -> Json:
    body = busy_template(3600)
    body["spec"]["containers"][0]["command"] = ["python", "-c", NOTEBOOK]
    notes = {"ullage.dev/lane": f"{keeps_mib}Mi+512Mi", "ullage.dev/lane-switching": "Checkpoint"}
    meta = {"name": name, "namespace": namespace, "labels": {"ullage.dev/share": "60"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta | {"annotations": notes},
        "spec": body["spec"],
    }


def _steps(stack: Stack, namespace: str, name: str) -> int:
    done = stack.cluster.kubectl("logs", name, "--namespace", namespace, check=False)
    return done.stdout.count("step ")


def _places(stack: Stack, namespace: str) -> Counter[tuple[str, int]]:
    return Counter(
        (one["gpu"], one["lane"])
        for node in stack.list("gpunodes.ullage.dev")
        for one in node["spec"].get("slices", [])
        if one["podNamespace"] == namespace and one.get("suspendable")
    )


def _suspended(stack: Stack) -> int:
    """Programs whose memory is on no device now, as the lanes of all nodes say."""
    return sum(
        lane.get("suspended", 0)
        for node in stack.list("gpunodes.ullage.dev")
        for lane in node["status"].get("lanes", [])
    )


def test_notebooks_take_turns_on_memory_that_holds_one_of_them(
    stack: Stack, namespace: str
) -> None:
    nodes = stack.list("gpunodes.ullage.dev")
    devices = [device for node in nodes for device in node["status"]["devices"]]
    assert all(device.get("suspends") for device in devices)
    keeps_mib = min(device["memoryMiB"] for device in devices) * 3 // 5
    names = [f"notebook-{number}" for number in range(COUNT)]
    stack.apply(*[_notebook(name, namespace, keeps_mib) for name in names])
    eventually(
        lambda: sum(_places(stack, namespace).values()) == COUNT,
        within_s=60,
        what="all notebooks are placed",
    )
    places = _places(stack, namespace)
    assert max(places.values()) >= 3
    stack.books_balance()
    eventually(
        lambda: all(_steps(stack, namespace, name) >= STEPS for name in names),
        within_s=300,
        every_s=2,
        what=f"{STEPS} steps of each notebook",
    )
    eventually(
        lambda: _suspended(stack) >= COUNT - len(devices),
        within_s=120,
        what="all are suspended but one for each device, which has memory for no more",
    )
    for pod in stack.list("pods", namespace):
        name = pod["metadata"]["name"]
        (status,) = pod["status"]["containerStatuses"]
        assert status["restartCount"] == 0
        assert "running" in status["state"]
        if places.most_common()[-1][1] > 1:  # no device has one notebook alone
            stack.tells(namespace, name, "LaneSuspended", "LaneResumed")
        told = {one["reason"] for one in stack.events(namespace, name)}
        assert not told & {"SuspendFailed", "RestoreFailed", "MemoryContractExceeded"}
    for name in names:
        stack.delete("pod", name, namespace)
    eventually(lambda: not _places(stack, namespace), within_s=60, what="their slices are released")
    eventually(lambda: not _suspended(stack), within_s=30, what="nothing is suspended any more")
