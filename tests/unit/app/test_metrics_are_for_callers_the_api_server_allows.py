# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics over TLS: who is asked about, what is kept, and what wild callers come to."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from certificates import certificate
from ullage.app.http import Endpoints
from ullage.process import token_access
from ullage.process.secure_metrics import SecureMetrics
from ullage.process.token_access import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, TokenAccess
from unit.app.test_endpoints_give_to_each_what_they_may_have import healthy

PAGE = b"ullage_leader 1.0\n"


@dataclass
class ApiServer:
    """Knows some tokens, and lets some users read metrics."""

    users: dict[str, str] = field(default_factory=lambda: {"prom": "prometheus", "eve": "eve"})
    allowed: set[str] = field(default_factory=lambda: {"prometheus"})
    asked: list[tuple[str, Mapping[str, object]]] = field(default_factory=list)
    answer: Any = None
    now: float = 100.0

    async def review(self, plural: str, spec: Mapping[str, object]) -> Mapping[str, object]:
        self.asked.append((plural, spec))
        if isinstance(self.answer, Exception):
            raise self.answer
        if isinstance(self.answer, float):
            await asyncio.sleep(self.answer)
        elif self.answer is not None:
            return self.answer  # type: ignore[no-any-return]
        if plural == TOKEN_REVIEWS:
            name = self.users.get(str(spec["token"]))
            if name is None:
                return {"status": {"error": "unknown"}}
            user = {"username": name, "groups": ["system:authenticated"], "uid": "u", "extra": {}}
            return {"status": {"authenticated": True, "user": user}}
        return {"status": {"allowed": spec["user"] in self.allowed}}

    def access(self) -> TokenAccess:
        return TokenAccess(self.review, lambda: self.now)


async def status(access: TokenAccess, header: str) -> int:
    return (await access.judge(header, "/metrics")).status


async def test_a_known_user_with_the_right_gets_in_and_the_question_is_that_of_kueue() -> None:
    api = ApiServer()
    access = api.access()
    assert await status(access, "Bearer prom") == 200
    assert await status(access, "bearer  prom ") == 200, "the scheme has no case"
    assert api.asked == [
        (TOKEN_REVIEWS, {"token": "prom"}),
        (
            SUBJECT_ACCESS_REVIEWS,
            {
                "user": "prometheus",
                "uid": "u",
                "groups": ["system:authenticated"],
                "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
            },
        ),
    ]


async def test_who_is_unknown_gets_401_and_who_has_no_right_403() -> None:
    access = ApiServer().access()
    assert await status(access, "Bearer stranger") == 401
    verdict = await access.judge("Bearer eve", "/metrics")
    assert (verdict.status, "eve may not get /metrics" in verdict.text) == (403, True)


async def test_a_right_that_was_taken_away_ends_within_a_minute() -> None:
    api = ApiServer()
    access = api.access()
    assert await status(access, "Bearer prom") == 200
    api.allowed.clear()
    api.now += 59
    assert await status(access, "Bearer prom") == 200
    api.now += 2
    assert await status(access, "Bearer prom") == 403
    api.allowed.add("prometheus")
    api.now += 11
    assert await status(access, "Bearer prom") == 200


@pytest.mark.parametrize(
    "answer",
    [
        {}, {"status": []}, [], "no", {"status": {"authenticated": "true"}},
        {"status": {"authenticated": True}},
        {"status": {"authenticated": True, "user": {"username": ["root"]}}},
        RuntimeError("refused"), OSError("away"),
    ],
    ids=str,
)  # fmt: skip
async def test_an_api_server_that_answers_anything_else_lets_no_one_in(answer: object) -> None:
    api = ApiServer(answer=answer)
    access = api.access()
    assert await status(access, "Bearer prom") in (401, 503)
    api.answer = None
    api.now += 11
    assert await status(access, "Bearer prom") == 200, "no failure is kept for long"


async def test_an_api_server_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_access, "ACCESS_REVIEW_S", 0.05)
    api = ApiServer(answer=60.0)
    assert await status(api.access(), "Bearer prom") == 503


async def test_many_unknown_tokens_occupy_neither_memory_nor_the_api_server() -> None:
    api = ApiServer()
    access = api.access()
    assert await status(access, "Bearer prom") == 200
    for n in range(2 * token_access.MOST_ANSWERS):
        await status(access, f"Bearer {n}")
    assert sum(len(kept) for kept in access._answers.values()) <= token_access.MOST_ANSWERS + 1
    before = len(api.asked)
    assert await status(access, "Bearer prom") == 200
    assert len(api.asked) == before, "refusals push out no right"
    api.answer = 0.01
    found = await asyncio.gather(*(status(access, f"Bearer at-once-{n}") for n in range(100)))
    assert found.count(503) == 100 - token_access.MOST_WAITING
    assert found.count(401) == token_access.MOST_WAITING


