# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of tokens and caches are there where the replicas are generative servers."""

from __future__ import annotations

import pytest
from prometheus_client import generate_latest

from ullage_router.dispatcher import Dispatcher
from ullage_router.settings import Backend, Generative, Settings


@pytest.mark.parametrize("generative", [None, Generative()])
async def test_a_router_tells_of_caches_where_there_are_some(generative: Generative | None) -> None:
    settings = Settings(
        backends=(Backend(url="http://127.0.0.1:1"),), objective_s=1.0, generative=generative
    )
    page = generate_latest(Dispatcher(settings).metrics.registry).decode()
    for name in (
        "ullage_replicas_cache_full",
        "ullage_output_tokens",
        "ullage_inter_token_seconds",
    ):
        assert (f"# TYPE {name}" in page) is (generative is not None)
