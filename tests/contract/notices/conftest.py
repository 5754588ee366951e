# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import aiohttp
import pytest

from fakes.metadata import MetadataServer
from ullage_node.notices.endpoint import Endpoint

EndpointOf = Callable[[MetadataServer], Endpoint]


@pytest.fixture
async def endpoint_of() -> AsyncIterator[EndpointOf]:
    """The agent's way to an endpoint; patient, because the machine may be busy."""
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        yield lambda server: Endpoint(session, server.url, 20.0)
