# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Real Karpenter on the local cluster, with its own KWOK provider: machines exist as objects only.

Karpenter and KWOK run as processes beside the cluster, from their Go modules.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from demo.cluster import LocalCluster

Json = dict[str, Any]
LOGS = Path("build/e2e-logs")
NODEPOOL = "karpenter.sh/nodepool"
SETTINGS = {
    "DISABLE_LEADER_ELECTION": "true",
    "SYSTEM_NAMESPACE": "kube-system",
    "KARPENTER_SERVICE": "karpenter",
    "METRICS_PORT": "18080",
    "HEALTH_PROBE_PORT": "18081",
    "BATCH_MAX_DURATION": "3s",
    "LOG_LEVEL": "debug",
}


def node_pool(name: str, capacity_type: str) -> Json:
    """A NodePool of ours: one for each CapacityPool, so that its name tells the pools apart."""
    requirement = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity_type]}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "template": {
                "spec": {
                    "requirements": [requirement],
                    "nodeClassRef": {
                        "group": "karpenter.kwok.sh",
                        "kind": "KWOKNodeClass",
                        "name": "default",
                    },
                }
            },
            "disruption": {
                "consolidationPolicy": "WhenEmptyOrUnderutilized",
                "consolidateAfter": "5s",
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
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
    plays = [
        str(kwok),
        f"--kubeconfig={cluster.kubeconfig}",
        f"--config={kwok.parent / 'stages.yaml'}",
        "--manage-all-nodes=false",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        "--cidr=10.160.0.0/12",
    ]
    with ExitStack() as processes:
        processes.enter_context(_process("kwok", plays, {}))
        settings = SETTINGS | {"KUBECONFIG": str(cluster.kubeconfig)}
        processes.enter_context(_process("karpenter", [str(program)], settings))
        yield


@contextmanager
def _process(name: str, words: list[str], settings: Mapping[str, str]) -> Iterator[None]:
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
