# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The agent takes the answer to what it asked, and no other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ullage_node.guard.client import FreezerClient
from ullage_node.guard.protocol import GuardAnswer, decode_request, encode


async def told(path: Path, *others: GuardAnswer) -> str:
    """What a beat brings when other answers come first; its own says that all is well."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = decode_request(await reader.readline())
        for one in (*others, GuardAnswer(number=asked.number)):
            writer.write(encode(one))
        await writer.drain()
        writer.close()

    client = FreezerClient(path)
    async with await asyncio.start_unix_server(answer, path):
        said = await client.beat()
        client.close()
    return said


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (GuardAnswer(number=99, problem="no such container"), ""),
        (GuardAnswer(number=99), ""),
        (GuardAnswer(number=0), ""),
        (GuardAnswer(number=0, problem="no request"), "no request"),
    ],
)
async def test_an_answer_to_another_question_is_passed_over(
    tmp_path: Path, other: GuardAnswer, said: str
) -> None:
    assert await told(tmp_path / "guard.sock", other) == said
