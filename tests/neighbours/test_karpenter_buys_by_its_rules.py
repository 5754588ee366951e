# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Real Karpenter buys for the pods that the one in small buys for, on a cluster without kubelets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.cluster import LOCALCLUSTER, LocalCluster, start_localcluster
from demo.progress import run
from e2e.karpenter import NODE_CLASS, karpenter, node_pool
from e2e.stack import Json, eventually
from fakes.autoscaler_cases import CASES, POOL

NAMESPACE = "default"
BOUGHT = {case.name for case in CASES if case.karpenter}
REFUSED = {case.name for case in CASES if not case.karpenter}


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    """A control plane of its own; Karpenter's nodes are objects."""
    home = tmp_path / "cluster"
    monkeypatch.setenv("LOCALCLUSTER_HOME", str(home))
    start_localcluster("--nodes", "0", home=home)
    try:
        with karpenter(cluster := LocalCluster()):
            yield cluster
    finally:
        run(LOCALCLUSTER, "down")


def _apply(cluster: LocalCluster, *bodies: Json) -> None:
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": bodies})
    cluster.kubectl("apply", "--filename", "-", stdin=listed)


def _list(cluster: LocalCluster, kind: str) -> list[Json]:
    listed = cluster.kubectl("get", kind, "--namespace", NAMESPACE, "--output", "json").stdout
    found: list[Json] = json.loads(listed)["items"]
    return found


def _bound(cluster: LocalCluster) -> set[str]:
    pods = _list(cluster, "pods")
    return {pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")}


def test_karpenter_buys_for_these_pods_and_refuses_those(bare: LocalCluster) -> None:
    _apply(bare, NODE_CLASS, node_pool(POOL, "spot", "1h"))
    _apply(bare, *(case.pod(NAMESPACE, "none") for case in CASES))
    eventually(lambda: _bound(bare) >= BOUGHT, within_s=180, what=f"nodes for {sorted(BOUGHT)}")
    # it has judged every pod by now, and bought a node for each that it serves
    assert _bound(bare) == BOUGHT
    assert len(_list(bare, "nodeclaims")) == len(BOUGHT)
    said = {
        one["involvedObject"]["name"]
        for one in _list(bare, "events")
        if one["reason"] == "FailedScheduling" and "karpenter" in _source(one)
    }
    assert said >= REFUSED, "Karpenter says why"


def _source(event: Json) -> str:
    return str(event.get("reportingComponent") or event.get("source", {}).get("component", ""))
