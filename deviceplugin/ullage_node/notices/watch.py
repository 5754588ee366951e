# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Polls the provider for interruption notices and reports changes.

A notice is in force until the provider withdraws it; an unreachable endpoint withdraws nothing. A
repeated notice is one notice. No endpoint can end or block the agent.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import aiohttp
import structlog

from ullage.api.interruptions import Interruption
from ullage.process.faults import fault_text
from ullage.process.metric_families import counter, gauge
from ullage_node.notices.azure import Azure
from ullage_node.notices.ec2 import EC2
from ullage_node.notices.endpoint import AnswerUnreadable, Endpoint, EndpointAway, NoticeSource
from ullage_node.notices.gce import GCE
from ullage_node.settings import NoticeProvider, NoticeSettings
from ullage_node.times import NOTICE_BACKOFF_MOST_S

PATIENT_FAILURES: Final = 2
"""Consecutive failed requests before the polling period grows."""
AWAY, UNREADABLE = "away", "unreadable"

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


def source_of(provider: NoticeProvider) -> NoticeSource | None:
    """The source to poll; ``None`` = none, since notices are off or come as taints."""
    makers: dict[NoticeProvider, Callable[[], NoticeSource]] = {
        NoticeProvider.EC2: EC2,
        NoticeProvider.GCE: GCE,
        NoticeProvider.AZURE: Azure,
    }
    maker = makers.get(provider)
    return maker() if maker is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeFigures:
    """Figures of the metrics."""

    heard: Mapping[tuple[str, str], int] = counter(
        "ullage_node_interruption_notices",
        "Interruption notices of the provider.",
        "source",
        "kind",
    )
    interrupted: bool = gauge("ullage_node_interrupted", "1 = a notice is in force on the node.")
    failures: Mapping[str, int] = counter(
        "ullage_node_notice_failures",
        "Questions to the metadata endpoint without a readable answer.",
        "result",
    )


class NoticeWatch:
    """Tracks the notice in force.

    Args:
        settings: provider, endpoint and period.
        source: used instead of the provider in the settings.
    """

    def __init__(self, settings: NoticeSettings, source: NoticeSource | None = None) -> None:
        self._settings = settings
        self._source = source or source_of(settings.provider)
        self._answered = False
        self._problem = ""
        self._silent = 0
        self.current: Interruption | None = None
        """The notice in force."""
        self.heard: Counter[tuple[str, str]] = Counter()
        """Notices by (source, kind)."""
        self.failures: Counter[str] = Counter()
        """Failed requests: away, unreadable."""
        self.on_change: Callable[[], None] = lambda: None

    @property
    def figures(self) -> NoticeFigures:
        """Current figures of the metrics."""
        return NoticeFigures(
            heard=self.heard,
            interrupted=self.current is not None,
            failures={result: self.failures[result] for result in (AWAY, UNREADABLE)},
        )

    def restore(self, earlier: Interruption | None) -> None:
        """Restore an earlier agent's notice, until the provider answers for the first time."""
        source = self._source
        if source is None or earlier is None or self._answered or self.current is not None:
            return
        if earlier.source == source.name:
            self.current = earlier

    async def run(self) -> None:
        """Work until cancelled."""
        if self._source is None:
            await asyncio.Event().wait()
            return
        connector = aiohttp.TCPConnector(limit=2)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:
            base = self._settings.url or self._source.base
            endpoint = Endpoint(session, base, self._settings.timeout_seconds)
            while True:
                asked_at = time.monotonic()
                await self.look(endpoint)
                spent_s = time.monotonic() - asked_at
                await asyncio.sleep(max(0.0, self.pause_s - spent_s))

    @property
    def pause_s(self) -> float:
        """Seconds between two requests: the period, longer while there is no answer."""
        doublings = min(max(0, self._silent - PATIENT_FAILURES), 16)
        period_s = self._settings.poll_seconds
        return max(period_s, min(period_s * 2.0**doublings, NOTICE_BACKOFF_MOST_S))

    async def look(self, endpoint: Endpoint) -> None:
        """Poll once."""
        assert self._source is not None
        try:
            notice = await self._source.ask(endpoint, self.current)
        except EndpointAway as error:
            self._silent += 1
            self._fail(AWAY, str(error))
            return
        except AnswerUnreadable as error:
            self._silent = 0
            self._fail(UNREADABLE, str(error))
            return
        except Exception as error:  # one bad answer must not end the task
            self._fail(UNREADABLE, fault_text(error))
            return
        self._silent = 0
        if self._problem:
            self._problem = ""
            _log.info("notices are heard again", source=self._source.name)
        self._take(notice)

    def _take(self, notice: Interruption | None) -> None:
        first, self._answered = not self._answered, True
        before, self.current = self.current, notice
        if notice == before:
            return
        if notice is not None:
            self.heard[notice.source, notice.kind.value] += 1
            _log.warning("interruption notice", **notice.to_wire())
        elif before is not None:
            _log.warning("interruption notice withdrawn", restored=first, **before.to_wire())
        self.on_change()

    def _fail(self, result: str, why: str) -> None:
        self.failures[result] += 1
        if why != self._problem:
            self._problem = why
            _log.warning("no notices can be heard", result=result, why=why)
