# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Clients that want raw tensors and clients that want JSON share batches; none runs again alone."""

from __future__ import annotations

import asyncio
import gzip
import json
import struct
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from fakes.routed import Routed, routed, until
from fakes.triton_server import LENGTH, TritonServer, raw_of, triton_server, values_of
from ullage_router.settings import Limits

INFER = "/v2/models/same/infer"
ROW = [1.0, 2.0, 3.0, 4.0]
JSON_INPUT = (
    b'{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1.0,2.0,3.0,4.0]}],'
    b'"parameters":{"binary_data_output":true}}'
)
RAW_INPUT = (
    b'{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","parameters":{"binary_data_size":16}}]'
    b',"parameters":{"binary_data_output":true}}'
)
RAW_INPUT_JSON_OUTPUT = (
    b'{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","parameters":{"binary_data_size":16}}]'
    b',"outputs":[{"name":"x","parameters":{"binary_data":false}}]}'
)
JSON_INPUT_RAW_OUTPUT = (
    b'{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1.0,2.0,3.0,4.0]}],'
    b'"outputs":[{"name":"x","parameters":{"binary_data":true}}]}'
)
BEHIND = struct.pack("<4f", *ROW)
"""Bodies as tritonclient 2.41 and 2.73 write them; its default is the second."""
CASE = (
    b'{"id": "", "inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", '
    b'"data": [1.0, 2.0, 3.0, 4.0]}], "parameters": {"binary_data_output": true}}'
)

Answered = tuple[int, dict[str, Any], bytes]


async def post(router: Routed, body: bytes, **headers: str) -> Answered:
    """Status, JSON, and what stands behind it."""
    async with router.client.post(router.url + INFER, data=body, headers=headers) as answer:
        whole = await answer.read()
        length = int(answer.headers.get(LENGTH, len(whole)))
        return answer.status, json.loads(whole[:length]), whole[length:]


def with_raw(head: bytes, behind: bytes = BEHIND) -> tuple[bytes, dict[str, str]]:
    return head + behind, {LENGTH: str(len(head))}


def form(answered: Answered) -> str:
    """How its only output is written, once it is the row that was asked."""
    status, body, behind = answered
    assert status == 200, body
    [output] = body["outputs"]
    assert output["shape"] == [1, 4]
    if "data" in output:
        assert output["data"] == ROW
        assert not behind
        return "json"
    assert output["parameters"] == {"binary_data_size": 16}
    assert behind == BEHIND
    return "raw"


async def held_back(router: Routed, server: TritonServer, asking: Iterable[Any]) -> list[Any]:
    """The answers to requests that all wait while another one runs."""
    server.go.clear()
    first = asyncio.create_task(post(router, CASE))
    await until(lambda: len(server.asked) == 1)
    tasks = [asyncio.create_task(one) for one in asking]
    await until(lambda: len(router.dispatcher.queue) == len(tasks))
    server.go.set()
    answers = await asyncio.gather(*tasks)
    await first
    return list(answers)


async def splits(router: Routed) -> float:
    return sum(
        [
            await router.metric("ullage_batches_split_total", reason=one)
            for one in ("refused", "unreadable", "output")
        ]
    ) + await router.metric("ullage_requests_retried_total")


@pytest.mark.parametrize("body", [CASE, JSON_INPUT], ids=["case", "tritonclient"])
async def test_default_requests_take_a_sixth_of_the_runs_and_none_runs_again(body: bytes) -> None:
    async with triton_server() as server, routed(server) as router:
        await router.taught(0.02)
        answers = await held_back(router, server, (post(router, body) for _ in range(96)))
        assert {form(one) for one in answers} == {"raw"}
        assert sum(server.sizes) == 97
        assert len(server.sizes) <= 16, "with at most 16 in a batch six are the fewest"
        assert await splits(router) == 0


