# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One real cluster for all end-to-end tests: two kubelets, Ullage installed from its charts."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pluggy
import pytest

from demo.cluster import EmulatedDevice, LocalCluster
from demo.install import NAMESPACE, install
from demo.progress import Progress
from demo.start import start
from e2e.stack import Stack

DEVICES = {
    "node-1": [EmulatedDevice(core=0, percent=60)],
    "node-2": [EmulatedDevice(core=1, percent=60)],
}
KEEP = "ULLAGE_E2E_KEEP"
"""Set to keep the cluster after the tests, for looking around and for a quicker next run."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs the cluster, and a slow machine may take its time."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(600))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pluggy.Result[pytest.TestReport]]:
    """A failed test reports how its namespace looks at that moment; later it is cleaned up."""
    report = (yield).get_result()
    values: dict[str, Any] = getattr(item, "funcargs", {})
    if report.failed and report.when == "call" and {"stack", "namespace"} <= values.keys():
        report.sections.append(("cluster", values["stack"].describe(values["namespace"])))


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """A real Kubernetes with our images, nothing installed yet."""
    if os.geteuid() != 0:
        pytest.fail("end-to-end tests start kubelets and need root: run make test-e2e as root")
    local = LocalCluster()
    start(local, DEVICES, Progress())
    yield local
    logs = Path("build/e2e-logs")
    logs.mkdir(parents=True, exist_ok=True)
    for component in ("operator", "node"):
        selector = f"app.kubernetes.io/component={component}"
        done = local.kubectl(
            "logs", "--namespace", NAMESPACE, "--selector", selector, "--prefix", "--tail=-1",
            check=False,
        )  # fmt: skip
        (logs / f"{component}.log").write_text(done.stdout)
    if not os.environ.get(KEEP):
        local.down()


@pytest.fixture(scope="session")
def stack(cluster: LocalCluster) -> Iterator[Stack]:
    """Ullage, installed."""
    install(cluster, Progress())
    found = Stack(cluster)
    yield found
    found.close()


@pytest.fixture
def namespace(stack: Stack) -> Iterator[str]:
    """A namespace of the test's own; its slices are released before the next test starts."""
    with stack.own_namespace() as name:
        yield name
