# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A fake API server for each test, and the product's client pointed at it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fakes.apiserver import FakeApiServer, make_cluster
from ullage.kube.client import K8sCluster


@pytest.fixture
async def api() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        yield server


@pytest.fixture
async def cluster(api: FakeApiServer) -> AsyncIterator[K8sCluster]:
    async with make_cluster(api.url) as client:
        yield client