@given(st.text(max_size=200) | st.text(max_size=40).map("Bearer {}".format))
def test_no_header_makes_it_fail_or_gets_in(header: str) -> None:
    api = ApiServer(users={})
    assert asyncio.run(status(api.access(), header)) == 401
    assert all(spec["token"].isascii() for _, spec in api.asked)  # type: ignore[attr-defined]


async def test_a_huge_token_is_not_sent_on() -> None:
    api = ApiServer()
    assert await status(api.access(), "Bearer " + "a" * 100_000) == 401
    assert not api.asked


# -- on real sockets -------------------------------------------------------------------------------

needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl makes the certificates of this test"
)


@asynccontextmanager
async def served(api: ApiServer, folder: Path) -> AsyncIterator[Endpoints]:
    endpoints = Endpoints(
        healthy,
        CollectorRegistry(),
        lambda: None,
        lambda _: SecureMetrics(lambda: PAGE, api.access(), folder, look_s=0.05),
    )
    await endpoints.start(host="127.0.0.1", port=0, debug_port=None)
    try:
        yield endpoints
    finally:
        await endpoints.stop()


def port_of(endpoints: Endpoints) -> int:
    assert endpoints._secure is not None
    return endpoints._secure.port


async def scrape(
    endpoints: Endpoints, folder: Path, name: str, **headers: str
) -> tuple[int, bytes]:
    trusted = ssl.create_default_context(cafile=str(folder / "tls.crt"))
    address = f"https://127.0.0.1:{port_of(endpoints)}/metrics"
    async with (
        aiohttp.ClientSession() as session,
        session.get(address, ssl=trusted, server_hostname=name, headers=headers) as answer,
    ):
        return answer.status, await answer.read()


@needs_openssl
async def test_a_scrape_over_tls_and_none_in_the_clear(tmp_path: Path) -> None:
    certificate(tmp_path, "metrics")
    async with served(ApiServer(), tmp_path) as endpoints:
        found = await scrape(endpoints, tmp_path, "metrics", Authorization="Bearer prom")
        assert found == (200, PAGE)
        assert (await scrape(endpoints, tmp_path, "metrics"))[0] == 401
        async with aiohttp.ClientSession() as session:
            address = f"http://127.0.0.1:{endpoints.port}"
            async with session.get(f"{address}/metrics") as answer:
                assert answer.status == 404, "the port of the probes has no metrics"
            async with session.get(f"{address}/readyz") as answer:
                assert answer.status == 200


@needs_openssl
async def test_a_certificate_that_comes_late_and_changes_is_taken_up(tmp_path: Path) -> None:
    folder, other = tmp_path / "mounted", tmp_path / "other"
    folder.mkdir()
    async with served(ApiServer(), folder) as endpoints:
        assert port_of(endpoints) == 0
        certificate(folder, "first")
        while not port_of(endpoints):
            await asyncio.sleep(0.02)
        bearer = {"Authorization": "Bearer prom"}
        assert (await scrape(endpoints, folder, "first", **bearer))[0] == 200
        # a key that does not fit leaves the old pair in use
        certificate(other, "second")
        shutil.copy(folder / "tls.crt", other / "old.crt")
        shutil.copy(other / "tls.key", folder / "tls.key")
        await asyncio.sleep(0.3)
        assert (await scrape(endpoints, folder, "first", **bearer))[0] == 200
        shutil.copy(other / "tls.crt", folder / "tls.crt")
        async with asyncio.timeout(30):
            while True:
                try:
                    found = await scrape(endpoints, other, "second", **bearer)
                except aiohttp.ClientConnectorError:
                    await asyncio.sleep(0.05)
                else:
                    break
        assert found[0] == 200


@needs_openssl
async def test_wild_clients_stop_no_scrape(tmp_path: Path) -> None:
    certificate(tmp_path, "metrics")
    async with served(ApiServer(), tmp_path) as endpoints:
        port = port_of(endpoints)
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(50)]
        trusted = ssl.create_default_context(cafile=str(tmp_path / "tls.crt"))
        for sent in (
            b"GET /metrics HTTP/1.1\r\nHost: m\r\nAuthorization: Bearer "
            + b"x" * 200_000
            + b"\r\n\r\n",
            b"GET /metrics HTTP/1.1\r\nHost: m\r\nAuthorization: Bearer \xff\x00\xfe\r\n\r\n",
            b"GET /metrics HTTP/1.1\r\nHost: m\r\nAuthorization: Bearer prom\r\n",
            b"\x16\x03\x01" * 1000,
        ):
            _, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=trusted, server_hostname="metrics"
            )
            writer.write(sent)
            silent.append((_, writer))
        header = {"Authorization": "Bearer prom"}
        assert await scrape(endpoints, tmp_path, "metrics", **header) == (200, PAGE)
        for _, writer in silent:
            writer.close()
