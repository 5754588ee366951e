# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A Python function of arrays is served by the protocol, alone and behind the router."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import numpy as np
import pytest

from fakes.routed import routed, until
from fakes.triton_server import LENGTH, raw_of
from ullage_run import serving
from ullage_run.serving import BatchFunction, ModelServer

Json = dict[str, Any]


class Served:
    """A model server on a port of its own, and its client."""

    def __init__(self, server: ModelServer, client: aiohttp.ClientSession) -> None:
        self.server = server
        self.client = client

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    async def infer(self, *inputs: Json, **more: Any) -> tuple[int, Json]:
        body = json.dumps({"inputs": list(inputs), **more})
        return await self.post(body.encode())

    async def post(self, body: bytes) -> tuple[int, Json]:
        url = f"{self.url}/v2/models/double/infer"
        async with self.client.post(url, data=body) as answer:
            return answer.status, await answer.json()


@asynccontextmanager
async def served(function: BatchFunction) -> AsyncIterator[Served]:
    server = ModelServer(function, "double")
    await server.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession() as client:
            yield Served(server, client)
    finally:
        await server.stop()


def doubled(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {"y": inputs["x"] * 2}


def tensor(name: str, datatype: str, shape: list[int], data: list[Any]) -> Json:
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


X = tensor("x", "FP32", [2, 2], [1.5, 2.0, 3.0, 4.0])


async def test_arrays_come_in_and_go_out_by_name() -> None:
    async with served(doubled) as one:
        assert await one.infer(X, id="7") == (
            200,
            {
                "model_name": "double",
                "id": "7",
                "outputs": [tensor("y", "FP32", [2, 2], [3.0, 4.0, 6.0, 8.0])],
            },
        )


RAW: dict[str, list[Any]] = {
    "BOOL": [True, False],
    "BYTES": ["", "ä"],
    "FP16": [0.5, -2.0],
    "FP32": [1.5, float("nan")],
    "INT64": [2**63 - 1, -1],
    "UINT8": [0, 255],
}


@pytest.mark.parametrize("datatype", sorted(RAW))
@pytest.mark.parametrize("wants", [True, False])
async def test_raw_tensors_come_in_and_go_out(datatype: str, wants: bool) -> None:
    raw = raw_of(datatype, RAW[datatype])
    about = {"name": "x", "datatype": datatype, "shape": [2], "parameters": {}}
    about["parameters"] = {"binary_data_size": len(raw)}
    head = json.dumps({"inputs": [about], "parameters": {"binary_data_output": wants}}).encode()
    async with served(lambda inputs: {"y": inputs["x"]}) as one:
        url, headers = f"{one.url}/v2/models/double/infer", {LENGTH: str(len(head))}
        async with one.client.post(url, data=head + raw, headers=headers) as answer:
            assert answer.status == 200
            body = await answer.read()
    if wants:
        length = int(answer.headers[LENGTH])
        [output] = json.loads(body[:length])["outputs"]
        assert output["parameters"] == {"binary_data_size": len(raw)}
        assert body[length:] == raw
    else:
        assert LENGTH not in answer.headers
        same = [None if value != value else value for value in RAW[datatype]]
        assert json.loads(body)["outputs"][0]["data"] == same


async def test_raw_bfloat16_is_refused_for_numpy_has_none() -> None:
    about = {"name": "x", "datatype": "BF16", "shape": [1], "parameters": {"binary_data_size": 2}}
    head = json.dumps({"inputs": [about]}).encode()
    async with served(doubled) as one:
        url, headers = f"{one.url}/v2/models/double/infer", {LENGTH: str(len(head))}
        async with one.client.post(url, data=head + bytes(2), headers=headers) as answer:
            assert answer.status == 400
            assert "NumPy has no BF16" in (await answer.json())["error"]


@pytest.mark.parametrize("datatype", sorted(serving.DTYPES))
async def test_every_data_type_goes_there_and_back(datatype: str) -> None:
    data: list[Any] = {"BOOL": [True, False], "BYTES": ["a", "\u00fc"]}.get(datatype, [1, 2])
    async with served(lambda inputs: {"y": inputs["x"]}) as one:
        status, body = await one.infer(tensor("x", datatype, [2], data))
    assert status == 200
    assert body["outputs"] == [tensor("y", datatype, [2], data)]


async def test_only_the_outputs_that_are_asked_for_are_sent() -> None:
    async with served(lambda inputs: {"a": inputs["x"], "b": inputs["x"]}) as one:
        _, body = await one.infer(X, outputs=[{"name": "b"}])
        assert [output["name"] for output in body["outputs"]] == ["b"]
        status, body = await one.infer(X, outputs=[{"name": "c"}])
        assert (status, body) == (400, {"error": "the model has no output 'c'"})


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ([], "inputs is a list of 1 to 64 tensors"),
        ([tensor("x", "FP32", [2], [1.0])], "has 1 elements, its shape 2"),
        ([tensor("x", "FP32", [], [1.0])], "one first dimension"),
        ([X, tensor("z", "FP32", [1], [1.0])], "one first dimension"),
        ([tensor("x", "INT8", [1], [300])], "beyond INT8"),
        ([tensor("x", "INT8", [1], ["a"])], "another data type"),
        ([tensor("x", "COMPLEX", [1], [1])], "datatype is one of"),
    ],
)
async def test_a_malformed_request_never_reaches_the_function(
    inputs: list[Json], said: str
) -> None:
    ran: list[object] = []

    def function(given: Mapping[str, Any]) -> dict[str, Any]:
        ran.append(given)
        return {}

    async with served(function) as one:
        status, body = await one.infer(*inputs)
        assert status == 400
        assert said in body["error"]
        for wild in (b"", b"{", b"[]", b"null", b'{"inputs": 7}', b"\xff" * 100, b"[" * 10_000):
            assert (await one.post(wild))[0] == 400
        assert (await one.infer(X, id=7))[0] == 400
        assert (await one.infer(X, outputs={"y": 1}))[0] == 400
    assert ran == []


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (1 / np.arange(1, 4), "shape (3,) for 2 rows"),
        (np.zeros(()), "shape () for 2 rows"),
        (np.zeros(2, dtype=complex), "which the protocol lacks"),
        (np.asarray([{}, {}], dtype=object), "no text"),
    ],
)
async def test_a_function_that_answers_nonsense_is_an_error_of_its_own(
    output: Any, said: str
) -> None:
    async with served(lambda _: {"y": output}) as one:
        status, body = await one.infer(X)
        assert status == 500
        assert said in body["error"]


