# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A pool that is gone before its machines are ready has forgotten them; one that waits has not."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest

from bench.api_client import ApiClient
from bench.kopf_kills import NODES, POOLS, Counts, PoolPlace
from ullage.cluster.values.lives import FINALIZER

Json = dict[str, Any]
POOL = "/apis/ullage.dev/v1alpha1/capacitypools/capa-0"


class Server:
    """Objects by their path."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.ready: list[str] = []

    def create(self, path: str, body: Json) -> None:
        self.objects[f"{path}/{body['metadata']['name']}"] = body

    def get(self, path: str) -> Json | None:
        return self.objects.get(path)

    def list(self, path: str) -> list[Json]:
        root = path.partition("?")[0]
        return [body for name, body in self.objects.items() if name.startswith(f"{root}/")]

    def patch(self, path: str, body: str) -> None:
        assert '"True"' in body
        self.ready.append(path)

    def delete(self, path: str) -> None:
        if path.startswith(NODES):
            del self.objects[path]


@pytest.mark.parametrize(("waits_s", "forgets"), [(0.0, True), (100.0, False)])
def test_a_pool_that_ends_before_its_machines_are_ready_forgets_them(
    monkeypatch: pytest.MonkeyPatch, waits_s: float, forgets: bool
) -> None:
    server, counts, now = Server(), Counts(), 1_000.0
    monkeypatch.setattr("bench.kopf_kills.time.monotonic", lambda: now)
    place = PoolPlace(cast(ApiClient, server), POOLS, random.Random(1), counts)
    assert not place.step()
    now += 100.0
    assert not place.step(), "it is not held yet"
    server.objects[POOL]["metadata"]["finalizers"] = [FINALIZER]
    assert place.step()
    machines = counts.machines
    assert len(server.list(NODES)) == machines > 0
    now += waits_s
    assert not place.step()
    assert len(server.ready) == (0 if forgets else machines)
    del server.objects[POOL]
    assert not place.step()
    assert len(counts.forgotten) == (machines if forgets else 0)
    assert (counts.ended, server.list(NODES)) == (1, [])
