# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reviews on real sockets: answers as the API server reads them, and bounds for everyone else."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import shutil
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitted_pods import CASES, Json, generated, parts
from certificates import certificate
from fakes.apiserver.patches import json_patch
from ullage.api.readers import WireError
from ullage.webhook import server as bounds
from ullage.webhook.review import answer
from ullage.webhook.server import WebhookServer

NAME = "ullage-webhook.ullage-system.svc"
needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl makes the certificates of this test"
)


def review(pod: object, **request: object) -> Json:
    """As the API server asks about a new pod."""
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "operation": "CREATE",
            "object": pod,
            "oldObject": None,
            "dryRun": False,
            **request,
        },
    }


def answered(asked: object) -> Json:
    found: Json = json.loads(answer(json.dumps(asked).encode()))
    assert (found["apiVersion"], found["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response: Json = found["response"]
    assert response["uid"] == "705ab4f5-6393-11e8-b7cc-42010a800002"
    assert response["allowed"] is True
    return response


def patch_of(response: Json) -> list[Json]:
    assert response["patchType"] == "JSONPatch"
    patch: list[Json] = json.loads(base64.b64decode(response["patch"]))
    return patch


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_answer_to_a_review_is_the_patch_of_its_pod(case: str) -> None:
    response = answered(review(CASES[case].pod))
    patch = patch_of(response) if "patch" in response else []
    assert parts(json_patch(json.loads(json.dumps(CASES[case].pod)), patch)) == CASES[case].after


@pytest.mark.parametrize(
    "about",
    [
        {"operation": "UPDATE"},
        {"operation": "DELETE", "object": None},
        {"subResource": "binding"},
        {"resource": {"group": "apps", "version": "v1", "resource": "deployments"}},
        {"resource": None},
    ],
    ids=str,
)
def test_what_is_no_new_pod_stays_as_it_is(about: Json) -> None:
    response = answered(review(CASES["a share"].pod, **about))
    assert response.keys() == {"uid", "allowed"}


@pytest.mark.parametrize(
    "pod",
    [
        [], "pod", {"metadata": []}, {"metadata": {"labels": ["ullage.dev/share"]}},
        {"metadata": {"labels": {"ullage.dev/devices": 2}}, "spec": {"containers": [{}]}},
        {"metadata": {"labels": {"ullage.dev/share": "1"}}, "spec": {"containers": {"a": 1}}},
        {"metadata": {"labels": {"ullage.dev/share": "1"}}, "spec": {"schedulingGates": ["x"]}},
    ],
    ids=str,
)  # fmt: skip
def test_a_pod_that_cannot_be_read_goes_on_with_a_warning(pod: object) -> None:
    response = answered(review(pod))
    assert "patch" not in response
    (warning,) = response["warnings"]
    assert warning.startswith("not prepared to share devices: ")
    assert len(warning) <= 200


WILD = [
    b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"{}", b"[" * 100_000,
    b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    json.dumps({**review({}), "apiVersion": "admission.k8s.io/v1beta1"}).encode(),
    json.dumps({**review({}), "kind": "Pod"}).encode(),
    json.dumps({**review({}), "request": []}).encode(),
    json.dumps({**review({}), "request": {}}).encode(),
    json.dumps(review({}, uid="")).encode(),
    json.dumps(review({}, uid="u" * 1000)).encode(),
    json.dumps(review({}, uid=["u"])).encode(),
]  # fmt: skip


@pytest.mark.parametrize("body", WILD, ids=lambda body: repr(body[:20]))
def test_what_is_no_review_is_refused(body: bytes) -> None:
    with pytest.raises(WireError):
        answer(body)


@given(st.binary(max_size=200))
def test_any_bytes_are_answered_or_refused(body: bytes) -> None:
    with pytest.raises(WireError):
        answer(body)


# -- on real sockets -------------------------------------------------------------------------------


@asynccontextmanager
async def served(folder: Path, **bounds: float) -> AsyncIterator[WebhookServer]:
    server = WebhookServer(folder, **bounds)
    await server.start(0, "127.0.0.1")
    try:
        yield server
    finally:
        await server.stop()


class Caller:
    """The API server, which trusts the authority of the certificate alone."""

    def __init__(self, server: WebhookServer, folder: Path) -> None:
        self.port = server.port
        self.trusted = ssl.create_default_context(cafile=str(folder / "tls.crt"))
        self._session = aiohttp.ClientSession()
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Caller:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        for writer in self._writers:
            writer.close()

    async def post(self, body: Any, **more: Any) -> tuple[int, bytes]:
        async with self._session.post(
            f"https://127.0.0.1:{self.port}/mutate?timeout=5s",
            data=body, ssl=self.trusted, server_hostname=NAME, **more,
        ) as response:  # fmt: skip
            return response.status, await response.read()

    async def prepares(self) -> bool:
        status, body = await self.post(json.dumps(review(CASES["a share"].pod)).encode())
        return status == 200 and "patch" in json.loads(body)["response"]

    async def raw(self, sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=self.trusted, server_hostname=NAME
        )
        self._writers.append(writer)
        writer.write(sent)
        with suppress(ConnectionError):  # the server may close while the rest is on its way
            await writer.drain()
        return reader, writer


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mounted")
    certificate(folder, NAME)
    return folder


@needs_openssl
async def test_two_hundred_pods_at_once_are_prepared(mounted: Path) -> None:
    async with served(mounted) as server, Caller(server, mounted) as api:
        pods = list(generated(200, seed=1))
        answers = await asyncio.gather(*(api.post(json.dumps(review(pod))) for pod in pods))
        for pod, (status, body) in zip(pods, answers, strict=True):
            assert (status, body) == (200, answer(json.dumps(review(pod)).encode()))


@needs_openssl
async def test_a_large_body_is_refused_and_harms_no_other(mounted: Path) -> None:
    async with served(mounted) as server, Caller(server, mounted) as api:
        large = json.dumps(review({"x": "a" * bounds.MOST_BYTES})).encode()
        try:
            status, _ = await api.post(io.BytesIO(large))
        except aiohttp.ClientError:  # the connection is closed while the rest is on its way
            status = 413
        assert status == 413
        assert await api.prepares()


@needs_openssl
async def test_a_packed_body_is_not_unpacked(mounted: Path) -> None:
    async with served(mounted) as server, Caller(server, mounted) as api:
        status, _ = await api.post(json.dumps(review({})).encode(), compress="gzip")
        assert status == 400
        assert await api.prepares()


@needs_openssl
async def test_all_bodies_together_are_bounded(
    mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MOST_HELD_BYTES", 30_000)
    async with served(mounted) as server, Caller(server, mounted) as api:
        head = b"POST /mutate HTTP/1.1\r\nHost: w\r\nContent-Length: 29500\r\n\r\n"
        _, slow = await api.raw(head + b" " * 29_000)
        while not server._held_bytes:
            await asyncio.sleep(0.01)
        status, _ = await api.post(json.dumps(review({"x": "a" * 2000})).encode())
        assert status == 503
        slow.close()
        while not await api.prepares():
            await asyncio.sleep(0.01)
        assert server._held_bytes == 0


PART: bytes = b"POST /mutate HTTP/1.1\r\nHost: w\r\nContent-Length: 10\r\n\r\n{"


@needs_openssl
async def test_requests_at_once_are_bounded(mounted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MOST_REQUESTS", 1)
    async with served(mounted, read_s=60) as server, Caller(server, mounted) as api:
        _, slow = await api.raw(PART)
        while not server._requests:
            await asyncio.sleep(0.01)
        assert not await api.prepares()
        slow.close()
        while not await api.prepares():
            await asyncio.sleep(0.02)


@needs_openssl
async def test_a_body_that_comes_too_slowly_is_given_up(mounted: Path) -> None:
    async with served(mounted, read_s=0.1) as server, Caller(server, mounted) as api:
        reader, _ = await api.raw(PART)
        assert await reader.readline() == b"HTTP/1.1 408 Request Timeout\r\n"
        assert (server._requests, server._held_bytes) == (0, 0)


@needs_openssl
async def test_wild_callers_stop_no_review(mounted: Path) -> None:
    async with served(mounted) as server, Caller(server, mounted) as api:
        silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(30)]
        for sent in (
            b"GET /mutate HTTP/1.1\r\nHost: w\r\n\r\n",
            b"POST /mutate HTTP/1.1\r\nHost: w\r\nContent-Length: 9999999999\r\n\r\n{",
            b"POST /mutate HTTP/1.1\r\nHost: w\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"\x00" * 10_000,
            b"POST /mutate HTTP/1.1\r\n" + b"x: y\r\n" * 100_000,
        ):
            await api.raw(sent)
        for body in WILD:
            assert (await api.post(body))[0] == 400
        assert await api.prepares()
        for _, writer in silent:
            writer.close()


@pytest.mark.slow
@needs_openssl
async def test_a_pod_that_ends_answers_until_it_is_withdrawn(mounted: Path) -> None:
    """The process, as the chart starts it: it serves for a while after SIGTERM, and ends with 0."""
    program = (
        "import asyncio, pathlib, sys; from ullage.webhook.main import serve;"
        "asyncio.run(serve(int(sys.argv[1]), pathlib.Path(sys.argv[2]), leave_s=1.5))"
    )
    for is_last in (False, False, True):
        async with served(mounted) as taken:
            port = taken.port
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, str(port), str(mounted), env=dict(os.environ)
        )
        try:
            taken._listener.port = port
            async with Caller(taken, mounted) as api, asyncio.timeout(60):
                if not await _answers(api, process):
                    assert not is_last, "it ends before it answers"
                    continue  # another process took the port
                process.send_signal(signal.SIGTERM)
                assert await api.prepares()
                assert await process.wait() == 0
                return
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def _answers(api: Caller, process: asyncio.subprocess.Process) -> bool:
    """Wait for the first answer of a process; ``False`` = it has ended."""
    while process.returncode is None:
        try:
            return await api.prepares()
        except aiohttp.ClientConnectorError:
            await asyncio.sleep(0.05)
    return False
