# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Real Karpenter on the local cluster, with its own KWOK provider: machines exist as objects only.

Karpenter and KWOK run as processes beside the cluster, from their Go modules.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from demo.cluster import LocalCluster
from demo.images import image_name
from demo.install import install
from demo.progress import Progress
from e2e.stack import Json, Stack, busy_template, eventually, training_job, whole_device
from fakes.provisioner import is_order
from ullage.api.labels import LABEL_NODE, SLOT_RESOURCE

LOGS = Path("build/e2e-logs")
NODEPOOL = "karpenter.sh/nodepool"
REAL_NODES = ("node-1", "node-2")
"""Those of the local cluster, with kubelets and agents."""
POOL = "karpenter-bought"
KARPENTERS = {"Spot": "spot", "OnDemand": "on-demand"}
"""Karpenter's words for types of capacity."""
MEMBER_CPU = 3
SETTINGS = {
    "DISABLE_LEADER_ELECTION": "true",
    "SYSTEM_NAMESPACE": "kube-system",
    "KARPENTER_SERVICE": "karpenter",
    "METRICS_PORT": "18080",
    "HEALTH_PROBE_PORT": "18081",
    "BATCH_MAX_DURATION": "3s",
    "LOG_LEVEL": "debug",
}


def node_pool(name: str, capacity_type: str, consolidate_after: str = "5s") -> Json:
    """A NodePool of ours: one for each CapacityPool, so that its name tells the pools apart."""
    requirement = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity_type]}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "template": {
                "metadata": {"labels": {LABEL_NODE: "true"}},
                "spec": {
                    "requirements": [requirement],
                    "nodeClassRef": {
                        "group": "karpenter.kwok.sh",
                        "kind": "KWOKNodeClass",
                        "name": "default",
                    },
                },
            },
            "disruption": {
                "consolidationPolicy": "WhenEmptyOrUnderutilized",
                "consolidateAfter": consolidate_after,
            },
        },
    }


NODE_CLASS: Json = {
    "apiVersion": "karpenter.kwok.sh/v1alpha1",
    "kind": "KWOKNodeClass",
    "metadata": {"name": "default"},
}


@contextmanager
def karpenter(cluster: LocalCluster) -> Iterator[None]:
    """Karpenter buys nodes while this lasts; what it bought goes with its NodePools before."""
    program, kwok = cluster.tool("karpenter"), cluster.tool("kwok")
    cluster.kubectl("apply", "--filename", str(program.parent / "crds.yaml"), "--server-side")
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=600s", "crd", "--all")
    plays = [
        str(kwok),
        f"--kubeconfig={cluster.kubeconfig}",
        f"--config={kwok.parent / 'stages.yaml'}",
        "--manage-all-nodes=false",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        "--cidr=10.160.0.0/12",
    ]
    with ExitStack() as processes:
        processes.enter_context(process("kwok", plays, {}))
        settings = SETTINGS | {"KUBECONFIG": str(cluster.kubeconfig)}
        processes.enter_context(process("karpenter", [str(program)], settings))
        yield


@contextmanager
def agents(cluster: LocalCluster) -> Iterator[None]:
    """What runs on a bought node: an agent with one device, and kubelet's count of its slots."""
    words = [sys.executable, "-m", "bench.fleet", str(cluster.kubeconfig), "1", *REAL_NODES]
    done = threading.Event()
    counting = threading.Thread(target=_count_slots, args=(cluster, done))
    with process("fleet", words, {"PYTHONPATH": os.pathsep.join(sys.path)}):
        counting.start()
        try:
            yield
        finally:
            done.set()
            counting.join()


def _count_slots(cluster: LocalCluster, done: threading.Event) -> None:
    counted: set[str] = set()
    slots = {SLOT_RESOURCE: "8"}
    patch = json.dumps({"status": {"capacity": slots, "allocatable": slots}})
    while not done.wait(1.0):
        listed = cluster.kubectl("get", "nodes", "-l", NODEPOOL, "-o", "name", check=False)
        for node in set(listed.stdout.split()) - counted:
            words = ("patch", node, "--subresource=status", "--type=merge", "--patch", patch)
            if cluster.kubectl(*words, check=False).returncode == 0:
                counted.add(node)


@contextmanager
def process(name: str, words: list[str], settings: Mapping[str, str]) -> Iterator[None]:
    """A program beside the cluster, while this lasts; it must not end before."""
    LOGS.mkdir(parents=True, exist_ok=True)
    with (LOGS / f"{name}.log").open("w") as log:
        process = subprocess.Popen(
            words, env={**os.environ, **settings}, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield
            assert process.poll() is None, f"{name} ended: see {log.name}"
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def capacity_pool(capacity_type: str = "Spot") -> Json:
    """The CapacityPool of the NodePool."""
    return {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "CapacityPool",
        "metadata": {"name": POOL},
        "spec": {
            "type": "emulated",
            "zone": "test-zone-a",
            "capacityType": capacity_type,
            "accelerator": "emulated",
            "gpusPerInstance": 1,
            "max": 4,
            "nodeSelector": {NODEPOOL: POOL},
            "priceSource": {"type": "Static", "static": {"pricePerHour": "1.00"}},
        },
    }


def a_job(name: str, namespace: str, replicas: int = 1) -> Json:
    container = {"resources": {"requests": {"cpu": str(MEMBER_CPU), "memory": "64Mi"}}}
    return training_job(
        name,
        namespace,
        busy_template(3600, container=container),
        gpu=whole_device(),
        replicas=replicas,
        work={"steps": 1000},
        checkpoint={"graceSeconds": 5},
        cost={"objective": "CostPerWork", "onDemandFallback": True},
    )


@contextmanager
def market_of(stack: Stack, capacity_type: str = "Spot") -> Iterator[None]:
    """A pool of machines that Karpenter buys while this lasts."""
    install(
        stack.cluster, Progress(), settings={"ULLAGE_DECIDE_ORDER_IMAGE": image_name("operator")}
    )
    with karpenter(stack.cluster):
        stack.apply(NODE_CLASS, node_pool(POOL, KARPENTERS[capacity_type]))
        stack.apply(capacity_pool(capacity_type))
        eventually(
            lambda: (stack.get("nodepools", POOL) or {}).get("status", {}).get("conditions"),
            within_s=60,
            what="Karpenter knows the NodePool",
        )
        try:
            yield
        finally:
            stack.cluster.kubectl("delete", "capacitypools.ullage.dev", POOL)
            stack.cluster.kubectl("delete", "nodepools", POOL, "--timeout=600s", check=False)
            stack.cluster.kubectl("delete", "nodeclaims", "--all", "--timeout=600s", check=False)
            stack.cluster.kubectl("delete", "nodes", "--selector", NODEPOOL, "--timeout=600s")


def bound(stack: Stack, namespace: str) -> dict[str, str]:
    """Nodes that orders are bound to, by name of the order."""
    return {
        pod["metadata"]["name"]: pod["spec"].get("nodeName", "")
        for pod in stack.pods(namespace)
        if is_order(pod) and pod["spec"].get("nodeName")
    }
