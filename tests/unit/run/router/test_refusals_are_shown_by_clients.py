# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Refusals have the form that the clients of a path read, and a wait that clients keep to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fakes.batch_server import BatchServer, batch_server, hang
from fakes.generative_server import COMPLETIONS, generative_server
from fakes.routed import Routed, routed, tensor, until
from ullage_router.paths import OPENAI
from ullage_router.settings import Backend, Generative, Limits

CHAT = "/v1/chat/completions"
INFER = "/v2/models/double/infer"
BODY = {"model": "m", "messages": [], "inputs": [tensor([1.0])]}


async def ask(router: Routed, path: str, **given: Any) -> tuple[int, Any, str]:
    """Status, error, and the time to come again."""
    words = {"json": BODY} | given
    async with router.client.post(router.url + path, **words) as answer:
        assert answer.content_type == "application/json"
        error = (await answer.json())["error"]
        return answer.status, error, answer.headers.get("Retry-After", "")


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/embeddings", "/openai/v1/models"])
async def test_no_replica_is_told_with_message_type_code_and_param(path: str) -> None:
    async with routed(Backend(url="http://127.0.0.1:9"), up=0, objective_s=0.05) as router:
        status, error, _ = await ask(router, path)
        assert status == 503
        assert error == {
            "message": "no replica is ready",
            "type": "server_error",
            "code": "service_unavailable",
            "param": None,
        }
        for other in (INFER, "/predict", "/v1/models/m:predict"):
            status, error, _ = await ask(router, other)
            assert (status, error) == (503, "no replica is ready")


async def _too_many(server: BatchServer, router: Routed) -> tuple[int, Any, str]:
    server.misdeeds = [hang]
    first = asyncio.create_task(router.infer())
    await until(lambda: len(server.asked) == 1)
    waiting = asyncio.create_task(router.infer())
    await until(lambda: len(router.dispatcher.queue) == 1)
    answered = await ask(router, CHAT)
    for task in (first, waiting):
        task.cancel()
    await asyncio.gather(first, waiting, return_exceptions=True)
    return answered


async def test_each_refusal_has_its_type_and_code() -> None:
    limits = Limits(body_bytes=1000, queue_calls=1, body_s=0.1)
    async with batch_server() as server, routed(server, limits=limits) as router:
        seen = [
            await ask(router, CHAT, headers={"x-deadline-ms": "never"}),
            await ask(router, CHAT, json=None, data=b"x" * 2000),
            await ask(router, CHAT, json=None, data=_slow()),
            await _too_many(server, router),
        ]
        found = [(status, error["type"], error["code"]) for status, error, _ in seen]
        assert found == [
            (400, "invalid_request_error", "invalid_request"),
            (413, "invalid_request_error", "request_too_large"),
            (408, "invalid_request_error", "request_timeout"),
            (429, "rate_limit_error", "rate_limit_exceeded"),
        ]
        assert seen[3][1]["message"] == "1 requests wait already; come again later"


async def _slow() -> Any:
    yield b"x"
    await asyncio.sleep(60)


async def test_a_replica_that_fails_is_told_so_too() -> None:
    async with (
        generative_server(dies_after=0) as server,
        routed(server.backend, generative=Generative()) as router,
    ):
        server.let(2)
        status, error, _ = await ask(router, COMPLETIONS, json={"max_tokens": 1, "prompt": "p"})
        assert (status, error["type"], error["code"]) == (502, "server_error", "bad_gateway")
        assert error["message"].startswith("the replica failed")


@pytest.mark.parametrize(
    ("wake_s", "header", "text"),
    [
        (0.0, "1", "no replica is ready"),
        (59.5, "60", "no replica is ready"),
        (240.0, "60", "no replica is ready; it may take 240 s"),
        (86400.0, "60", "no replica is ready; it may take 86400 s"),
    ],
)
async def test_the_wait_is_one_that_clients_keep_to_and_the_text_says_the_true_one(
    wake_s: float, header: str, text: str
) -> None:
    """OpenAI's client below 3.0 passes over more than 60 s, since then it gives up above 120 s."""
    async with routed(Backend(url="http://127.0.0.1:9"), up=0, objective_s=0.05) as router:
        router.dispatcher.wake_s = wake_s
        assert await ask(router, CHAT) == (
            503,
            {"message": text, "type": "server_error", "code": "service_unavailable", "param": None},
            header,
        )
        assert await ask(router, INFER) == (503, text, header)


@pytest.mark.parametrize(
    ("path", "is_openai"),
    [
        ("/v1/chat/completions", True),
        ("/chat/completions", True),
        ("/v1/models", True),
        ("/v1/models/ft:gpt", True),
        ("/v1/models/m:predict", False),
        ("/v2/models/m/infer", False),
        ("/x/v1/completions", False),
    ],
)
def test_which_paths_are_openai_s(path: str, is_openai: bool) -> None:
    assert bool(OPENAI.fullmatch(path)) is is_openai
