# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The agreement suite on the fake API server; on a real one it runs with the cluster tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from contract.api.suite import CASES, Case, World
from fakes.apiserver import NAMESPACE, FakeApiServer, make_cluster


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with FakeApiServer() as api, make_cluster(api.url) as cluster:
        api.put(NAMESPACE, {"metadata": {"name": "contract"}})
        api.compact()
        yield World(cluster=cluster, namespace="contract")


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_agrees(case: Case, world: World) -> None:
    await case(world)
