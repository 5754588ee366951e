# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The same steps of all ranks are traced on request, on real kubelets, by unchanged programs.

With ``ULLAGE_E2E_TORCH``, the site-packages of a torch for the Python of the image, a stock DDP
script on gloo is traced; without it, a program of torch's shape, whose profiler writes what torch's
does.
"""

from __future__ import annotations

import base64
import gzip
import json
import os

import pytest

from demo.progress import CommandFailed
from e2e.stack import Json, Stack, busy_template, eventually, share, training_job

TORCH = os.environ.get("ULLAGE_E2E_TORCH", "")
RANKS = 2
READS = "import base64,sys;print(base64.b64encode(open(sys.argv[1],'rb').read()).decode())"
SHAPED = """
import json, os, sys, time, types

def module(name, **parts):
    made = types.ModuleType(name)
    made.__path__ = []
    vars(made).update(parts)
    sys.modules[name] = made
    return made

class profile:
    def __init__(self, activities=(), record_shapes=False, with_stack=False):
        self.marks, self.notes = [], {}
    def start(self):
        self.marks.append(time.time_ns())
    def step(self):
        self.marks.append(time.time_ns())
    def stop(self):
        self.marks.append(time.time_ns())
    def add_metadata_json(self, key, value):
        self.notes[key] = json.loads(value)
    def export_chrome_trace(self, path):
        events = []
        for at, (began, ended) in enumerate(zip(self.marks, self.marks[1:])):
            ts, span = began / 1e3, (ended - began) / 1e3
            common = {"ph": "X", "pid": os.getpid(), "tid": os.getpid()}
            mark = f"ProfilerStep#{at + 1}"
            events.append({**common, "cat": "user_annotation", "name": mark, "ts": ts, "dur": span})
            work = {"cat": "cpu_op", "name": "aten::linear", "ts": ts + span / 4, "dur": span / 2}
            events.append({**common, **work})
        body = {"schemaVersion": 1, "baseTimeNanoseconds": 0, **self.notes, "traceEvents": events}
        with open(path, "w") as file:
            json.dump(body, file)

class Activity:
    CPU, CUDA = 0, 1
"""
OPTIMIZER = """
_hooks = []
def register_optimizer_step_post_hook(hook):
    _hooks.append(hook)
class SGD:
    def step(self):
        for hook in _hooks:
            hook(self, (), {})
"""
SHAPED_LOOP = f"""
os.makedirs("/tmp/site/torch/optim")
for name, text in (("__init__", ""), ("optim/__init__", ""), ("optim/optimizer", {OPTIMIZER!r})):
    with open(f"/tmp/site/torch/{{name}}.py", "w") as file:
        file.write(text)
sys.path.append("/tmp/site")
import torch
from torch.optim.optimizer import SGD  # first: what the hook wraps of autograd is not there
torch.cuda = module("torch.cuda", is_initialized=lambda: False)
module("torch.autograd", kineto_available=lambda: True, _profiler_enabled=lambda: False)
module("torch.profiler", profile=profile, ProfilerActivity=Activity)
optimizer = SGD()
while True:
    time.sleep(0.05)
    optimizer.step()
