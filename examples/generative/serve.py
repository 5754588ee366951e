# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Generates text, many answers at once: ``python -m generative.serve``.

It speaks OpenAI's completions (`POST /v1/completions`, with `stream`), and has its metrics under
the names of vLLM. Weights are random, so is the text; `logit_bias` of token 256 makes answers
longer or shorter. Settings: PORT 8080, PLACES 8, BLOCKS 256 (of 16 tokens), SEED 7.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import numpy as np
from aiohttp import web

from digits.plan import BadSetting, whole
from generative.engine import Answer, Busy, Engine
from generative.metrics import Metrics
from generative.network import BLOCK, END, LONGEST, Cache, TokenSequence, made

MODEL: Final = "random"
PORT: Final = 8080
PLACES: Final = 8
BLOCKS: Final = 256
SEED: Final = 7
BODY_BYTES: Final = 64 * 1024
MOST: Final = 16
"""Tokens of an answer whose request names no bound, as in OpenAI's API."""
BIAS: Final = 100
ENGINE: Final = web.AppKey("engine", Engine)


def read(body: object, seed: int) -> tuple[Answer, bool]:
    """What a request asks for, and whether it wants its answer token by token.

    Raises:
        ValueError: it is no such request; the text says why.
    """
    if not isinstance(body, dict):
        raise ValueError("the body is an object")
    prompt, most = body.get("prompt"), body.get("max_tokens", MOST)
    if not isinstance(prompt, str):
        raise ValueError("prompt is a text")
    tokens = list(prompt.encode("utf-8", "replace")) or [0]
    if type(most) is not int or not 1 <= most <= LONGEST - len(tokens):
        raise ValueError(f"prompt and max_tokens are {LONGEST} tokens at most, and 1 at least")
    bias = body.get("logit_bias") or {}
    if not isinstance(bias, dict) or not all(map(_biased, bias.items())):
        raise ValueError(f"logit_bias maps a token, 0 to {END}, to -{BIAS}..{BIAS}")
    return Answer(
        prompt=len(tokens),
        most=most,
        bias={int(token): float(more) for token, more in bias.items()},
        sequence=TokenSequence(tokens),
        random=np.random.default_rng(seed),
    ), body.get("stream") is True


def _biased(item: tuple[object, object]) -> bool:
    token, more = item
    known = isinstance(token, str) and token.isdecimal() and len(token) <= 3 and int(token) <= END
    return known and type(more) in (int, float) and abs(float(str(more))) <= BIAS


async def complete(request: web.Request) -> web.StreamResponse:
    """Answer a request for text."""
    engine = request.app[ENGINE]
    try:
        body = json.loads(await request.text())
        answer, stream = read(body, seed=int.from_bytes(os.urandom(4)))
        room = engine.cache.blocks * BLOCK
        if answer.prompt + answer.most > room:
            raise ValueError(f"prompt and max_tokens are above the cache of {room} tokens")
        engine.ask(answer)
    except (ValueError, RecursionError) as error:
        return web.json_response({"error": {"message": str(error)}}, status=400)
    except Busy:
        return web.json_response({"error": {"message": "too many requests wait"}}, status=503)
    try:
        return await (_streamed(request, answer) if stream else _at_once(answer))
    finally:
        answer.left = True


async def _at_once(answer: Answer) -> web.Response:
    text, why = bytearray(), ""
    while not why:
        token = await answer.tokens.get()
        if isinstance(token, str):
            why = token
        else:
            text.append(token)
    usage = {"prompt_tokens": answer.prompt, "completion_tokens": len(text)}
    choice = {"index": 0, "text": text.decode("latin-1"), "finish_reason": why}
    return web.json_response({"model": MODEL, "choices": [choice], "usage": usage})


async def _streamed(request: web.Request, answer: Answer) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    token: int | str = await answer.tokens.get()
    await response.prepare(request)
    while True:
        ended = isinstance(token, str)
        text = "" if isinstance(token, str) else chr(token)
        choice = {"index": 0, "text": text, "finish_reason": token if ended else None}
        await response.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
        if ended:
            break
        token = await answer.tokens.get()
    await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response


async def _health(_request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def _page(request: web.Request) -> web.Response:
    engine = request.app[ENGINE]
    return web.Response(body=engine.metrics.page(), content_type="text/plain")


def app_of(engine: Engine) -> web.Application:
    """The server of an engine."""

    async def working(_app: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(engine.run())
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    app = web.Application(client_max_size=BODY_BYTES)
    app[ENGINE] = engine
    app.cleanup_ctx.append(working)
    app.router.add_post("/v1/completions", complete)
    app.router.add_get("/health", _health)
    app.router.add_get("/metrics", _page)
    return app


def engine_of(places: int = PLACES, blocks: int = BLOCKS, seed: int = SEED) -> Engine:
    """An engine that runs nothing yet."""
    return Engine(decoder=made(seed), cache=Cache(blocks), places=places, metrics=Metrics(MODEL))


@asynccontextmanager
async def served(engine: Engine, host: str, port: int) -> AsyncIterator[int]:
    """Serve an engine; yields the port."""
    runner = web.AppRunner(app_of(engine), access_log=None, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


async def serve(engine: Engine, port: int) -> None:
    """Serve until SIGTERM."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with served(engine, "0.0.0.0", port) as bound:
        print("serving", MODEL, "on port", bound, flush=True)
        await ended.wait()


def main() -> int:
    """Serve until told to stop.

    Returns:
        The exit code.
    """
    try:
        port = whole(os.environ, "PORT", PORT, least=0)
        engine = engine_of(
            places=whole(os.environ, "PLACES", PLACES),
            blocks=whole(os.environ, "BLOCKS", BLOCKS),
            seed=whole(os.environ, "SEED", SEED, least=0),
        )
    except BadSetting as error:
        print(error, file=sys.stderr)
        return 2
    asyncio.run(serve(engine, port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