async def test_each_form_of_a_client_shares_the_batches() -> None:
    raw, raw_headers = with_raw(RAW_INPUT)
    plain = json.dumps({"inputs": [json.loads(CASE)["inputs"][0]]}).encode()
    kinds: list[tuple[bytes, dict[str, str], str]] = [
        (CASE, {}, "raw"),
        (plain, {}, "json"),
        (raw, raw_headers, "raw"),
        (gzip.compress(raw), {**raw_headers, "Content-Encoding": "gzip"}, "raw"),
        (zlib.compress(plain), {"Content-Encoding": "deflate"}, "json"),
        (gzip.compress(CASE), {"Content-Encoding": "GZip"}, "raw"),
    ]
    async with triton_server() as server, routed(server) as router:
        await router.taught(0.02)
        asking = (post(router, body, **headers) for body, headers, _ in kinds * 8)
        answers = await held_back(router, server, asking)
        assert [form(one) for one in answers] == [wanted for _, _, wanted in kinds] * 8
        assert sum(server.sizes) == 49
        assert len(server.sizes) <= 9
        assert await splits(router) == 0


async def test_outputs_that_are_named_share_a_batch_in_both_forms() -> None:
    one, headers = with_raw(RAW_INPUT_JSON_OUTPUT)
    async with triton_server() as server, routed(server) as router:
        await router.taught(0.02)
        asking = [post(router, one, **headers), post(router, JSON_INPUT_RAW_OUTPUT)]
        answers = await held_back(router, server, asking)
        assert [form(answer) for answer in answers] == ["json", "raw"]
        assert server.asked[-1]["outputs"] == [{"name": "x", "parameters": {"binary_data": True}}]
        assert server.sizes == [1, 2]


@pytest.mark.parametrize(
    ("datatype", "rows"),
    [
        ("FP32", [[0.1, -3.4e38], [1.0, 2.0], [float(np.float32(0.3)), 4.0]]),
        ("FP64", [[0.1, 1e300], [1.0, 2.0], [0.3, 4.0]]),
        ("FP16", [[0.5, 65504.0], [1.0, 2.0], [0.25, 4.0]]),
        ("INT64", [[2**63 - 1, -(2**63)], [1, 2], [3, 4]]),
        ("UINT8", [[255, 0], [1, 2], [3, 4]]),
        ("BOOL", [[True, False], [False, False], [True, True]]),
        ("BYTES", [["", "ä\x00b"], ["abc", ""], ["x" * 300, "y"]]),
    ],
)
async def test_each_data_type_keeps_every_bit(datatype: str, rows: list[list[Any]]) -> None:
    async with triton_server() as server, routed(server) as router:
        await router.taught(0.02)
        asking = []
        for row in rows:
            raw, about = raw_of(datatype, row), {"name": "x", "shape": [1, 2], "datatype": datatype}
            in_json = json.dumps({"inputs": [{**about, "data": row}]}).encode()
            behind = {**about, "parameters": {"binary_data_size": len(raw)}}
            wants = {"binary_data_output": True}
            head = json.dumps({"inputs": [behind], "parameters": wants}).encode()
            asking += [post(router, in_json), post(router, head + raw, **{LENGTH: str(len(head))})]
        answers = await held_back(router, server, asking)
        assert sum(server.sizes) == 7
        assert len(server.sizes) < 7
        for at, row in enumerate(rows):
            in_json, raw = answers[2 * at], answers[2 * at + 1]
            assert raw_of(datatype, in_json[1]["outputs"][0]["data"]) == raw_of(datatype, row)
            assert raw[2] == raw_of(datatype, row)
        assert await splits(router) == 0


async def test_raw_elements_that_json_does_not_have_are_batched_too() -> None:
    async with triton_server() as server, routed(server) as router:
        await router.taught(0.02)
        kinds = [
            ("BF16", struct.pack("<2H", 0x3F80, 0x7FC0)),
            ("BYTES", raw_of("BYTES", [b"\xff"])),
        ]
        for datatype, raw in kinds:
            server.asked.clear()
            shape = [1, 2] if datatype == "BF16" else [1, 1]
            tensor = {"name": "x", "shape": shape, "datatype": datatype}
            tensor["parameters"] = {"binary_data_size": len(raw)}
            body = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
            head = json.dumps(body).encode()
            asking = [post(router, head + raw, **{LENGTH: str(len(head))}) for _ in range(4)]
            answers = await held_back(router, server, asking)
            assert [behind for _, _, behind in answers] == [raw] * 4
            assert len(server.sizes) < 5