"""
STOCK_LOOP = """
import sys
sys.path.append("/torch")
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(),
                                                    torch.nn.Linear(256, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    loss = torch.nn.functional.cross_entropy(model(torch.randn(64, 64)), torch.randint(10, (64,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def template() -> Json:
    """Pods of a program that trains until it is ended."""
    program = STOCK_LOOP if TORCH else SHAPED + SHAPED_LOOP
    container = {"command": ["/usr/bin/python3", "-c", program]}
    if not TORCH:
        return busy_template(container=container)
    container["volumeMounts"] = [{"name": "torch", "mountPath": "/torch", "readOnly": True}]
    volume = {"name": "torch", "hostPath": {"path": TORCH, "type": "Directory"}}
    return busy_template(container=container, volumes=[volume])


def request(name: str, namespace: str, **spec: object) -> Json:
    return {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "ProfileRequest",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"ranks": "All", "steps": 5, **spec},
    }


def over(stack: Stack, namespace: str, name: str) -> Json:
    """The status of a request that has ended."""

    def look() -> Json | None:
        status = stack.status("profilerequests.ullage.dev", name, namespace)
        return status if status.get("phase") in ("Done", "Failed") else None

    return eventually(look, within_s=180, what=f"{name} is over")


def running(stack: Stack, namespace: str, name: str, **runtime: str) -> None:
    job = training_job(
        name, namespace, template(), replicas=RANKS, gpu=share(30), runtime=runtime or {}
    )
    stack.apply(job)
    stack.job_reaches(name, namespace, "Running", within_s=180)


def orders(stack: Stack) -> list[Json]:
    return [
        order
        for node in stack.list("gpunodes.ullage.dev")
        for order in node["spec"].get("traces", [])
    ]


def test_all_ranks_trace_the_same_steps_and_keep_their_files(stack: Stack, namespace: str) -> None:
    running(stack, namespace, "digits", inject="Auto")
    before = {pod["metadata"]["uid"] for pod in stack.pods(namespace)}
    ref = {"kind": "TrainingJob", "name": "digits"}
    stack.apply(request("first", namespace, jobRef=ref))
    status = over(stack, namespace, "first")
    assert status["phase"] == "Done", status
    assert status["conditions"][0]["reason"] == "TraceDone", status
    assert [capture["rank"] for capture in status["ranks"]] == list(range(RANKS))
    assert status["result"]["steps"] >= 4
    assert status["window"]["firstStep"] <= status["result"]["firstStep"]
    assert len(status["result"]["ranks"]) == RANKS
    assert {pod["metadata"]["uid"] for pod in stack.pods(namespace)} == before
    eventually(lambda: not orders(stack), within_s=30, what="no order is left on a node")
    told = [event["reason"] for event in stack.tells(namespace, "first", "TraceDone")]
    assert told.count("TraceDone") == 1
    windows = []
    for capture in status["ranks"]:
        path = f"/run/ullage/steps/trace/{_uid(stack, namespace)}-{capture.get('localRank', 0)}"
        words = ("exec", capture["pod"], "--namespace", namespace, "--", "python3", "-c", READS)
        sent = stack.cluster.kubectl(*words, f"{path}.json.gz").stdout
        trace = json.loads(gzip.decompress(base64.b64decode(sent)))
        windows.append(trace["ullage"]["step"])
    assert windows == [status["window"]["firstStep"]] * RANKS


def _uid(stack: Stack, namespace: str) -> str:
    made = stack.get("profilerequests.ullage.dev", "first", namespace)
    assert made is not None
    attempt = made["status"]["attempt"]
    uid: str = made["metadata"]["uid"]
    return uid if attempt == 1 else f"{uid}.{attempt}"


def test_a_job_without_the_hook_says_which_line_to_add(stack: Stack, namespace: str) -> None:
    running(stack, namespace, "plain")
    stack.apply(request("plain", namespace, jobRef={"kind": "TrainingJob", "name": "plain"}))
    status = over(stack, namespace, "plain")
    assert status["conditions"][0]["reason"] == "NotInstrumented"
    assert "inject: Auto" in status["message"]


def test_an_operator_that_dies_during_a_trace_leaves_nothing_stuck(
    stack: Stack, namespace: str
) -> None:
    running(stack, namespace, "digits", inject="Auto")
    ref = {"kind": "TrainingJob", "name": "digits"}
    stack.apply(request("killed", namespace, jobRef=ref, steps=50))
    eventually(lambda: orders(stack), within_s=60, what="the trace is ordered")
    leader = stack.leader()
    stack.cluster.kubectl(
        "delete", "pod", leader, "--namespace", "ullage-system", "--grace-period=0", "--force"
    )
    status = over(stack, namespace, "killed")
    assert status["phase"] == "Done", status
    eventually(lambda: not orders(stack), within_s=60, what="no order is left on a node")


@pytest.mark.parametrize("spec", [{"steps": 51}, {"jobRef": None}, {"ranks": "0,x"}])
def test_the_api_server_refuses_what_makes_no_sense(
    stack: Stack, namespace: str, spec: Json
) -> None:
    wrong = request("wrong", namespace, jobRef={"kind": "Job", "name": "x"})
    wrong["spec"] = {key: value for key, value in {**wrong["spec"], **spec}.items() if value}
    with pytest.raises(CommandFailed, match=r"(?i)invalid"):
        stack.apply(wrong)
