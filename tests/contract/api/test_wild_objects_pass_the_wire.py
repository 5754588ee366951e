# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Bytes as a real API server may send them: nested 10,000 levels, lines of many megabytes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace

import pytest
from aiohttp import web

from fakes.apiserver import FakeApiServer, make_cluster
from fakes.apiserver.client import QUICK
from ullage.cluster.values.readable import UNREADABLE
from ullage.kube.answers import TooLarge
from ullage.kube.client import K8sCluster
from ullage.ports import GPU_NODE, POD, TRAINING_JOB, Selector

ALL = Selector()
DEEP = b'{"a":' * 9_990 + b"1" + b"}" * 9_990
LONG = b"\\u003c" * 1_500_000


def a_job(name: str, template: bytes = b"{}") -> bytes:
    return b'{"metadata":{"name":"%s","uid":"%s"},"spec":{"template":%s}}' % (
        name.encode(),
        name.encode(),
        template,
    )


async def answer(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    if "watch" in request.query:
        for body in (a_job("a"), a_job("deep", DEEP), a_job("long", b'"%s"' % LONG), a_job("b")):
            await response.write(b'{"type":"ADDED","object":%s}\n' % body)
    elif request.path.endswith("/deep"):
        await response.write(a_job("deep", DEEP))
    else:
        items = b",".join((a_job("a"), a_job("deep", DEEP), a_job("b")))
        await response.write(b'{"metadata":{"resourceVersion":"5"},"items":[%s]}' % items)
    await response.write_eof()
    return response


@pytest.fixture
async def wild() -> AsyncIterator[K8sCluster]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    async with make_cluster(f"http://{host}:{port}") as client:
        yield client
    await runner.cleanup()


async def test_a_list_holds_every_object(wild: K8sCluster) -> None:
    pages = [page async for page in wild.list_paged(TRAINING_JOB, ALL)]
    names = [item["metadata"]["name"] for item in pages[0].items]  # type: ignore[index]
    assert names == ["a", "deep", "b"]
    assert pages[0].resource_version == "5"
    assert "nested" in str(pages[0].items[1][UNREADABLE])


async def test_a_watch_goes_on_after_deep_and_long_lines(wild: K8sCluster) -> None:
    async with aclosing(wild.watch(POD, ALL, resource_version="5", timeout_s=5)) as events:
        seen = [event.object["metadata"]["name"] async for event in events]  # type: ignore[index]
    assert seen == ["a", "deep", "long", "b"]


async def test_one_deep_object_is_read(wild: K8sCluster) -> None:
    found = await wild.get(TRAINING_JOB, "deep", namespace="default")
    assert found["metadata"] == {"name": "deep", "uid": "deep"}


async def test_pages_too_large_to_be_read_are_asked_for_in_smaller_ones() -> None:
    async with FakeApiServer() as server:
        for number in range(40):
            filling = {"template": {"filling": "x" * 10_000}}
            server.put(
                TRAINING_JOB,
                {"metadata": {"name": f"j-{number:02d}", "namespace": "team"}, "spec": filling},
            )
        limits = replace(QUICK, answer_bytes=100_000)
        async with make_cluster(server.url, limits=limits) as cluster:
            pages = [page async for page in cluster.list_paged(TRAINING_JOB, ALL)]
    names = [item["metadata"]["name"] for page in pages for item in page.items]
    assert names == [f"j-{number:02d}" for number in range(40)]
    assert len({page.resource_version for page in pages}) == 1


async def test_one_object_too_large_to_be_read_is_an_error_that_says_so() -> None:
    async with FakeApiServer() as server:
        template = {"filling": "x" * 10_000}
        server.put(
            TRAINING_JOB,
            {"metadata": {"name": "j", "namespace": "team"}, "spec": {"template": template}},
        )
        async with make_cluster(server.url, limits=replace(QUICK, answer_bytes=1_000)) as cluster:
            with pytest.raises(TooLarge, match="larger than 1000 bytes"):
                _ = [page async for page in cluster.list_paged(TRAINING_JOB, ALL)]


async def test_the_server_is_told_how_long_a_write_may_take() -> None:
    async with FakeApiServer() as server, make_cluster(server.url) as cluster:
        await cluster.create(GPU_NODE, {"metadata": {"name": "n"}, "spec": {"epoch": 1}})
        await cluster.delete(GPU_NODE, "n")
        assert [one.query["timeout"] for one in server.requests] == [f"{QUICK.write_s:g}s"] * 2