async def test_an_output_without_a_place_in_json_goes_to_its_own_client_alone() -> None:
    """The server has to say what a client of JSON gets of bytes that are no text."""
    about = {"name": "x", "shape": [1, 1], "datatype": "BYTES"}

    def asked(raw: bytes, *, wants: bool) -> tuple[bytes, dict[str, str]]:
        tensor = {**about, "parameters": {"binary_data_size": len(raw)}}
        body = {"inputs": [tensor], "parameters": {"binary_data_output": wants}}
        return with_raw(json.dumps(body).encode(), raw)

    async with triton_server() as server, routed(server) as router:
        await router.taught(0.02)
        bodies = [asked(raw_of("BYTES", [b"\xff"]), wants=wants) for wants in (True, True)]
        bodies.append(asked(raw_of("BYTES", ["text"]), wants=False))
        answers = await held_back(router, server, [post(router, b, **h) for b, h in bodies])
        assert [status for status, _, _ in answers] == [200] * 3
        assert answers[2][1]["outputs"][0]["data"] == ["text"]
        assert values_of("BYTES", answers[0][2]) == [b"\xff"]
        assert await splits(router) == 0


async def test_a_server_that_answers_in_json_whatever_is_asked_is_no_failure() -> None:
    async with triton_server(reads_raw=False) as server, routed(server) as router:
        await router.taught(0.02)
        answers = await held_back(router, server, (post(router, CASE) for _ in range(12)))
        assert {form(one) for one in answers} == {"json"}
        assert len(server.sizes) <= 4
        assert await splits(router) == 0


async def test_a_server_that_reads_no_raw_tensors_costs_clients_of_json_one_batch() -> None:
    raw, headers = with_raw(RAW_INPUT)
    async with triton_server(reads_raw=False) as server, routed(server) as router:
        await router.taught(0.02)
        asking = [post(router, raw, **headers), *(post(router, CASE) for _ in range(6))]
        answers = await held_back(router, server, asking)
        assert {form(one) for one in answers[1:]} == {"json"}
        assert answers[0][:2] == (400, {"error": "raw tensors are not read"})
        assert await router.metric("ullage_batches_split_total", reason="refused") == 1
        server.asked.clear()
        asking = [post(router, raw, **headers), *(post(router, CASE) for _ in range(6))]
        answers = await held_back(router, server, asking)
        assert [status for status, _, _ in answers] == [400] + [200] * 6
        assert await router.metric("ullage_batches_split_total", reason="refused") == 1


async def test_a_raw_request_that_runs_alone_is_sent_and_answered_as_it_is() -> None:
    raw, headers = with_raw(RAW_INPUT)
    async with triton_server() as server, routed(server) as router:
        assert form(await post(router, raw, **headers)) == "raw"
        assert server.headers[0][LENGTH] == headers[LENGTH]
        assert server.asked == [json.loads(RAW_INPUT)]


@pytest.mark.parametrize(
    ("body", "headers", "status", "text"),
    [
        (RAW_INPUT + BEHIND, {LENGTH: "x"}, 400, "Inference-Header-Content-Length is a number"),
        (RAW_INPUT + BEHIND, {LENGTH: "-1"}, 400, "Inference-Header-Content-Length is a number"),
        (RAW_INPUT + BEHIND, {LENGTH: "1" * 30}, 400, "Inference-Header-Content-Length is a nu"),
        (RAW_INPUT, {LENGTH: "9999"}, 400, "Inference-Header-Content-Length is a number"),
        (*with_raw(RAW_INPUT, BEHIND[:-1]), 400, "is a number of bytes, of which 15 are left"),
        (*with_raw(RAW_INPUT, BEHIND + b"x"), 400, "leave 1 raw bytes"),
        (*with_raw(RAW_INPUT.replace(b"[1,4]", b"[1,3]")), 400, "16 raw bytes"),
        (*with_raw(RAW_INPUT.replace(b"FP32", b"BYTES")), 400, "cut off"),
        (*with_raw(RAW_INPUT.replace(b":16", b":-1")), 400, "is a number of bytes"),
        (*with_raw(RAW_INPUT.replace(b":16", b":1e400")), 400, "no JSON"),
        (*with_raw(RAW_INPUT.replace(b':16}', b':16},"data":[1]')), 400, "stands beside raw bytes"),
        (RAW_INPUT, {}, 400, "data is a list"),
        (CASE.replace(b"true", b"7"), {}, 400, "binary_data_output is true or false"),
        (CASE.replace(b"FP32", b"INT8").replace(b"1.0, 2.0, 3.0, 4.0", b"1,2,3,400"), {}, 400,
         "numbers beyond INT8"),
        (b"no gzip", {"Content-Encoding": "gzip"}, 400, "Content-Encoding gzip"),
        (gzip.compress(CASE)[:-9], {"Content-Encoding": "gzip"}, 400, "one whole stream"),
        (gzip.compress(CASE) * 2, {"Content-Encoding": "gzip"}, 400, "one whole stream"),
        (b"", {"Content-Encoding": "deflate"}, 400, "one whole stream"),
        (gzip.compress(bytes(5 << 20)), {"Content-Encoding": "gzip"}, 413, "at most"),
    ],
)  # fmt: skip
async def test_a_malformed_body_is_told_where(
    body: bytes, headers: dict[str, str], status: int, text: str
) -> None:
    async with triton_server() as server, routed(server) as router:
        answered = await post(router, body, **headers)
        assert answered[0] == status
        assert text in answered[1]["error"]
        assert not server.asked
        assert router.dispatcher.queue.held_bytes == 0


