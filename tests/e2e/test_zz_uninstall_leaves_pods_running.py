# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""An uninstall takes everything of ours off the nodes and leaves the users' pods running.

The name makes it the last: it takes Ullage away, installs it again, and sees the jobs go on.
"""

from __future__ import annotations

from demo.install import NAMESPACE, RELEASE, install, uninstall
from demo.progress import Progress
from e2e.stack import Stack, busy_template, eventually, share, training_job


def test_an_upgrade_and_its_rollback_keep_everything_running(stack: Stack, namespace: str) -> None:
    stack.apply(training_job("through", namespace))
    stack.job_reaches("through", namespace, "Running")
    before = stack.holdings(namespace)
    install(stack.cluster, Progress(), settings={"ULLAGE_WRITE_PER_SECOND": "60"})
    stack.job_reaches("through", namespace, "Running")
    assert stack.holdings(namespace) == before
    stack.books_balance()
    stack.cluster.helm("rollback", RELEASE, "--namespace", NAMESPACE, "--wait", "--timeout", "15m")
    stack.books_balance()
    assert stack.holdings(namespace) == before


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
        stack.nothing_is_left()
        assert stack.job("stays", namespace)["phase"] == "Running"  # objects stay
    finally:
        install(stack.cluster, Progress())

    def adopted() -> bool:
        return [piece["podUID"] for piece in stack.slices()] == [uid]

    eventually(adopted, within_s=60, what="the running pod keeps its slice")
    stack.apply(training_job("next", namespace, busy_template(2), gpu=share(20)))
    stack.job_reaches("next", namespace, "Succeeded", within_s=120)
    stack.books_balance()
