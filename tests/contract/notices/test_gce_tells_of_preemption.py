# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio

import pytest

from contract.notices.conftest import EndpointOf
from fakes.metadata import FakeGCE
from ullage.api.interruptions import Interruption, InterruptionKind
from ullage_node.notices.endpoint import AnswerUnreadable, EndpointAway
from ullage_node.notices.gce import GCE

NOTICE = Interruption(kind=InterruptionKind.TERMINATE, deadline_s=130.0, source="GCE")


def a_source() -> GCE:
    return GCE(wall=lambda: 100.9)


async def test_a_preempted_machine_has_thirty_seconds(endpoint_of: EndpointOf) -> None:
    async with FakeGCE() as server:
        source, endpoint = a_source(), endpoint_of(server)
        assert await source.ask(endpoint, None) is None
        server.preempt()
        assert await source.ask(endpoint, None) == NOTICE


async def test_a_change_is_heard_while_waiting_for_it(endpoint_of: EndpointOf) -> None:
    async with FakeGCE() as server:
        source, endpoint = a_source(), endpoint_of(server)
        await source.ask(endpoint, None)
        question = asyncio.create_task(source.ask(endpoint, None))
        while not server.waiting:
            await asyncio.sleep(0.005)
        server.preempt()
        assert await question == NOTICE


async def test_a_change_between_two_questions_is_not_missed(endpoint_of: EndpointOf) -> None:
    async with FakeGCE() as server:
        source, endpoint = a_source(), endpoint_of(server)
        await source.ask(endpoint, None)
        server.preempt()
        assert await source.ask(endpoint, None) == NOTICE


@pytest.mark.slow
async def test_a_wait_without_a_change_answers_as_it_is(endpoint_of: EndpointOf) -> None:
    async with FakeGCE() as server:
        source, endpoint = GCE(wait_s=1), endpoint_of(server)
        assert await source.ask(endpoint, None) is None
        assert await source.ask(endpoint, None) is None


async def test_the_deadline_of_a_known_notice_stays(endpoint_of: EndpointOf) -> None:
    earlier = Interruption(kind=InterruptionKind.TERMINATE, deadline_s=77.0, source="GCE")
    async with FakeGCE() as server:
        server.preempt()
        assert await a_source().ask(endpoint_of(server), earlier) == earlier


async def test_other_words_and_other_servers_are_garbage(endpoint_of: EndpointOf) -> None:
    async with FakeGCE() as server:
        endpoint = endpoint_of(server)
        server.garbage = "MAYBE"
        with pytest.raises(AnswerUnreadable, match="neither TRUE nor FALSE"):
            await a_source().ask(endpoint, None)
        server.garbage, server.flavored = None, False
        with pytest.raises(AnswerUnreadable, match="no metadata server of Google"):
            await a_source().ask(endpoint, None)


async def test_after_a_failure_the_present_value_is_asked_for(endpoint_of: EndpointOf) -> None:
    async with FakeGCE() as server:
        source, endpoint = a_source(), endpoint_of(server)
        await source.ask(endpoint, None)
        server.failing = 503
        with pytest.raises(EndpointAway, match="503"):
            await source.ask(endpoint, None)
        server.failing = 0
        assert await source.ask(endpoint, None) is None  # would wait for twenty seconds otherwise
        assert server.waiting == 0
