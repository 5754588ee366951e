# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The session answers what kopf asks of the mirrored kinds, sends patches, and refuses the rest."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from ullage.handlers.mirror import Mirror
from ullage.handlers.session import Session, WatchAnswer
from ullage.ports import INFERENCE_DEPLOYMENT, ApiError, Forbidden, JsonObject, JsonPatch, Kind

KIND = INFERENCE_DEPLOYMENT
PATH = f"/apis/{KIND.api_version}"


async def refuse(kind: Kind, namespace: str, name: str, patch: JsonPatch) -> JsonObject:
    raise Forbidden(403, f"{kind.plural} {namespace}/{name}: no")


def a_session() -> tuple[Session, Mirror]:
    mirror = Mirror({KIND: lambda _: True})
    return Session(mirror, refuse), mirror


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/apis", 200),
        ("GET", PATH, 200),
        ("GET", f"{PATH}/{KIND.plural}", 200),
        ("GET", f"{PATH}/{KIND.plural}/web", 405),
        ("GET", f"{PATH}/trainingjobs", 404),
        ("GET", "/api/v1/secrets", 404),
        ("GET", "/api/v1/namespaces/team/secrets/key", 404),
        ("POST", f"{PATH}/namespaces/team/{KIND.plural}", 405),
        ("DELETE", f"{PATH}/namespaces/team/{KIND.plural}/web", 405),
        ("PATCH", f"{PATH}/namespaces/team/{KIND.plural}/web", 403),
        ("PATCH", f"{PATH}/namespaces/team/{KIND.plural}/web/status", 404),
    ],
)
async def test_requests_are_answered_or_refused(method: str, path: str, status: int) -> None:
    session, _ = a_session()
    answer = await session.request(method=method, url=f"http://mirror.invalid{path}", json=[])
    assert answer.status == status
    if status >= 400:
        with pytest.raises(aiohttp.ClientResponseError):
            answer.raise_for_status()
        body = await answer.json()
        assert body is not None
        assert body["kind"] == "Status"


@pytest.mark.parametrize(("status", "answered"), [(0, 503), (401, 503), (403, 403), (422, 422)])
async def test_an_error_of_a_patch_is_an_answer(status: int, answered: int) -> None:
    async def fail(*_: object) -> JsonObject:
        raise ApiError(status, "no")

    session = Session(Mirror({KIND: lambda _: True}), fail)
    path = f"{PATH}/namespaces/team/{KIND.plural}/web"
    answer = await session.request(method="PATCH", url=path, json=[])
    assert answer.status == answered


def an_item(name: str, version: str = "1") -> JsonObject:
    metadata = {"name": name, "namespace": "team", "uid": f"u-{name}", "resourceVersion": version}
    return {"metadata": metadata}


async def watch(session: Session, since: str = "") -> WatchAnswer:
    url = f"{PATH}/{KIND.plural}?watch=true&resourceVersion={since}"
    return await session.request(method="GET", url=url)


async def test_a_merge_patch_is_refused() -> None:
    session, _ = a_session()
    path = f"{PATH}/namespaces/team/{KIND.plural}/web"
    answer = await session.request(method="PATCH", url=path, json={"metadata": {"labels": {}}})
    assert answer.status == 405


async def test_a_watch_ends_when_it_is_closed() -> None:
    session, mirror = a_session()
    await session.request(method="GET", url=f"{PATH}/{KIND.plural}")
    answer = await watch(session)
    lines = answer.iter_chunked(1)
    waiting = asyncio.ensure_future(anext(lines))
    await asyncio.sleep(0)
    mirror.upsert(KIND, an_item("web"))
    assert b'"MODIFIED"' in await waiting
    waiting = asyncio.ensure_future(anext(lines))
    await asyncio.sleep(0.01)
    answer.close()
    with pytest.raises(aiohttp.ClientConnectionError):
        await waiting


async def test_a_watch_that_is_opened_again_goes_on_whatever_version_it_names() -> None:
    session, mirror = a_session()
    await session.request(method="GET", url=f"{PATH}/{KIND.plural}")
    answer = await watch(session)
    mirror.upsert(KIND, an_item("web", "987654321"))
    assert b'"web"' in await anext(answer.iter_chunked(1))
    answer.close()
    mirror.upsert(KIND, an_item("next"))
    answer = await watch(session, "987654321")
    assert b'"next"' in await anext(answer.iter_chunked(1))


async def test_a_watch_without_a_list_asks_for_one() -> None:
    session, mirror = a_session()
    mirror.upsert(KIND, an_item("web"))
    answer = await watch(session)
    lines = [line async for line in answer.iter_chunked(1)]
    assert len(lines) == 1
    assert b'"code": 410' in lines[0]
