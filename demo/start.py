# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Starts a cluster whose nodes have our images; as a program: makes all that it needs for that."""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from demo.cluster import LOCALCLUSTER, Devices, KindCluster, LocalCluster
from demo.images import ROOT, build_all, building
from demo.progress import Progress, ending_with_a_reason, run


def prepare(progress: Progress) -> None:
    """Compile a real Kubernetes and helm, and build the images; a start then needs no network.

    Processes that do so at once wait for the first one.

    Raises:
        SystemExit: a tool is missing.
        CommandFailed: a step ended with an error.
    """
    lock = ROOT / "build" / "prepared.lock"
    lock.parent.mkdir(exist_ok=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with (
            building(progress),
            progress.step("compile a real Kubernetes and helm", expect_s=400),
        ):
            run(LOCALCLUSTER, "build", "--install-deps")
            run(LOCALCLUSTER, "build", "--tools", "helm")
        build_all(progress)


@contextmanager
def compiling_helm(progress: Progress) -> Iterator[None]:
    """Compile helm while the body runs, where that is left to do.

    What fails in it is told where helm is first used.

    Args:
        progress: Told when helm takes longer than the body.
    """
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        [LOCALCLUSTER, "build", "--tools", "helm"], stdout=quiet, stderr=quiet
    ) as build:
        try:
            yield
        except BaseException:
            build.terminate()
            raise
        if build.poll() is None:
            with progress.step("compile helm", expect_s=60):
                build.wait()


def start(cluster: LocalCluster | KindCluster, devices: Devices, progress: Progress) -> None:
    """Start the cluster, build images and helm meanwhile, and load the images into every node.

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
        # kind's users have a helm of their own
        with compiling_helm(progress) if isinstance(cluster, LocalCluster) else nullcontext():
            archives = build_all(progress)
            with progress.step("load the images into every node", expect_s=20):
                cluster.load_images(list(archives.values()))


if __name__ == "__main__":
    with ending_with_a_reason():
        prepare(Progress())
