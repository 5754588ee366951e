# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Installs Ullage from its charts, as a platform team would."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Final

from demo.cluster import NODE_LABELS, Cluster
from demo.images import LOCAL, ROOT, TAG, build_key
from demo.progress import CommandFailed, Progress

NAMESPACE: Final = "ullage-system"
RELEASE: Final = "ullage"
CHARTS: Final = ROOT / "charts"


def local_values(settings: Mapping[str, str] | None = None) -> dict[str, dict[str, object]]:
    """Chart values of a local installation; ``settings`` are the operator's own."""
    part = {
        "image": {"tag": TAG, "pullPolicy": "Never"},
        # the image's name stays the same when it is built again: this makes its pods new too
        "podAnnotations": {"build": build_key()},
    }
    return {
        "image": {"registry": LOCAL},
        "operator": {**part, "settings": dict(settings or {})},
        "node": {**part, "backend": "emulated", "checkpoint": {"enabled": True}},
    }


def chart_values(settings: Mapping[str, str] | None = None) -> list[str]:
    """:func:`local_values` as words of a helm command."""
    parts = local_values(settings).items()
    return [word for name, part in parts for word in ("--set-json", f"{name}={json.dumps(part)}")]


def install(
    cluster: Cluster, progress: Progress, *, settings: Mapping[str, str] | None = None
) -> None:
    """Install or upgrade both charts and wait until operator and agents are ready."""
    with progress.step("helm install ullage-crds, ullage", expect_s=40):
        cluster.helm(
            "upgrade", "--install", "ullage-crds", str(CHARTS / "ullage-crds"),
            "--namespace", NAMESPACE, "--create-namespace", "--wait",
        )  # fmt: skip
        cluster.helm(
            "upgrade", "--install", RELEASE, str(CHARTS / "ullage"),
            "--namespace", NAMESPACE, "--wait", "--timeout", "15m", *chart_values(settings),
        )  # fmt: skip
    with progress.step("every node offers its devices"):
        agents_rolled(cluster)
        devices_offered(cluster)


def agents_rolled(cluster: Cluster) -> None:
    """Wait until the agents are those of this release: Helm waits for all of them but one."""
    cluster.kubectl(
        "rollout", "status", "daemonset/ullage-node", "--namespace", NAMESPACE, "--timeout=600s"
    )


def devices_offered(cluster: Cluster, limit_s: float = 600.0) -> None:
    """Wait until kubelet counts the slots of every node of ours.

    Raises:
        CommandFailed: a node still offers none.
    """
    slots = "{.items[*].status.allocatable.ullage\\.dev/slot}"
    nodes = cluster.kubectl("get", "nodes", "--selector", NODE_LABELS[0], "--output", "name")
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        done = cluster.kubectl("get", "nodes", "--output", f"jsonpath={slots}")
        if sum(int(count) > 0 for count in done.stdout.split()) == len(nodes.stdout.split()):
            return
        time.sleep(0.5)
    raise CommandFailed(f"not every node offers devices within {limit_s:.0f} s")


def uninstall(cluster: Cluster) -> None:
    """Uninstall the main chart; CRDs and everyone's objects stay."""
    cluster.helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--wait", "--timeout", "15m")
