# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Queries the price sources of pools and stores the accepted prices.

Each pool is queried on its own schedule and never delays decisions: a query has a time limit, few
run at once, answers are parsed in a thread, and a silent source is queried ever less often. Pools
with the same query share an answer. Nothing is written and no price is guessed.
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
"""Concurrent queries."""


@dataclass(slots=True)
class _AskedPrice:
    """One pool's source and its last results."""

    pool: PoolRecord
    source: QuoteSource | None
    """``None`` = the spec names no usable source."""
    fetch: PriceFetch | None
    """Its query."""
    news: PriceNews
    due: float = 0.0
    """Time of the next query, monotonic seconds."""
    tries: int = 0
    """Consecutive queries without a price."""
    wrong: str = ""
    """Problem of the spec."""
    asked: bool = False


class Prices:
    """The prices of all pools, while this replica leads."""

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
        """``pools`` returns all pools with a source, ``answers`` counts by result.

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
        """The price of a pool as known; ``None`` = its source was not queried yet."""
        held = self._asked.get(uid)
        return held.news if held is not None and held.asked else None

    async def ask(self, pool: PoolRecord) -> None:
        """Query the source of a pool if due, for all pools with the same query."""
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
                if other.due == math.inf:  # cancelled: the others query themselves
                    other.due = 0.0

    def _take_in(self, pools: Iterable[PoolRecord]) -> None:
        """Update the pools: deleted ones are dropped, changed sources queried again."""
        current = {pool.uid: pool for pool in pools if pool.uid}
        for uid in self._asked.keys() - current.keys():
            del self._asked[uid]
        for uid, pool in current.items():
            held = self._asked.get(uid)
            if held is not None and held.pool.price_source == pool.price_source:
                continue
            source, fetch, wrong = self._source(pool)
            # a new source is accepted: prices of the previous one are no measure for it
            record = remembered(pool.status) if held is None else PriceRecord()
            self._asked[uid] = _AskedPrice(
                pool=pool, source=source, fetch=fetch, news=PriceNews(record=record), wrong=wrong
            )

    def _source(self, pool: PoolRecord) -> tuple[QuoteSource | None, PriceFetch | None, str]:
        """The source and its query, and the problem with them."""
        try:
            source = source_of(pool, self._where)
            return source, source.fetch(), ""
        except PriceUnreadable as error:
            return None, None, str(error)
        except Exception as error:  # the boundary of one pool
            log.exception("no source of prices", pool=pool.name)
            return None, None, fault_text(error)

    async def _ask(self, fetch: PriceFetch | None, group: list[_AskedPrice]) -> None:
        body, silent = b"", None
        async with self._gate:
            try:
                body = await self._fetcher.get(fetch)
            except Unreachable as error:
                silent = str(error)
            except Exception as error:  # the boundary of one query
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
            except Exception as error:  # the boundary of one answer
                log.exception("reading a price failed", pool=asked.pool.name)
                self._failed(asked, fault_text(error), reached=True)

    async def _take(self, entry: _AskedPrice, fetch: PriceFetch | None, body: bytes) -> None:
        """Record one pool's price from an answer.

        Raises:
            PriceUnreadable: it does not match the query.
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