async def test_a_function_that_raises_answers_500_and_goes_on() -> None:
    fails = [True]

    def function(inputs: Mapping[str, Any]) -> dict[str, Any]:
        if fails.pop():
            raise RuntimeError("no device")
        return doubled(inputs)

    async with served(function) as one:
        status, body = await one.infer(X)
        assert (status, body["error"]) == (500, "the model failed: RuntimeError: no device")
        fails.append(False)
        assert (await one.infer(X))[0] == 200


async def test_one_batch_runs_at_a_time_and_too_many_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "MOST_WAITING", 3)
    at_once, most, go = [0], [0], threading.Event()

    def function(inputs: Mapping[str, Any]) -> dict[str, Any]:
        at_once[0] += 1
        most[0] = max(most[0], at_once[0])
        go.wait(30)
        at_once[0] -= 1
        return doubled(inputs)

    async with served(function) as one:
        asked = [asyncio.create_task(one.infer(X)) for _ in range(3)]
        await until(lambda: one.server._waiting == 3)
        status, body = await one.infer(X)
        assert (status, body["error"]) == (503, "3 requests wait already; come again later")
        go.set()
        assert [status for status, _ in await asyncio.gather(*asked)] == [200] * 3
        assert most == [1]


async def test_a_body_that_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "BODY_S", 0.05)
    async with served(doubled) as one:
        reader, writer = await asyncio.open_connection("127.0.0.1", one.server.port)
        writer.write(b"POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\n")
        writer.write(b"Content-Length: 10\r\n\r\nhalf")
        assert b" 408 " in await reader.readline()
        writer.close()
        await writer.wait_closed()
        assert (await one.infer(X))[0] == 200, "others are served; it stops without the rest"


async def test_health_metadata_and_metrics_are_there() -> None:
    async with served(doubled) as one:
        await one.infer(X)
        for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/double/ready"):
            async with one.client.get(one.url + path) as answer:
                assert answer.status == 200
        async with one.client.get(f"{one.url}/v2/models/double") as answer:
            assert (await answer.json())["name"] == "double"
        async with one.client.get(f"{one.url}/metrics") as answer:
            page = await answer.text()
        assert re.search(r"ullage_request_seconds_count [1-9]", page)
        async with one.client.get(f"{one.url}/v2/models/other") as answer:
            assert answer.status == 404


async def test_the_router_makes_batches_for_the_function() -> None:
    rows: list[int] = []

    def function(inputs: Mapping[str, Any]) -> dict[str, Any]:
        rows.append(inputs["x"].shape[0])
        return doubled(inputs)

    async with served(function) as one, routed(one) as router:
        await router.taught(0.01)
        answers = await asyncio.gather(*(router.infer([float(at)]) for at in range(24)))
    assert [body["outputs"][0]["data"] for _, body in answers] == [[2.0 * at] for at in range(24)]
    assert sum(rows) == 24
    assert max(rows) > 1


def test_a_name_that_no_path_can_have_is_refused() -> None:
    with pytest.raises(ValueError, match="a model's name"):
        ModelServer(doubled, "a/b")


@pytest.mark.slow
def test_sigterm_ends_what_was_begun() -> None:
    program = """
import time
from ullage_run import serving
def slow(inputs):
    print("began", flush=True)
    time.sleep(0.5)
    return {"y": inputs["x"]}
serving.serve(slow, name="double", host="127.0.0.1", port=0)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().split()[1])
        answers: list[int] = []

        async def ask() -> None:
            async with aiohttp.ClientSession() as client:
                url = f"http://127.0.0.1:{port}/v2/models/double/infer"
                async with client.post(url, json={"inputs": [X]}) as answer:
                    answers.append(answer.status)

        asking = threading.Thread(target=lambda: asyncio.run(ask()))
        asking.start()
        assert process.stdout.readline() == "began\n"
        process.send_signal(signal.SIGTERM)
        asking.join(30)
        assert process.wait(30) == 0
    assert answers == [200]
