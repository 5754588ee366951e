# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The one seam of prices: a request, and what its answer says.

A source is a value without I/O, so that every answer can be replayed. An answer that does not hold
exactly what was asked for is an error that says what to look at, never a price of something else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, Protocol

import orjson

from ullage.engines.capacity.price import Quote
from ullage.prices.times import PRICE_AHEAD_MOST_S
from ullage.process.faults import shortened

MOST_PER_HOUR: Final = 1e6
"""Dollars; no instance costs a hundredth of it."""


class PriceUnreadable(ValueError):
    """An answer without the price that was asked for; the text says what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paging:
    """Reading of an answer in pages: only the rows that someone wants are kept.

    Attributes:
        rows: Name of the list of rows in a page, and in the answer that is made of them.
        key: Field that names a row.
        keep: Names of the rows that are wanted; once all were found no further page is asked for.
            Not part of what is asked, so that several sources share one walk.
        token: Field of a page with the token of the next one; empty or missing = the last.
        parameter: Name of the token in the query.
    """

    rows: str
    key: str
    keep: frozenset[str] = field(compare=False)
    token: str = "nextPageToken"
    parameter: str = "pageToken"


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceFetch:
    """A request to a source.

    Attributes:
        url: Of a GET; a path for files; ``configmap:namespace/name/key``.
        signed_for: Service and region that a request has to be signed for; ``None`` = none.
        bearer: The request needs a bearer token of the cloud's own.
        paging: The answer comes in pages; ``None`` = in one piece.
        every_s: Not to be asked more often, seconds; 0 = as often as the others.
    """

    url: str
    signed_for: tuple[str, str] | None = None
    bearer: bool = False
    paging: Paging | None = None
    every_s: float = 0.0

    def joined(self, other: PriceFetch) -> PriceFetch:
        """The same question for the rows that either wants."""
        if self.paging is None or other.paging is None:
            return self
        keep = self.paging.keep | other.paging.keep
        return replace(self, paging=replace(self.paging, keep=keep))


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Places where sources may be looked for.

    Attributes:
        namespace: Of the operator: ConfigMaps of no other are read.
        file_root: Folder below which files of prices lie; nothing above it is read.
    """

    namespace: str
    file_root: str


class QuoteSource(Protocol):
    """One pool's price."""

    def fetch(self) -> PriceFetch | None:
        """The request; ``None`` = none, an empty body suffices."""

    def read(self, body: bytes, now_s: float) -> Quote:
        """Reads the answer.

        Args:
            body: The answer.
            now_s: Seconds since the epoch; the moment of prices that carry none.

        Raises:
            PriceUnreadable: it is not what was asked for.
        """


def decoded(body: bytes, what: str) -> object:
    """JSON of an answer.

    Raises:
        PriceUnreadable: it is none.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise PriceUnreadable(f"{what} is no JSON: {error}") from error


def listed(raw: object, key: str, what: str) -> Sequence[Mapping[str, object]]:
    """A list of objects under a key.

    Raises:
        PriceUnreadable: there is none.
    """
    rows = raw.get(key) if isinstance(raw, Mapping) else None
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise PriceUnreadable(f"{what} has no list {key}")
    return rows


def checked(quote: Quote, now_s: float) -> Quote:
    """A quote that may be believed; a moment just ahead of our clock is now.

    Raises:
        PriceUnreadable: its price is none, or its moment lies outside what has happened.
    """
    if not (math.isfinite(quote.price_per_hour) and 0 < quote.price_per_hour <= MOST_PER_HOUR):
        raise PriceUnreadable(
            f"{quote.price_per_hour:g} is no price of an hour: above 0, at most {MOST_PER_HOUR:g}"
        )
    if not 0 <= quote.at_s <= now_s + PRICE_AHEAD_MOST_S:
        raise PriceUnreadable("the price is dated before 1970 or in the future")
    return replace(quote, at_s=min(quote.at_s, now_s))


def price(value: object, what: str) -> float:
    """Dollars from a number or its text.

    Raises:
        PriceUnreadable: it is none, or not above 0.
    """
    try:
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number) or number <= 0:
        raise PriceUnreadable(f"{what} is no price above 0: {shortened(str(value))!r}")
    return number


def moment(value: object, what: str) -> float:
    """Seconds since the epoch of an ISO 8601 text; without a zone it is UTC.

    Raises:
        PriceUnreadable: it is none.
    """
    try:
        parsed = datetime.fromisoformat(str(value))
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise PriceUnreadable(f"{what} is no time: {shortened(str(value))!r}") from error
