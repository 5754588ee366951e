# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The watch: one notice is one notice, silence takes nothing back, nothing ends the agent."""

from __future__ import annotations

from collections.abc import Sequence

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from ullage.api.interruptions import Interruption, InterruptionKind
from ullage.process.metric_families import FiguresCollector
from ullage_node.notices.azure import Azure
from ullage_node.notices.ec2 import EC2
from ullage_node.notices.endpoint import AnswerUnreadable, Endpoint, EndpointAway, NoticeSource
from ullage_node.notices.gce import GCE
from ullage_node.notices.watch import NoticeWatch, source_of
from ullage_node.settings import NoticeProvider, NoticeSettings
from ullage_node.times import NOTICE_BACKOFF_MOST_S

NOTICE = Interruption(kind=InterruptionKind.TERMINATE, deadline_s=100.0, source="EC2")
LATER = Interruption(kind=InterruptionKind.TERMINATE, deadline_s=220.0, source="EC2")
ADVICE = Interruption(kind=InterruptionKind.REBALANCE, source="EC2")
Says = Interruption | Exception | None


class Scripted:
    """Answers one after the other."""

    name, base = "EC2", "http://127.0.0.1:1"

    def __init__(self, says: Sequence[Says]) -> None:
        self.says = list(says)

    async def ask(self, endpoint: Endpoint, known: Interruption | None) -> Interruption | None:
        said = self.says.pop(0)
        if isinstance(said, Exception):
            raise said
        return said


class Listener:
    """A watch over a script, and what it told."""

    def __init__(self, *says: Says, period_s: float = 2.0) -> None:
        self.source = Scripted(says)
        self.watch = NoticeWatch(
            NoticeSettings(provider=NoticeProvider.EC2, poll_seconds=period_s), self.source
        )
        self.told: list[Interruption | None] = []
        self.watch.on_change = lambda: self.told.append(self.watch.current)

    async def listen(self) -> Listener:
        async with aiohttp.ClientSession() as session:
            while self.source.says:
                await self.watch.look(Endpoint(session, self.source.base, 1.0))
        return self


async def test_what_is_heard_twice_is_one_notice() -> None:
    heard = await Listener(None, NOTICE, NOTICE, NOTICE, LATER, LATER, None, None).listen()
    assert heard.told == [NOTICE, LATER, None]
    assert heard.watch.heard == {("EC2", "Terminate"): 2}


async def test_silence_and_garbage_take_nothing_back() -> None:
    away, garbage = EndpointAway("gone"), AnswerUnreadable("what")
    heard = await Listener(ADVICE, away, garbage, away, ADVICE, NOTICE, garbage).listen()
    assert heard.told == [ADVICE, NOTICE]
    assert heard.watch.current == NOTICE
    assert heard.watch.failures == {"away": 2, "unreadable": 2}


async def test_a_failure_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    garbage = [AnswerUnreadable("what is this") for _ in range(50)]
    heard = await Listener(*garbage, None, *garbage).listen()
    assert capsys.readouterr().out.count("what is this") == 2
    assert heard.watch.failures["unreadable"] == 100
    assert heard.told == []


async def test_an_endpoint_that_is_away_is_asked_less_often() -> None:
    heard = await Listener(EndpointAway("gone"), EndpointAway("gone")).listen()
    assert heard.watch.pause_s == 2.0
    for expected in (4.0, 8.0, 16.0, NOTICE_BACKOFF_MOST_S, NOTICE_BACKOFF_MOST_S):
        heard.source.says = [EndpointAway("gone")]
        await heard.listen()
        assert heard.watch.pause_s == expected
    heard.source.says = [None]
    await heard.listen()
    assert heard.watch.pause_s == 2.0


async def test_a_young_agent_keeps_the_notice_until_it_is_answered() -> None:
    young = Listener(EndpointAway("gone"), NOTICE)
    young.watch.restore(NOTICE)
    await young.listen()
    assert young.watch.current == NOTICE
    assert young.told == []
    over = Listener(None)
    over.watch.restore(NOTICE)
    await over.listen()
    assert over.told == [None]
    over.watch.restore(NOTICE)
    assert over.watch.current is None


def test_what_another_provider_said_is_not_kept() -> None:
    young = Listener()
    young.watch.restore(Interruption(kind=InterruptionKind.TERMINATE, source="GCE"))
    assert young.watch.current is None
    silent = NoticeWatch(NoticeSettings())
    silent.restore(NOTICE)
    assert silent.current is None


@pytest.mark.parametrize(
    ("provider", "kind"),
    [(NoticeProvider.EC2, EC2), (NoticeProvider.GCE, GCE), (NoticeProvider.AZURE, Azure)],
)
def test_each_provider_has_its_source(provider: NoticeProvider, kind: type[NoticeSource]) -> None:
    source = source_of(provider)
    assert source is not None
    assert isinstance(source, kind)
    assert source.name == provider.value


def test_no_one_is_asked_for_taints_or_nothing() -> None:
    assert source_of(NoticeProvider.NONE) is None
    assert source_of(NoticeProvider.TAINTS) is None


async def test_metrics_count_what_was_heard() -> None:
    heard = await Listener(ADVICE, NOTICE, EndpointAway("gone")).listen()
    registry = CollectorRegistry()
    registry.register(FiguresCollector(lambda: heard.watch.figures))
    page = generate_latest(registry).decode()
    assert 'ullage_node_interruption_notices_total{kind="Terminate",source="EC2"} 1.0' in page
    assert 'ullage_node_interruption_notices_total{kind="Rebalance",source="EC2"} 1.0' in page
    assert "ullage_node_interrupted 1.0" in page
    assert 'ullage_node_notice_failures_total{result="away"} 1.0' in page
    assert 'ullage_node_notice_failures_total{result="unreadable"} 0.0' in page
