# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Starts a cluster whose nodes have our images."""

from __future__ import annotations

from demo.cluster import Devices, KindCluster, LocalCluster
from demo.images import build_all, building
from demo.progress import Progress


def start(cluster: LocalCluster | KindCluster, devices: Devices, progress: Progress) -> None:
    """Start the cluster, build the images meanwhile, and load them into every node.

    Args:
        cluster: To start, or to reuse.
        devices: Of each node.
        progress: Told of each step.

    Raises:
        SystemExit: a tool is missing.
        CommandFailed: a step ended with an error.
    """
    with building(progress):
        with progress.step("start a real Kubernetes", expect_s=20):
            cluster.up(devices)
        archives = build_all(progress)
    with progress.step("load the images into every node", expect_s=20):
        cluster.load_images(list(archives.values()))
