# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Replicas behind one name in DNS: those that come get work, those that go get no more."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fakes.batch_server import batch_server, die
from fakes.grpc_batch_server import grpc_batch_server
from fakes.routed import routed, until
from ullage_router import following, replica_pool
from ullage_router.following import MOST, Unknown, addresses_of_name
from ullage_router.settings import ReplicaAddress, parser, settings_of

NAME = ReplicaAddress(url="http://serve-replicas:8080", device="H100", share_percent=50.0)


@contextmanager
def named(*urls: str) -> Iterator[set[str]]:
    """What the name stands for; the set may be changed."""
    known = set(urls)

    async def answered(_: str) -> frozenset[str]:
        if "fails" in known:
            raise Unknown("DNS does not answer")
        return frozenset(known)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica_pool, "addresses_of_name", answered)
        yield known


async def test_replicas_come_and_go_while_requests_are_answered() -> None:
    async with batch_server() as one, batch_server() as other:
        with named(one.url) as known:
            async with routed(up=0, followed=NAME, follow_s=0.01) as router:
                await until(lambda: router.dispatcher.ready)
                assert (await router.infer([1.0]))[1]["outputs"][0]["data"] == [2.0]
                assert not other.asked
                known.add(other.url)
                await until(lambda: len(router.dispatcher.pool.replicas) == 2)
                assert {(one.backend.device, one.backend.share_percent) for one in router.dispatcher.pool.replicas} == {("H100", 50.0)}  # fmt: skip # noqa: E501
                known.remove(one.url)
                await until(
                    lambda: [r.backend.url for r in router.dispatcher.pool.replicas] == [other.url]
                )
                await until(lambda: router.dispatcher.ready)
                before = len(one.asked)
                answers = await asyncio.gather(*(router.infer([float(n)]) for n in range(20)))
                assert [status for status, _ in answers] == [200] * 20
                assert len(one.asked) == before, "who has gone gets no more work"


async def test_replicas_over_grpc_come_and_go_as_well() -> None:
    followed = ReplicaAddress(url="grpc://serve-replicas:8080")
    async with (
        grpc_batch_server(seconds=lambda _: 0.3) as one,
        grpc_batch_server() as other,
    ):
        with named(one.url) as known:
            async with routed(up=0, followed=followed, follow_s=0.01) as router:
                await until(lambda: router.dispatcher.ready)
                begun = asyncio.create_task(router.infer([1.0]))
                await until(lambda: len(one.asked) == 1)
                known.remove(one.url)
                known.add(other.url)
                await until(
                    lambda: [r.backend.url for r in router.dispatcher.pool.replicas] == [other.url]
                )
                assert (await begun)[1]["outputs"][0]["data"] == [2.0]
                await until(lambda: router.dispatcher.ready)
                assert (await router.infer([2.0]))[1]["outputs"][0]["data"] == [4.0]
                assert len(other.asked) == 1


async def test_what_a_replica_has_begun_is_answered_after_its_name_has_gone() -> None:
    async with batch_server(seconds=lambda _: 0.3) as slow:
        with named(slow.url) as known:
            async with routed(up=0, followed=NAME, follow_s=0.01) as router:
                await until(lambda: router.dispatcher.ready)
                asked = asyncio.create_task(router.infer([3.0]))
                await until(lambda: len(slow.asked) == 1)
                known.clear()
                await until(lambda: not router.dispatcher.pool.replicas)
                assert (await asked)[1]["outputs"][0]["data"] == [6.0]


async def test_times_are_known_still_when_all_replicas_were_away() -> None:
    async with batch_server() as server:
        with named(server.url) as known:
            async with routed(up=0, followed=NAME, follow_s=0.01) as router:
                await until(lambda: router.dispatcher.ready)
                await router.taught(0.2)
                known.clear()
                await until(lambda: not router.dispatcher.pool.replicas)
                assert router.dispatcher.pool.knows("default/1")
                known.add(server.url)
                await until(lambda: router.dispatcher.ready)
                assert router.dispatcher.pool.replicas[0].times.single_s > 0


async def test_a_name_that_cannot_be_asked_for_changes_nothing() -> None:
    async with batch_server() as server:
        with named(server.url) as known:
            async with routed(up=0, followed=NAME, follow_s=0.01) as router:
                await until(lambda: router.dispatcher.ready)
                known.add("fails")
                await asyncio.sleep(0.1)
                assert (await router.infer())[0] == 200
                assert len(router.dispatcher.pool.replicas) == 1


async def test_a_replica_that_dies_under_a_followed_name_loses_nothing() -> None:
    async with batch_server() as one, batch_server() as other:
        with named(one.url, other.url):
            async with routed(up=0, followed=NAME, follow_s=0.01) as router:
                await until(lambda: sum(r.up for r in router.dispatcher.pool.replicas) == 2)
                one.misdeeds = [die]
                other.misdeeds = []
                answers = await asyncio.gather(*(router.infer([float(n)]) for n in range(30)))
                assert [status for status, _ in answers] == [200] * 30


async def test_a_name_without_addresses_has_no_replicas_and_a_dead_server_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[Any] = []

    async def getaddrinfo(*_: Any, **__: Any) -> Any:
        if isinstance(said[0], BaseException):
            raise said[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 80)) for host in said[0]]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    for code in (socket.EAI_NONAME, socket.EAI_NODATA):
        said[:] = [socket.gaierror(code, "none")]
        assert await addresses_of_name("http://x:80") == frozenset()
    for error in (socket.gaierror(socket.EAI_AGAIN, "later"), OSError("no network")):
        said[:] = [error]
        with pytest.raises(Unknown):
            await addresses_of_name("http://x:80")
    said[:] = [["10.0.0.1", "10.0.0.1", "fd00::1"]]
    assert await addresses_of_name("http://x:80") == {"http://10.0.0.1:80", "http://[fd00::1]:80"}
    said[:] = [[f"10.0.{n // 250}.{n % 250}" for n in range(MOST + 1)]]
    with pytest.raises(Unknown, match="more than"):
        await addresses_of_name("http://x:80")


async def test_a_dns_server_that_hangs_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def getaddrinfo(*_: Any, **__: Any) -> Any:
        await asyncio.sleep(60)

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(following, "RESOLVE_S", 0.01)
    with pytest.raises(Unknown, match="does not answer"):
        await addresses_of_name("http://x:80")


def test_replicas_are_listed_or_followed_never_both_nor_neither() -> None:
    listed = ["--backend", "http://a:1"]
    followed = ["--follow", "http://serve-replicas:8080,share=50"]
    for words in ([], [*listed, *followed]):
        with pytest.raises(ValueError, match="--follow"):
            settings_of(parser().parse_args(["--objective-ms", "50", *words]))
    settings = settings_of(parser().parse_args(["--objective-ms", "50", *followed]))
    assert settings.backends == ()
    assert settings.followed == ReplicaAddress(url="http://serve-replicas:8080", share_percent=50.0)
