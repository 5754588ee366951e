# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from contract.notices.conftest import EndpointOf
from fakes.metadata import FakeEC2
from ullage.api.interruptions import Interruption, InterruptionKind
from ullage_node.notices.ec2 import EC2, TOKEN, TOKEN_SECONDS
from ullage_node.notices.endpoint import AnswerUnreadable, EndpointAway

END = "2026-01-02T03:04:05Z"
NOTICE = Interruption(kind=InterruptionKind.TERMINATE, deadline_s=1767323045.0, source="EC2")
ADVICE = Interruption(kind=InterruptionKind.REBALANCE, source="EC2")


def tokens_asked(server: FakeEC2) -> int:
    return server.asked.count(("PUT", TOKEN))


async def test_nothing_stands_until_there_is_a_notice(endpoint_of: EndpointOf) -> None:
    async with FakeEC2() as server:
        source, endpoint = EC2(), endpoint_of(server)
        assert await source.ask(endpoint, None) is None
        server.recommend("2026-01-02T02:00:00Z")
        assert await source.ask(endpoint, None) == ADVICE
        server.interrupt(END)
        assert await source.ask(endpoint, ADVICE) == NOTICE
        server.withdraw()
        assert await source.ask(endpoint, NOTICE) is None
        assert tokens_asked(server) == 1


@pytest.mark.parametrize("action", ["terminate", "stop", "hibernate"])
async def test_every_action_ends_the_processes(endpoint_of: EndpointOf, action: str) -> None:
    async with FakeEC2() as server:
        server.interrupt(END, action)
        assert await EC2().ask(endpoint_of(server), None) == NOTICE


async def test_a_token_that_is_over_is_renewed_at_once(endpoint_of: EndpointOf) -> None:
    async with FakeEC2() as server:
        source, endpoint = EC2(), endpoint_of(server)
        assert await source.ask(endpoint, None) is None
        server.tokens.clear()
        server.interrupt(END)
        assert await source.ask(endpoint, None) == NOTICE
        assert tokens_asked(server) == 2


async def test_a_token_is_renewed_before_its_end(endpoint_of: EndpointOf) -> None:
    now = 0.0
    async with FakeEC2() as server:
        source, endpoint = EC2(lambda: now), endpoint_of(server)
        await source.ask(endpoint, None)
        now = TOKEN_SECONDS / 2 - 1
        await source.ask(endpoint, None)
        assert tokens_asked(server) == 1
        now = TOKEN_SECONDS / 2
        await source.ask(endpoint, None)
        assert tokens_asked(server) == 2


@pytest.mark.parametrize(
    "garbage",
    [
        "",
        "soon",
        "[]",
        "{}",
        '{"action": "terminate"}',
        '{"action": "terminate", "time": "tomorrow"}',
        '{"action": "terminate", "time": "2026-01-02T03:04:05"}',
        '{"action": 7, "time": "2026-01-02T03:04:05Z"}',
        '{"action": "applaud", "time": "2026-01-02T03:04:05Z"}',
        "[" * 60_000,
    ],
)
async def test_garbage_is_no_notice(endpoint_of: EndpointOf, garbage: str) -> None:
    async with FakeEC2() as server:
        server.garbage = garbage
        with pytest.raises(AnswerUnreadable, match="instance-action"):
            await EC2().ask(endpoint_of(server), None)


async def test_a_recommendation_without_a_time_is_garbage(endpoint_of: EndpointOf) -> None:
    async with FakeEC2() as server:
        server.rebalance = {"noticeTime": "then"}
        with pytest.raises(AnswerUnreadable, match="noticeTime"):
            await EC2().ask(endpoint_of(server), None)


@pytest.mark.parametrize("status", [400, 403, 404, 500, 503])
async def test_an_endpoint_that_gives_no_token_is_away(
    endpoint_of: EndpointOf, status: int
) -> None:
    async with FakeEC2() as server:
        server.failing = status
        with pytest.raises(EndpointAway, match=str(status)):
            await EC2().ask(endpoint_of(server), None)


async def test_an_endless_answer_is_cut_off(endpoint_of: EndpointOf) -> None:
    async with FakeEC2() as server:
        server.garbage = "x" * (1 << 20)
        with pytest.raises(EndpointAway, match="64 KiB"):
            await EC2().ask(endpoint_of(server), None)


async def test_no_one_who_listens_is_away(endpoint_of: EndpointOf) -> None:
    server = FakeEC2()
    await server.start()
    endpoint = endpoint_of(server)
    await server.stop()
    with pytest.raises(EndpointAway, match="cannot be read"):
        await EC2().ask(endpoint, None)
