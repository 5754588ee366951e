# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""An uninstall takes everything of ours off the nodes and leaves the users' pods running.

The name makes it the last: it takes Ullage away, installs it again, and sees the jobs go on.
"""

from __future__ import annotations

from pathlib import Path

from demo.install import install, uninstall
from demo.progress import Progress
from e2e.stack import Stack, busy_template, eventually, share, training_job

OUR_FOLDERS = {
    "/run/cdi": ["ullage.dev*"],
    "/var/lib/ullage": ["bin/*", "slots/*", "node/*"],
    "/run/ullage": ["steps/*"],
    "/var/lib/kubelet": ["device-plugins/ullage*"],
}


def _left_behind(stack: Stack) -> list[Path]:
    return [
        path
        for node in ("node-1", "node-2")
        for folder, patterns in OUR_FOLDERS.items()
        for pattern in patterns
        for path in stack.cluster.private(node, folder).glob(pattern)
        if not path.is_dir()
    ]


def test_an_upgrade_keeps_everything_running(stack: Stack, namespace: str) -> None:
    stack.apply(training_job("through", namespace))
    stack.job_reaches("through", namespace, "Running")
    before = [pod["metadata"]["uid"] for pod in stack.pods(namespace)]
    install(stack.cluster, Progress(), settings={"ULLAGE_WRITE_PER_SECOND": "60"})
    stack.job_reaches("through", namespace, "Running")
    assert [pod["metadata"]["uid"] for pod in stack.pods(namespace)] == before
    stack.books_balance()


def test_an_uninstall_leaves_pods_and_takes_everything_else(stack: Stack, namespace: str) -> None:
    stack.apply(training_job("stays", namespace, gpu=share(40)))
    stack.job_reaches("stays", namespace, "Running")
    uid = stack.pods(namespace)[0]["metadata"]["uid"]
    uninstall(stack.cluster)
    try:
        pod = stack.get("pods", "stays-0", namespace)
        assert pod is not None
        assert pod["metadata"]["uid"] == uid
        assert pod["status"]["phase"] == "Running"
        assert _left_behind(stack) == []
        assert stack.job("stays", namespace)["phase"] == "Running"  # objects stay
    finally:
        install(stack.cluster, Progress())

    def adopted() -> bool:
        slices = [s for n in stack.list("gpunodes.ullage.dev") for s in n["spec"].get("slices", [])]
        return [s["podUID"] for s in slices] == [uid]

    eventually(adopted, within_s=60, what="the running pod keeps its slice")
    stack.apply(training_job("next", namespace, busy_template(2), gpu=share(20)))
    stack.job_reaches("next", namespace, "Succeeded", within_s=120)
    stack.books_balance()
