# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Asks the price sources of pools and keeps the prices that are believed.

Each pool asks in its own time and never in the way of deciding: a question has a time limit, few
are under way at once, answers are read in a thread, and a silent source is asked ever less often.
Pools that ask for the same thing share an answer. Nothing is written and no price is guessed.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

import structlog

from ullage.cluster.records.pool import PoolRecord
from ullage.engines.capacity.price import PriceRecord
from ullage.ports import Clock
from ullage.prices.chosen import source_of
from ullage.prices.fetcher import Fetcher, Unreachable
from ullage.prices.source import PriceFetch, PriceUnreadable, QuoteSource, Where, checked
from ullage.prices.times import PRICE_READ_S, PRICE_RETRY_FIRST_S, PRICE_RETRY_MOST_S
from ullage.process.doubling import doubled_s
from ullage.process.faults import fault_text, shortened
from ullage.process.threads import in_thread
from ullage.scheduling.capacity.pool_status import PriceNews, remembered

log = structlog.get_logger("ullage.prices")

AT_ONCE: Final = 4
"""Questions under way at the same time."""


@dataclass(slots=True)
class _AskedPrice:
    """One pool's source and what it said."""

    pool: PoolRecord
    source: QuoteSource | None
    """``None`` = the spec names none that can be asked."""
    fetch: PriceFetch | None
    """What to ask it for."""
    news: PriceNews
    due: float = 0.0
    """When to ask next, monotonic seconds."""
    tries: int = 0
    """Questions in a row that brought no price."""
    wrong: str = ""
    """Problem of the spec."""
    asked: bool = False


class Prices:
    """The prices of all pools, as long as this replica leads."""

    def __init__(
        self,
        fetcher: Fetcher,
        pools: Callable[[], Iterable[PoolRecord]],
        *,
        clock: Clock,
        where: Where,
        period_s: float,
        answers: Counter[str],
    ) -> None:
        """``pools`` gives all that ask, ``answers`` counts by result.

        A result is read, unreadable or unreachable.
        """
        self._fetcher = fetcher
        self._pools = pools
        self._clock = clock
        self._where = where
        self._period_s = period_s
        self._answers = answers
        self._asked: dict[str, _AskedPrice] = {}
        self._gate = asyncio.Semaphore(AT_ONCE)

    def news(self, uid: str) -> PriceNews | None:
        """The price of a pool as known; ``None`` = its source was not asked yet."""
        held = self._asked.get(uid)
        return held.news if held is not None and held.asked else None

    async def ask(self, pool: PoolRecord) -> None:
        """Ask the source of a pool if that is due, for all who ask the same."""
        now, held = self._clock.monotonic(), self._asked.get(pool.uid)
        if held is None or held.pool.price_source != pool.price_source or held.due <= now:
            self._take_in(self._pools())
            held = self._asked.get(pool.uid)
        if held is None or held.due > now:
            return
        if held.wrong:
            self._failed(held, held.wrong, reached=True)
            return
        fetch, group = held.fetch, [held]
        if fetch is not None:
            group = [other for other in self._asked.values() if other.fetch == fetch]
            for other in group:
                fetch = fetch.joined(other.fetch or fetch)
        for other in group:
            other.due = math.inf
        try:
            await self._ask(fetch, group)
        finally:
            for other in group:
                if other.due == math.inf:  # cancelled: the others ask themselves
                    other.due = 0.0

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
            self._asked[uid] = _AskedPrice(
                pool=pool, source=source, fetch=fetch, news=PriceNews(record=record), wrong=wrong
            )

    def _source(self, pool: PoolRecord) -> tuple[QuoteSource | None, PriceFetch | None, str]:
        """Whom to ask for what, and what is wrong with that."""
        try:
            source = source_of(pool, self._where)
            return source, source.fetch(), ""
        except PriceUnreadable as error:
            return None, None, str(error)
        except Exception as error:  # the seam of one pool
            log.exception("no source of prices", pool=pool.name)
            return None, None, fault_text(error)

    async def _ask(self, fetch: PriceFetch | None, group: list[_AskedPrice]) -> None:
        body, silent = b"", None
        async with self._gate:
            try:
                body = await self._fetcher.get(fetch)
            except Unreachable as error:
                silent = str(error)
            except Exception as error:  # the seam of one question
                log.exception("asking for a price failed", pool=group[0].pool.name)
                silent = fault_text(error)
        for asked in group:
            try:
                if silent is not None:
                    self._failed(asked, silent, reached=False)
                else:
                    await self._take(asked, fetch, body)
            except PriceUnreadable as error:
                self._failed(asked, str(error), reached=True)
            except Exception as error:  # the seam of one answer
                log.exception("reading a price failed", pool=asked.pool.name)
                self._failed(asked, fault_text(error), reached=True)

    async def _take(self, entry: _AskedPrice, fetch: PriceFetch | None, body: bytes) -> None:
        """Believe what an answer says of one pool.

        Raises:
            PriceUnreadable: it is not what was asked for.
        """
        assert entry.source is not None
        now_s = self._clock.now()
        try:
            async with asyncio.timeout(PRICE_READ_S):
                answer = await in_thread(entry.source.read, body, now_s)
        except TimeoutError as error:
            raise PriceUnreadable(f"the answer was not read within {PRICE_READ_S:g} s") from error
        quote = checked(answer, now_s)
        self._answers["read"] += 1
        entry.news = PriceNews(record=entry.news.record.quoted(quote))
        entry.asked, entry.tries = True, 0
        period_s = max(self._period_s, fetch.every_s if fetch is not None else 0.0)
        entry.due = self._clock.monotonic() + period_s

    def _failed(self, entry: _AskedPrice, why: str, *, reached: bool) -> None:
        why = shortened(why)
        self._answers["unreadable" if reached else "unreachable"] += 1
        wait_s = doubled_s(PRICE_RETRY_FIRST_S, entry.tries, PRICE_RETRY_MOST_S)
        if not entry.tries or entry.news.failure != why:
            log.warning("no price", pool=entry.pool.name, why=why, again_in_s=wait_s)
        entry.news = replace(entry.news, failure=why, reached=reached)
        entry.asked, entry.tries = True, entry.tries + 1
        entry.due = self._clock.monotonic() + wait_s
