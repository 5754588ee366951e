# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The agreement suite on a real API server: what it refutes is a bug of the fake.

It has a control plane of its own, without nodes and without Ullage, so that no one else writes
to the objects of a case.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from contract.api.suite import CASES, Case
from contract.api.suite.real import SLOW, real_world
from demo.images import ROOT
from e2e.stack import BUSY_MACHINE
from fakes.apiserver import CRD
from ullage.kube.client import K8sCluster
from ullage.kube.credentials import find_credentials
from ullage.kube.self_test import SelfTestFailed, check_crds

LOCALCLUSTER = str(ROOT / "localcluster" / "run")


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A bare control plane with our CRDs."""
    home = tmp_path_factory.mktemp("control-plane")
    environment = {**os.environ, "LOCALCLUSTER_HOME": str(home)}
    up = subprocess.run(
        [LOCALCLUSTER, "up", "--nodes", "0"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if up.returncode != 0:
        pytest.fail(f"the control plane did not start:\n{up.stdout}{up.stderr}")
    try:
        path = str(home / "kubeconfig")
        asyncio.run(install_crds(path))
        yield path
    finally:
        subprocess.run([LOCALCLUSTER, "down"], env=environment, check=True)


async def install_crds(kubeconfig: str) -> None:
    """Apply the generated CRDs and wait until they are served."""
    cluster = K8sCluster(await find_credentials(kubeconfig), limits=SLOW)
    try:
        for path in sorted((Path(ROOT) / "crds").glob("*.yaml")):
            body = yaml.safe_load(path.read_text())
            await cluster.apply(CRD, body["metadata"]["name"], body, manager="tests")
        async with asyncio.timeout(60 * BUSY_MACHINE):
            while True:
                try:
                    await check_crds(cluster)
                except SelfTestFailed:
                    await asyncio.sleep(0.1)
                else:
                    break
    finally:
        await cluster.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_the_real_one_agrees(case: Case, kubeconfig: str) -> None:
    async with real_world(kubeconfig) as world:
        await case(world)
