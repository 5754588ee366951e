# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Polls the price sources of pools and keeps the prices that are believed.

Runs beside deciding and never in its way: every question has a time limit, few are under way at
once, answers are read in a thread, and a silent source is asked ever less often. Pools that ask for
the same thing share one answer. It writes nothing to the API and never guesses a price.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from ullage.cluster.records.pool import PoolRecord
from ullage.engines.capacity.price import PriceRecord
from ullage.ports import Clock
from ullage.prices.chosen import source_of
from ullage.prices.fetcher import Fetcher, Unreachable
from ullage.prices.source import Fetch, PriceSource, PriceUnreadable, Where, checked
from ullage.process.doubling import doubled_s
from ullage.process.faults import fault_text, shortened
from ullage.scheduling.capacity.prices import PriceNews, remembered

log = structlog.get_logger("ullage.prices")

TICK_S: Final = 1.0
AT_ONCE: Final = 4
"""Questions under way at the same time."""
READ_S: Final = 10.0
"""Most that reading one answer takes."""
RETRY_FIRST_S: Final = 30.0
RETRY_MOST_S: Final = 1800.0
"""A source that does not answer is asked again after 30 s, doubling to half an hour."""


@dataclass(slots=True)
class _Asked:
    """One pool's source and what it said."""

    pool: PoolRecord
    source: PriceSource | None
    """``None`` = the spec names none that can be asked."""
    fetch: Fetch | None
    """What to ask it for."""
    news: PriceNews
    due: float = 0.0
    """When to ask next, monotonic seconds."""
    tries: int = 0
    """Questions in a row that brought no price."""
    wrong: str = ""
    """Problem of the spec."""
    asked: bool = False


@dataclass(slots=True)
class PriceFigures:
    """Figures of the polls for the metrics."""

    answers: dict[str, int] = field(default_factory=dict)
    """By result: read, unreadable or unreachable."""


class PriceLoop:
    """Keeps the prices of all pools."""

    def __init__(
        self,
        fetcher: Fetcher,
        pools: Callable[[], Iterable[PoolRecord]],
        *,
        clock: Clock,
        where: Where,
        period_s: float,
    ) -> None:
        """``pools`` gives those to ask for, as the API shows them; none where no one asks."""
        self._fetcher = fetcher
        self._pools = pools
        self._clock = clock
        self._where = where
        self._period_s = period_s
        self._asked: dict[str, _Asked] = {}
        self.figures = PriceFigures()

    @property
    def news(self) -> Mapping[str, PriceNews]:
        """Believed prices, by uid of the pool; a pool that was not polled yet is missing."""
        return {uid: one.news for uid, one in self._asked.items() if one.asked}

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            await self.round()
            await asyncio.sleep(TICK_S)

    async def round(self) -> None:
        """Ask every source that is due, once."""
        self._take_in(self._pools())
        now = self._clock.monotonic()
        groups: dict[Fetch | None, list[_Asked]] = {}
        wanted: dict[Fetch, Fetch] = {}
        for one in self._asked.values():
            if one.wrong:
                if one.due <= now:
                    self._failed(one, one.wrong, reached=True)
                continue
            groups.setdefault(one.fetch, []).append(one)
            if one.fetch is not None:
                wanted[one.fetch] = wanted.get(one.fetch, one.fetch).joined(one.fetch)
        due = [
            (wanted[fetch] if fetch is not None else None, group)
            for fetch, group in groups.items()
            if any(one.due <= now for one in group)
        ]
        gate = asyncio.Semaphore(AT_ONCE)
        await asyncio.gather(*(self._ask(gate, fetch, group) for fetch, group in due))

    def _take_in(self, pools: Iterable[PoolRecord]) -> None:
        """Follow the pools: those that are gone are forgotten, changed sources asked again."""
        current = {pool.uid: pool for pool in pools if pool.uid}
        for uid in self._asked.keys() - current.keys():
            del self._asked[uid]
        for uid, pool in current.items():
            held = self._asked.get(uid)
            if held is not None and held.pool.price_source == pool.price_source:
                continue
            source, fetch, wrong = self._source(pool)
            # a new source is believed: what the one before said is no measure for it
            record = remembered(pool.status) if held is None else PriceRecord()
            self._asked[uid] = _Asked(
                pool=pool, source=source, fetch=fetch, news=PriceNews(record=record), wrong=wrong
            )

    def _source(self, pool: PoolRecord) -> tuple[PriceSource | None, Fetch | None, str]:
        """Whom to ask for what, and what is wrong with that."""
        try:
            source = source_of(pool, self._where)
            return source, source.fetch(), ""
        except PriceUnreadable as error:
            return None, None, str(error)
        except Exception as error:  # the seam of one pool
            log.exception("no source of prices", pool=pool.name)
            return None, None, fault_text(error)

    async def _ask(self, gate: asyncio.Semaphore, fetch: Fetch | None, group: list[_Asked]) -> None:
        async with gate:
            try:
                body = await self._fetcher.get(fetch)
            except Unreachable as error:
                self._none_answered(group, str(error))
                return
            except Exception as error:  # the seam of one question
                log.exception("asking for a price failed", pool=group[0].pool.name)
                self._none_answered(group, fault_text(error))
                return
        for one in group:
            try:
                await self._take(one, fetch, body)
            except PriceUnreadable as error:
                self._failed(one, str(error), reached=True)
            except Exception as error:  # the seam of one answer
                log.exception("reading a price failed", pool=one.pool.name)
                self._failed(one, fault_text(error), reached=True)

    async def _take(self, one: _Asked, fetch: Fetch | None, body: bytes) -> None:
        """Believe what an answer says of one pool.

        Raises:
            PriceUnreadable: it is not what was asked for.
        """
        assert one.source is not None
        now_s = self._clock.now()
        try:
            async with asyncio.timeout(READ_S):
                found = await asyncio.to_thread(one.source.read, body, now_s)
        except TimeoutError as error:
            raise PriceUnreadable(f"the answer was not read within {READ_S:g} s") from error
        quote = checked(found, now_s)
        self._count("read")
        one.news = PriceNews(record=one.news.record.quoted(quote))
        one.asked, one.tries = True, 0
        period_s = max(self._period_s, fetch.every_s if fetch is not None else 0.0)
        one.due = self._clock.monotonic() + period_s

    def _none_answered(self, group: Iterable[_Asked], why: str) -> None:
        for one in group:
            self._failed(one, why, reached=False)

    def _failed(self, one: _Asked, why: str, *, reached: bool) -> None:
        why = shortened(why)
        self._count("unreadable" if reached else "unreachable")
        wait_s = doubled_s(RETRY_FIRST_S, one.tries, RETRY_MOST_S)
        if not one.tries or one.news.failure != why:
            log.warning("no price", pool=one.pool.name, why=why, again_in_s=wait_s)
        one.news = replace(one.news, failure=why, reached=reached)
        one.asked, one.tries = True, one.tries + 1
        one.due = self._clock.monotonic() + wait_s

    def _count(self, result: str) -> None:
        self.figures.answers[result] = self.figures.answers.get(result, 0) + 1
