# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Bytes as a real API server may send them: nested 10,000 levels, lines of many megabytes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from aiohttp import web

from fakes.apiserver import make_cluster
from ullage.adapters.k8s import K8sCluster
from ullage.ports import POD, TRAINING_JOB, Selector
from ullage.state.project.readable import UNREADABLE

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
