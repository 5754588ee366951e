# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""From a metadata endpoint to ``GPUNode.status``, through the whole agent."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from fakes.kubelet_node import NodeRig
from fakes.metadata import FakeEC2
from ullage.api.readers import JsonObject, section
from ullage_node.settings import NoticeProvider, NoticeSettings

END = "2026-01-02T03:04:05Z"
SAID = {"kind": "Terminate", "deadline": END, "source": "EC2"}


def said_by(node: NodeRig) -> JsonObject:
    return section(node.status(), "interruption")


def listen_to(node: NodeRig, server: FakeEC2) -> None:
    node.settings = replace(
        node.settings,
        notices=NoticeSettings(
            provider=NoticeProvider.EC2, url=server.url, poll_seconds=0.02, timeout_seconds=20.0
        ),
    )


@pytest.mark.slow
async def test_a_notice_is_reported_at_once_and_taken_back() -> None:
    async with FakeEC2() as server, NodeRig() as node:
        listen_to(node, server)
        agent = await node.start_agent()
        await node.until(node.status)
        assert not said_by(node)
        server.recommend(END)
        await node.until(lambda: said_by(node).get("kind") == "Rebalance")
        server.interrupt(END)
        await node.until(lambda: said_by(node) == SAID)
        heard_at, asked = time.monotonic(), len(server.asked)
        await node.until(lambda: len(server.asked) > asked + 10)  # the last write is answered
        writes, asked = agent.publisher.writes, len(server.asked)
        await node.until(lambda: len(server.asked) > asked + 20)
        if time.monotonic() - heard_at < node.settings.periods.heartbeat_seconds / 2:
            assert agent.publisher.writes == writes  # the same notice again is no news
        server.withdraw()
        await node.until(lambda: not said_by(node))
        assert agent.notices.heard == {("EC2", "Rebalance"): 1, ("EC2", "Terminate"): 1}


async def test_a_notice_outlives_agent_and_endpoint() -> None:
    async with FakeEC2() as server, NodeRig() as node:
        listen_to(node, server)
        server.interrupt(END)
        await node.start_agent()
        await node.until(lambda: said_by(node) == SAID)
        await node.kill_agent()
        await server.stop()
        young = await node.start_agent()
        await node.until(lambda: young.publisher.writes and young.notices.failures["away"])
        assert said_by(node) == SAID
        server.withdraw()
        await server.start()
        await node.until(lambda: not said_by(node))


async def test_without_a_provider_an_old_notice_is_cleared() -> None:
    async with FakeEC2() as server, NodeRig() as node:
        listen_to(node, server)
        server.interrupt(END)
        await node.start_agent()
        await node.until(lambda: said_by(node) == SAID)
        await node.kill_agent()
        node.settings = replace(node.settings, notices=NoticeSettings())
        young = await node.start_agent()
        await node.until(lambda: young.publisher.writes)
        assert not said_by(node)
        assert young.notices.current is None
        assert server.asked
