# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A share is a limit from the first instruction on, and what is observed is reported."""

from __future__ import annotations

import time
from pathlib import Path

from e2e.stack import Stack, busy_template, eventually, share, training_job

DEVICE_PERCENT = 60
PERIOD_US = 100_000
STOCK_IMAGE = "localcluster.local/pause:1"
"""One static program without a shell; every node has it."""
TORCH = """
_hooks = []
def register_optimizer_step_post_hook(hook):
    _hooks.append(hook)
class SGD:
    def step(self):
        for hook in _hooks:
            hook(self, (), {})
"""
TRAIN = f"""
import os, sys, time
os.makedirs("/tmp/site/torch/optim")
for name, text in (("__init__", ""), ("optim/__init__", ""), ("optim/optimizer", {TORCH!r})):
    with open(f"/tmp/site/torch/{{name}}.py", "w") as module:
        module.write(text)
sys.path.append("/tmp/site")
assert os.environ["PYTHONPATH"].endswith(":/mine"), os.environ["PYTHONPATH"]
from torch.optim.optimizer import SGD
optimizer = SGD()
while True:
    optimizer.step()
    time.sleep(0.05)
"""
"""A program of torch's shape for an interpreter that has no package of ours."""
VERIFIED_WITHIN_S = 12
"""A container that is not verified for 10 s has failed."""


def _quota(pod_uid: str) -> list[int]:
    """CPU quotas of the containers of a pod, in microseconds per period, from the kernel."""
    found = []
    for root in (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")):
        for name in ("cpu.cfs_quota_us", "cpu.max"):
            for path in root.glob(f"**/pod{pod_uid}/*/{name}"):
                word = path.read_text().split()[0]
                if word.lstrip("-").isdigit() and int(word) > 0:
                    found.append(int(word))
        if found:
            break
    return found


def test_the_kernel_holds_the_share(stack: Stack, namespace: str) -> None:
    stack.apply(training_job("held", namespace, busy_template(pause_s=None), gpu=share(40)))
    stack.job_reaches("held", namespace, "Running")
    pod = stack.pods(namespace)[0]
    expected = PERIOD_US * 40 * DEVICE_PERCENT // 10_000
    assert expected in _quota(pod["metadata"]["uid"])


def test_predicted_and_observed_slowdown_stand_side_by_side(stack: Stack, namespace: str) -> None:
    for name in ("a", "b"):
        job = training_job(name, namespace, busy_template(pause_s=None), gpu=share(45))
        job["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "node-1"}
        stack.apply(job)
    for name in ("a", "b"):
        stack.job_reaches(name, namespace, "Running")

    def observed() -> bool:
        sharing = stack.job("a", namespace).get("sharing", {})
        return bool(sharing.get("observed"))

    eventually(observed, within_s=150, what="an observed slowdown")
    sharing = stack.job("a", namespace)["sharing"]
    assert sharing["percent"] == 45
    # 45 % of the device: the step takes at least 1 / 0.45 as long as alone on all of it
    assert float(sharing["predicted"]) > 2.0
    assert float(sharing["observed"]) > 0  # how much also depends on what else the machine does


def test_a_slice_is_attached_and_enforced(stack: Stack, namespace: str) -> None:
    stack.apply(training_job("seen", namespace))
    stack.job_reaches("seen", namespace, "Running")

    def enforced() -> bool:
        conditions = {c["type"]: c for c in stack.job("seen", namespace)["conditions"]}
        return conditions.get("Enforced", {}).get("status") == "True"

    eventually(enforced, within_s=30, what="condition Enforced")


def test_a_cpu_limit_below_the_share_is_pointed_out(stack: Stack, namespace: str) -> None:
    resources = {"requests": {"cpu": "50m"}, "limits": {"cpu": "100m"}}
    template = busy_template(container={"resources": resources})
    stack.apply(training_job("tight", namespace, template, gpu=share(80)))
    stack.job_reaches("tight", namespace, "Running")

    def told() -> bool:
        return any(e["reason"] == "CPULimitBelowShare" for e in stack.events(namespace, "tight-0"))

    eventually(told, within_s=30, what="an Event on the pod")


def test_an_image_without_our_library_or_python_shares_a_device(
    stack: Stack, namespace: str
) -> None:
    container = {
        "name": "main",
        "image": STOCK_IMAGE,
        "imagePullPolicy": "Never",
        "securityContext": {"allowPrivilegeEscalation": False, "runAsUser": 1000},
    }
    stock = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}
    for name, template in (("stock", stock), ("beside", busy_template())):
        job = training_job(name, namespace, template)
        job["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "node-1"}
        stack.apply(job)

    def proofs() -> dict[str, str]:
        uids = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in stack.pods(namespace)}
        node = stack.get("gpunodes.ullage.dev", "node-1") or {}
        slices = node.get("status", {}).get("slices", [])
        return {uids[s["podUID"]]: s.get("proof", "") for s in slices if s["podUID"] in uids}

    proven = {"stock-0": "Cgroup", "beside-0": "Cgroup"}
    eventually(lambda: proofs() == proven, within_s=90, what="both shares are proven")
    time.sleep(VERIFIED_WITHIN_S)
    assert proofs() == proven, "it stays so when the time to verify has passed"
    assert stack.job("stock", namespace)["phase"] == "Running"


def test_steps_of_an_image_without_our_library_are_counted_on_request(
    stack: Stack, namespace: str
) -> None:
    container = {
        "command": ["/usr/bin/python3", "-c", TRAIN],
        "env": [{"name": "PYTHONPATH", "value": "/mine"}],
    }
    template = busy_template(container=container)
    stack.apply(training_job("counted", namespace, template, runtime={"inject": "Auto"}))
    stack.job_reaches("counted", namespace, "Running")

    def steps() -> int:
        (pod,) = stack.pods(namespace)
        uid = pod["metadata"]["uid"]
        nodes = stack.list("gpunodes.ullage.dev")
        slices = [part for node in nodes for part in node.get("status", {}).get("slices", [])]
        return sum(part.get("steps", 0) for part in slices if part["podUID"] == uid)

    eventually(lambda: steps() > 10, within_s=90, what="steps are counted")
