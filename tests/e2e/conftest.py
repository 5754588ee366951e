# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A real cluster for end-to-end tests: two kubelets, Ullage installed from its charts.

One for all tests, or one for each worker of pytest-xdist, which then runs whole files.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pluggy
import pytest

from demo.cluster import LOCALCLUSTER, EmulatedDevice, LocalCluster
from demo.install import NAMESPACE, install
from demo.progress import Progress, run
from demo.start import prepare, start
from e2e.stack import Stack
from e2e.worker import HOME, begin_early, enter_own_network, home_of, logs_of, worker

DEVICES = {
    "node-1": [EmulatedDevice(core=0, percent=60)],
    "node-2": [EmulatedDevice(core=1, percent=60)],
}
KEEP = "ULLAGE_E2E_KEEP"
"""Set to keep the cluster after the tests, for looking around and for a quicker next run."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs the cluster, whose start has limits of its own."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(1200, func_only=True))
    if worker():
        items.sort(key=lambda item: begin_early(item.path.name))


def pytest_unconfigure(config: pytest.Config) -> None:
    """No cluster outlives its worker, however that one ended."""
    workers = 0 if worker() else getattr(config.option, "numprocesses", None) or 0
    for number in range(workers):
        home = home_of(f"gw{number}")
        if Path(home).exists():
            run(LOCALCLUSTER, "down", env={HOME: home})


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
    if name := worker():
        prepare(Progress())
        enter_own_network(name)
    start(local, DEVICES, Progress())
    yield local
    logs = logs_of(worker())
    logs.mkdir(parents=True, exist_ok=True)
    for component in ("operator", "node"):
        selector = f"app.kubernetes.io/component={component}"
        done = local.kubectl(
            "logs", "--namespace", NAMESPACE, "--selector", selector, "--prefix", "--tail=-1",
            check=False,
        )  # fmt: skip
        (logs / f"{component}.log").write_text(done.stdout)
    if worker() or not os.environ.get(KEEP):
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
