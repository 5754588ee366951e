# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Real Karpenter buys for the pods that the one in small buys for; no kubelet is needed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.cluster import LOCALCLUSTER, LocalCluster, start_localcluster
from demo.progress import run
from e2e.stack import Json, eventually
from fakes.autoscaler_cases import CASES
from neighbours.karpenter import NODE_CLASS, NODEPOOL, karpenter, node_pool

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


def test_karpenter_buys_for_these_pods_and_refuses_those(bare: LocalCluster) -> None:
    _apply(bare, NODE_CLASS, *(node_pool(case.name, "spot", "1h") for case in CASES))
    _apply(bare, *(case.pod(NAMESPACE) for case in CASES))

    def bought() -> set[str]:
        return {one["metadata"]["labels"][NODEPOOL] for one in _list(bare, "nodeclaims")}

    def refused() -> set[str]:
        """Pods of which Karpenter said why not."""
        return {
            one["involvedObject"]["name"]
            for one in _list(bare, "events")
            if one["reason"] == "FailedScheduling" and one.get("reportingComponent") == "karpenter"
        }

    eventually(
        lambda: bought() >= BOUGHT and refused() >= REFUSED,
        within_s=180,
        what=f"a verdict on every pod; it has to buy for {sorted(BOUGHT)}",
    )
    assert (bought(), refused() - BOUGHT) == (BOUGHT, REFUSED)