async def test_what_a_body_unpacks_to_is_held_within_the_budget() -> None:
    limits = Limits(body_bytes=1 << 20, queue_bytes=1 << 20)
    async with triton_server() as server, routed(server, limits=limits) as router:
        status, body, _ = await post(
            router, gzip.compress(bytes(1 << 20)), **{"Content-Encoding": "gzip"}
        )
        assert status == 429
        assert "memory" in body["error"]
        assert router.dispatcher.queue.held_bytes == 0
        assert not server.asked


@pytest.mark.parametrize(
    "answer",
    [b"{not json", b"", b"[]", b'{"outputs": 3}', b'{"error": "out of memory"}', b"[" * 9999],
)
async def test_a_wrong_answer_to_one_request_is_no_success(answer: bytes) -> None:
    async with (
        triton_server(answer=answer) as wrong,
        routed(wrong) as router,
    ):
        status, body, _ = await post(router, CASE)
        assert status == 502
        assert "the replica failed: the replica's answer is malformed" in body["error"]
        assert await router.metric("ullage_requests_total", outcome="failed") == 1
        assert await router.metric("ullage_batches_failed_total") == 1


async def test_a_wrong_answer_to_one_request_runs_once_more_elsewhere() -> None:
    async with (
        triton_server(answer=b"{not json") as wrong,
        triton_server() as right,
        routed(wrong, right) as router,
    ):
        for _ in range(4):
            assert form(await post(router, CASE)) in ("raw", "json")
        assert wrong.asked


@pytest.mark.parametrize("depth", [33, 254, 900])
@pytest.mark.parametrize("where", ["parameters", "inputs", "outputs"])
async def test_parameters_nested_deep_are_refused_with_their_place(depth: int, where: str) -> None:
    nested: Any = 1
    for _ in range(depth):
        nested = {"a": nested}
    body = json.loads(CASE)
    if where == "parameters":
        body["parameters"]["deep"] = nested
    elif where == "inputs":
        body["inputs"][0]["parameters"] = nested
    else:
        body["outputs"] = [{"name": "x", "parameters": nested}]
    async with triton_server() as server, routed(server) as router:
        status, answer, _ = await post(router, json.dumps(body).encode())
        assert status == 400
        assert where in answer["error"]
        assert "nested more than 32 deep" in answer["error"]
        assert not server.asked


async def test_an_answer_nested_deep_fails_its_batch_and_not_the_router() -> None:
    def deepen(answer: dict[str, Any]) -> None:
        nested: Any = 1
        for _ in range(300):
            nested = {"a": nested}
        answer["parameters"] = nested

    async with triton_server() as server, routed(server) as router:
        await router.taught(0.02)
        server.change = deepen
        answers = await held_back(router, server, (post(router, CASE) for _ in range(4)))
        texts = [body["error"] for status, body, _ in answers if status == 502]
        assert texts, "one batch at least"
        assert all("malformed" in text for text in texts)
        assert {status for status, _, _ in answers} <= {200, 502}
