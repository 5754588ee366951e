# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the router sends to servers and clients is what the protocol's page says.

Open Inference Protocol, "HTTP/REST": ``$inference_request``, ``$inference_response``,
``$inference_error_response``, ``$request_input``, ``$response_output``, tensor data types.
"""

from __future__ import annotations

import asyncio
from typing import Any

import jsonschema
import pytest

from fakes.batch_server import batch_server, die
from fakes.routed import routed, tensor

PARAMETERS = {
    "type": "object",
    "additionalProperties": {"type": ["string", "number", "boolean"]},
}
TENSOR = {
    "type": "object",
    "required": ["name", "shape", "datatype", "data"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string"},
        "shape": {"type": "array", "items": {"type": "integer"}},
        "datatype": {
            "enum": [
                *("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32"),
                *("INT64", "FP16", "FP32", "FP64", "BYTES"),
            ]
        },
        "parameters": PARAMETERS,
        "data": {"type": "array"},
    },
}
REQUEST = {
    "type": "object",
    "required": ["inputs"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "string"},
        "parameters": PARAMETERS,
        "inputs": {"type": "array", "minItems": 1, "items": TENSOR},
        "outputs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "parameters": PARAMETERS},
            },
        },
    },
}
RESPONSE = {
    "type": "object",
    "required": ["model_name", "outputs"],
    "additionalProperties": False,
    "properties": {
        "model_name": {"type": "string"},
        "model_version": {"type": "string"},
        "id": {"type": "string"},
        "parameters": PARAMETERS,
        "outputs": {"type": "array", "items": TENSOR},
    },
}
ERROR = {
    "type": "object",
    "required": ["error"],
    "additionalProperties": False,
    "properties": {"error": {"type": "string"}},
}

ASKED: list[dict[str, Any]] = [
    {"inputs": [tensor([1.5])]},
    {"inputs": [tensor([1.5, 2.5])], "id": "mine", "parameters": {"top": 3}},
    {"inputs": [tensor([[1, 2], [3, 4]], shape=[2, 2], datatype="INT64")]},
    {"inputs": [tensor([True], shape=[1], datatype="BOOL")]},
    {"inputs": [tensor(["text"], shape=[1], datatype="BYTES", parameters={"of": "a"})]},
    {"inputs": [tensor([1.5])], "outputs": [{"name": "out_x"}]},
]


@pytest.mark.parametrize("asked", ASKED)
async def test_requests_and_answers_of_a_batch(asked: dict[str, Any]) -> None:
    jsonschema.validate(asked, REQUEST)
    async with batch_server(seconds=lambda _: 0.03) as server, routed(server) as router:
        await router.taught(0.03)
        answers = await asyncio.gather(*(router.infer(**asked) for _ in range(12)))
        assert len(server.asked) < 12
        for sent in server.asked:
            jsonschema.validate(sent, REQUEST)
        for status, body in answers:
            assert status == 200
            jsonschema.validate(body, RESPONSE)
            assert body.get("id") == asked.get("id")


async def test_errors_of_each_kind() -> None:
    async with batch_server(misdeeds=[die, die]) as server, routed(server) as router:
        await router.taught(0.05)
        answers = [
            await router.infer(),
            await router.infer(inputs=[]),
            await router.infer(headers={"x-deadline-ms": "no"}),
            await router.infer(headers={"x-deadline-ms": "5"}),
        ]
        assert [status for status, _ in answers][:3] == [502, 400, 400]
        assert answers[3][0] in (429, 503)
        for _, body in answers:
            jsonschema.validate(body, ERROR)


async def test_health_is_told_by_the_status() -> None:
    async with batch_server() as server, routed(server) as router:
        for path in ("/v2/health/live", "/v2/health/ready"):
            async with router.client.get(router.url + path) as answer:
                assert answer.status == 200
