# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The interface of price sources: a request, and the parser of its answer.

A source is a value without I/O, so that every answer can be replayed. An answer that does not
exactly match the query is an error that names what to check, never a price of something else.
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
"""Minimum price in dollars; every instance costs more than a hundred times as much."""


class PriceUnreadable(ValueError):
    """An answer without the requested price; the text has the problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paging:
    """Reading of a paged answer: only the wanted rows are kept.

    Attributes:
        rows: Name of the list of rows in a page, and in the combined answer.
        key: Field that names a row.
        keep: Names of the wanted rows; once all are found no further page is requested. Not part of
            the query's identity, so that several sources share one traversal.
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
        url: URL of a GET; a path for files; ``configmap:namespace/name/key``.
        signed_for: Service and region of the signature; ``None`` = unsigned.
        bearer: The request needs a bearer token of the cloud.
        paging: The answer comes in pages; ``None`` = in one piece.
        every_s: Minimum time between queries, seconds; 0 = as for the others.
    """

    url: str
    signed_for: tuple[str, str] | None = None
    bearer: bool = False
    paging: Paging | None = None
    every_s: float = 0.0

    def joined(self, other: PriceFetch) -> PriceFetch:
        """The same query for the rows of both."""
        if self.paging is None or other.paging is None:
            return self
        keep = self.paging.keep | other.paging.keep
        return replace(self, paging=replace(self.paging, keep=keep))


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Allowed locations of sources.

    Attributes:
        namespace: Namespace of the operator: ConfigMaps of no other are read.
        file_root: Folder below which files of prices lie; nothing above it is read.
    """

    namespace: str
    file_root: str


class QuoteSource(Protocol):
    """One pool's price."""

    def fetch(self) -> PriceFetch | None:
        """The request; ``None`` = none, an empty body suffices."""

    def read(self, body: bytes, now_s: float) -> Quote:
        """Parse the answer.

        Args:
            body: The answer.
            now_s: Seconds since the epoch; the time of prices without one.

        Raises:
            PriceUnreadable: it does not match the query.
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
    """A plausible quote; a time slightly ahead of our clock is now.

    Raises:
        PriceUnreadable: its price is invalid, or its time is not in the past.
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
