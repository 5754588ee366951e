# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Programs whose steps are traced by benchmarks and end-to-end tests, and the pods that run them.

With the site-packages of a torch for the Python of the image, a stock DDP script on gloo; without,
a program of torch's shape, whose profiler writes what torch's does and whose ranks do not meet.
"""

from __future__ import annotations

from typing import Any, Final

from demo.images import image_name

Json = dict[str, Any]

SHAPED: Final = """
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
OPTIMIZER: Final = """
_hooks = []
def register_optimizer_step_post_hook(hook):
    _hooks.append(hook)
class SGD:
    def step(self):
        for hook in _hooks:
            hook(self, (), {})
"""
SHAPED_LOOP: Final = f"""
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
times = {{at.split("x")[0]: float(at.split("x")[1]) for at in os.environ.get("SLOW", "").split()}}
while True:
    time.sleep(0.05 * times.get(os.environ.get("RANK"), 1))
    optimizer.step()
"""
"""``SLOW`` names ranks that take longer: ``1x3`` makes rank 1 take three times as long."""
STOCK: Final = """
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


def template(torch: str, *, env: list[Json] | None = None, **pod: Any) -> Json:
    """A pod template of a program that trains until it is ended.

    Args:
        torch: Site-packages with torch on this machine; empty = the program of torch's shape.
        env: Of its container.
        pod: Fields of the pod's spec.
    """
    container = {
        "name": "main",
        "image": image_name("examples"),
        "imagePullPolicy": "Never",
        "command": ["/usr/bin/python3", "-c", STOCK if torch else SHAPED + SHAPED_LOOP],
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}, *(env or [])],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "runAsNonRoot": True},
    }
    spec: Json = {"containers": [container], "terminationGracePeriodSeconds": 5, **pod}
    if torch:
        container["volumeMounts"] = [{"name": "torch", "mountPath": "/torch", "readOnly": True}]
        spec["volumes"] = [{"name": "torch", "hostPath": {"path": torch, "type": "Directory"}}]
    return {"spec": spec}


def request(name: str, namespace: str, **spec: object) -> Json:
    """A ProfileRequest for five steps of all ranks, unless told otherwise."""
    return {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "ProfileRequest",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"ranks": "All", "steps": 5, **spec},
    }


def indexed_job(name: str, namespace: str, ranks: int, torch: str, percent: int) -> list[Json]:
    """A Job of another controller's kind that shares devices by a label, and its Service.

    Args:
        name: Of both.
        namespace: Of both.
        ranks: Pods.
        torch: As of :func:`template`.
        percent: Share of a device of each pod.
    """
    at = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    rank = {"valueFrom": {"fieldRef": {"fieldPath": at}}}
    pod = adopted(name, f"{name}-0", rank, torch, ranks=ranks, percent=percent)
    return [service(name, namespace), numbered(name, namespace, ranks, pod)]


def adopted(
    name: str,
    master: str,
    rank: Json,
    torch: str,
    *,
    ranks: int,
    percent: int,
    labels: dict[str, str] | None = None,
) -> Json:
    """A pod template of another controller: it shares a device and has the hook by its labels.

    Args:
        name: The job's, and that of the Service by which its pods find each other.
        master: Host name of the pod of rank 0.
        rank: Value of ``RANK``, as the controllers of training jobs set it.
        torch: As of :func:`template`.
        ranks: Pods of the job.
        percent: Share of a device.
        labels: More of them.
    """
    values = {"WORLD_SIZE": f"{ranks}", "MASTER_ADDR": f"{master}.{name}", "MASTER_PORT": "29500"}
    env: list[Json] = [{"name": key, "value": value} for key, value in values.items()]
    body = template(torch, env=[*env, {"name": "RANK", **rank}], subdomain=name)
    shares = {"ullage.dev/share": f"{percent}", "ullage.dev/inject": "Auto"}
    body["metadata"] = {"labels": {"app": name, **shares, **(labels or {})}}
    return body


def numbered(name: str, namespace: str, pods: int, pod: Json) -> Json:
    """A Job whose pods are numbered."""
    pod["spec"]["restartPolicy"] = "Never"
    spec = {"completionMode": "Indexed", "parallelism": pods, "completions": pods, "template": pod}
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def service(name: str, namespace: str) -> Json:
    """By it the pods of a job find each other before they are ready."""
    spec = {"clusterIP": "None", "selector": {"app": name}, "publishNotReadyAddresses": True}
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}
