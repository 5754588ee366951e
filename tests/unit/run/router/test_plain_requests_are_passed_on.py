# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What is no inference request of the protocol goes to one replica as it is."""

from __future__ import annotations

import asyncio

import pytest
from yarl import URL

from fakes.batch_server import batch_server, die
from fakes.routed import routed, until


async def test_method_path_query_body_and_headers_go_on_and_the_answer_comes_back() -> None:
    async with batch_server() as server, routed(server) as router:
        url = URL(f"{router.url}/predict%20it?a=1&b=%2F", encoded=True)
        async with router.client.post(url, data=b"\x00raw", headers={"X-Mine": "1"}) as answer:
            assert answer.status == 200
            assert await answer.read() == b"plain \x00raw"
            assert answer.headers["X-Own"] == "yes"
        assert server.plain == [("POST", "/predict%20it?a=1&b=%2F", b"\x00raw")]
        assert server.headers[0]["X-Mine"] == "1"


async def test_headers_of_one_connection_stay_on_it() -> None:
    async with batch_server() as server, routed(server) as router:
        headers = {"Connection": "X-Secret", "X-Secret": "1", "TE": "trailers"}
        async with router.client.post(f"{router.url}/x", data=b"1", headers=headers) as answer:
            assert answer.status == 200
        assert not {"X-Secret", "TE"} & server.headers[0].keys()


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("Inference-Header-Content-Length", "0"),
        ("Content-Encoding", "br"),
        ("Content-Encoding", "zstd"),
        ("Content-Encoding", "gzip, zstd"),
    ],
)
async def test_a_body_that_is_not_read_is_passed_on_as_it_is(header: str, value: str) -> None:
    async with batch_server() as server, routed(server) as router:
        async with router.client.post(
            f"{router.url}/v2/models/double/infer",
            data=b'{"inputs":[{"name":"x","datatype":"FP64","shape":[1,1],"data":[1.0]}]}',
            headers={header: value},
        ) as answer:
            assert answer.status == 200
        assert server.headers[0][header] == value


async def test_metadata_is_asked_of_a_replica() -> None:
    async with batch_server() as server, routed(server) as router:
        for path in ("/v2", "/v2/models/double", "/v2/models/double/versions/1/ready"):
            async with router.client.get(router.url + path) as answer:
                assert answer.status == 200
        assert [path for _, path, _ in server.plain] == [
            "/v2",
            "/v2/models/double",
            "/v2/models/double/versions/1/ready",
        ]


async def test_a_post_without_a_key_is_not_repeated_and_one_with_it_is() -> None:
    async with batch_server() as one, batch_server() as other, routed(one, other) as router:
        url = f"{router.url}/v2/models/double/infer"
        body = b'{"inputs":[{"name":"x","datatype":"FP64","shape":[1,1],"data":[1.0]}]}'
        for key, status in (("", 502), ("7", 200)):
            first, second = sorted(router.dispatcher.pool.replicas, key=lambda replica: replica.ran)
            servers = {0: one, 1: other}
            servers[first.number].misdeeds = [die] * (2 if key else 1)  # on a new connection, too
            headers = {"Inference-Header-Content-Length": "0"}
            async with router.client.post(
                url, data=body, headers=headers | ({"Idempotency-Key": key} if key else {})
            ) as answer:
                assert answer.status == status
            assert len(servers[second.number].asked) == (0 if status == 502 else 1)
            await until(lambda: all(replica.up for replica in router.dispatcher.pool.replicas))
            one.asked.clear()
            other.asked.clear()


async def test_headers_that_come_twice_go_on_twice() -> None:
    async with batch_server() as server, routed(server) as router:
        headers = [("X-Many", "1"), ("X-Many", "2")]
        async with router.client.post(f"{router.url}/x", data=b"1", headers=headers) as answer:
            assert answer.headers.getall("Set-Cookie") == ["a=1", "b=2"]
        assert server.many == ["1", "2"]


@pytest.mark.parametrize(
    "target", ["http://127.0.0.1:1/x", "@127.0.0.1:1/x", "*", ".127.0.0.1:1/", "127.0.0.1:1"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "CONNECT"])
async def test_no_target_leads_to_another_server(method: str, target: str) -> None:
    async with batch_server() as server, routed(server) as router:
        reader, writer = await asyncio.open_connection("127.0.0.1", router.server.port)
        writer.write(f"{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode())
        assert b" 400 " in await reader.readline()
        writer.close()
        assert not server.plain
