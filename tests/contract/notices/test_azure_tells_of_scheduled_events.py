# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from contract.notices.conftest import EndpointOf
from fakes.metadata import FakeAzure
from ullage.api.interruptions import Interruption, InterruptionKind
from ullage_node.notices.azure import Azure
from ullage_node.notices.endpoint import AnswerUnreadable, EndpointAway

SOON, LATER = "Fri, 02 Jan 2026 03:04:05 GMT", "Fri, 02 Jan 2026 03:09:05 GMT"
SOON_S, LATER_S = 1767323045.0, 1767323345.0


def a_notice(deadline_s: float | None) -> Interruption:
    return Interruption(kind=InterruptionKind.TERMINATE, deadline_s=deadline_s, source="Azure")


@pytest.mark.parametrize("kind", ["Preempt", "Terminate", "Redeploy", "Reboot"])
async def test_events_that_end_the_machine_are_notices(endpoint_of: EndpointOf, kind: str) -> None:
    async with FakeAzure() as server:
        source, endpoint = Azure(), endpoint_of(server)
        assert await source.ask(endpoint, None) is None
        server.schedule("one", kind, SOON)
        assert await source.ask(endpoint, None) == a_notice(SOON_S)
        server.remove("one")
        assert await source.ask(endpoint, a_notice(SOON_S)) is None


async def test_a_freeze_and_events_of_other_machines_are_none(endpoint_of: EndpointOf) -> None:
    async with FakeAzure() as server:
        server.schedule("one", "Freeze", SOON)
        server.schedule("two", "Preempt", SOON, machines=["gpu_1", "gpu_33"])
        source, endpoint = Azure(), endpoint_of(server)
        assert await source.ask(endpoint, None) is None
        server.schedule("three", "Preempt", SOON, machines=["gpu_1", "GPU_3"])
        assert await source.ask(endpoint, None) == a_notice(SOON_S)


async def test_the_first_end_counts(endpoint_of: EndpointOf) -> None:
    async with FakeAzure() as server:
        server.schedule("one", "Terminate", LATER)
        server.schedule("two", "Preempt", SOON)
        assert await Azure().ask(endpoint_of(server), None) == a_notice(SOON_S)


async def test_an_event_that_started_keeps_its_deadline(endpoint_of: EndpointOf) -> None:
    async with FakeAzure() as server:
        source, endpoint = Azure(), endpoint_of(server)
        server.schedule("one", "Preempt", LATER)
        known = await source.ask(endpoint, None)
        assert known == a_notice(LATER_S)
        server.schedule("one", "Preempt", LATER, started=True)
        assert await source.ask(endpoint, known) == known
        assert await source.ask(endpoint, None) == a_notice(None)


@pytest.mark.parametrize(
    "garbage",
    [
        "",
        "[]",
        '{"Events": 7}',
        '{"Events": [{}]}',
        '{"Events": [{"EventType": "Preempt", "Resources": "gpu_3"}]}',
        '{"Events": [{"EventType": "Preempt", "Resources": ["gpu_3"], "NotBefore": "soon"}]}',
        '{"Events": [{"EventType": "Preempt", "Resources": ["gpu_3"], "NotBefore": 3}]}',
    ],
)
async def test_garbage_is_no_notice(endpoint_of: EndpointOf, garbage: str) -> None:
    async with FakeAzure() as server:
        server.garbage = garbage
        with pytest.raises(AnswerUnreadable, match="scheduledevents"):
            await Azure().ask(endpoint_of(server), None)


async def test_an_endpoint_that_refuses_is_away(endpoint_of: EndpointOf) -> None:
    async with FakeAzure() as server:
        server.failing = 429
        with pytest.raises(EndpointAway, match="429"):
            await Azure().ask(endpoint_of(server), None)
