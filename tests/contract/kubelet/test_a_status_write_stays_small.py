# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the API server stores of a node, measured on the server that keeps managedFields."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any, cast

import orjson
import pytest

from bench import node_status
from fakes.apiserver import FakeApiServer
from fakes.kubelet_node import NodeRig
from ullage.api.labels import MANAGER_NODE, MANAGER_OPERATOR
from ullage.api.observations import MAX_OBSERVATIONS, Observation
from ullage.api.readers import JsonObject
from ullage.ports import GPU_NODE
from ullage_node.api_client import WRITE_GUARD, ApiClient
from ullage_node.settings import ApiSettings
from ullage_node.status import LEAST_ROWS
from ullage_node.telemetry.observations import MOST_WAITING, ObservationBook

LIMIT = 16 * 1024
NAME = "gpu-node-0001.example.internal"


@pytest.fixture
async def api() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        yield server


async def stored(api: FakeApiServer, sharers: int, told: Sequence[Observation]) -> dict[str, Any]:
    """The object after operator and agent have written it as they do."""
    api.put(GPU_NODE, {"metadata": {"name": NAME}, "spec": {"epoch": 0}})
    made = api.get(GPU_NODE, NAME)
    assert made is not None
    async with ApiClient(ApiSettings(server=api.url), {}) as client:
        body = cast(dict[str, Any], node_status.status_body(sharers, told))
        body["metadata"]["uid"] = made["metadata"]["uid"]
        spec: JsonObject = {
            "apiVersion": body["apiVersion"],
            "kind": "GPUNode",
            "metadata": {"name": NAME},
            "spec": node_status.spec_of(sharers),
        }
        await client._call(
            "PATCH",
            f"/apis/{body['apiVersion']}/gpunodes/{NAME}",
            WRITE_GUARD,
            query={"fieldManager": MANAGER_OPERATOR, "force": "true"},
            body=spec,
            content_type="application/apply-patch+yaml",
        )
        await client.apply_status(NAME, body)
    found = api.get(GPU_NODE, NAME)
    assert found is not None
    return found


def status_bytes(found: dict[str, Any]) -> int:
    """Status and what names its fields."""
    entries = found["metadata"]["managedFields"]
    ours = [one for one in entries if one["manager"] == MANAGER_NODE]
    assert len(ours) == 1
    return len(orjson.dumps(found["status"])) + len(orjson.dumps(ours))


def full_book() -> ObservationBook:
    book = ObservationBook(clock=iter(range(0, 10**9, 100)).__next__)
    for row in node_status.rows(MOST_WAITING):
        book.take(row)
    assert len(book) == MOST_WAITING
    return book


async def test_a_status_in_steady_state_stays_below_16_kib(api: FakeApiServer) -> None:
    found = await stored(api, 2, ())
    assert len(found["status"]["slices"]) == 16
    assert status_bytes(found) < LIMIT


async def test_it_does_so_with_more_observations_waiting_than_are_ever_kept(
    api: FakeApiServer,
) -> None:
    few = await stored(api, 1, full_book().rows)
    assert len(few["status"]["observations"]) >= 8
    assert status_bytes(few) < LIMIT
    api.remove(GPU_NODE, NAME)
    usual = await stored(api, 2, full_book().rows)
    assert len(usual["status"]["observations"]) >= LEAST_ROWS
    assert status_bytes(usual) < LIMIT


async def test_the_names_of_fields_do_not_grow_with_the_lists(api: FakeApiServer) -> None:
    few = len(orjson.dumps((await stored(api, 1, ()))["metadata"]["managedFields"]))
    api.remove(GPU_NODE, NAME)
    many = await stored(api, 8, node_status.rows(MAX_OBSERVATIONS))
    assert len(orjson.dumps(many["metadata"]["managedFields"])) <= few + 100


async def test_the_bench_computes_what_is_stored(api: FakeApiServer) -> None:
    computed, _ = node_status.sizes(2, full_book().rows, node_status.CONDITIONS)
    found = status_bytes(await stored(api, 2, full_book().rows))
    assert abs(found - computed) < 0.1 * computed


@pytest.mark.slow
async def test_every_row_reaches_an_operator_that_was_away_and_is_told_once_it_reads() -> None:
    rows = node_status.rows(60)
    async with NodeRig() as node:
        agent = await node.start_agent()
        await node.until(node.status)
        for row in rows:
            agent.telemetry.book.take(row)
        for position in range(0, len(rows), 5):
            newest = rows[position + 4].id
            await node.until(lambda newest=newest: newest in ids(node))
            assert ids(node)[0] == rows[position].id, "in order, and what was taken in is gone"
            node.write_spec(observationsRead=newest)
            await node.until(lambda newest=newest: newest not in ids(node))
        assert len(agent.telemetry.book) == 0
        await agent.publisher.publish()  # after it none is under way
        writes = agent.publisher.writes
        await agent.publisher.publish()
        assert agent.publisher.writes == writes


async def test_an_agent_that_begins_does_not_tell_again_what_was_taken_in() -> None:
    first, second = (replace(row, id=f"row-{n}") for n, row in enumerate(node_status.rows(2)))
    async with NodeRig() as node:
        agent = await node.start_agent()
        agent.telemetry.book.take(first)
        agent.telemetry.book.take(second)
        await node.until(lambda: ids(node) == ["row-0", "row-1"])
        await node.kill_agent()
        node.write_spec(observationsRead="row-0")
        await node.start_agent()
        await node.until(lambda: ids(node) == ["row-1"])


def ids(node: NodeRig) -> list[str]:
    return [row["id"] for row in node.status().get("observations") or []]
