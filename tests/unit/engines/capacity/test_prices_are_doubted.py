# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Prices: a feed that flips to another tenancy is not believed, real cuts are."""

from __future__ import annotations

import math

from ullage.engines.capacity.price import Doubt, PriceRecord, Quote

WEEK = 7 * 86400.0


def fed(*prices: float) -> PriceRecord:
    record = PriceRecord()
    for week, price in enumerate(prices):
        record = record.quoted(Quote(price_per_hour=price, at_s=week * WEEK))
    return record


def test_a_feed_that_flips_keeps_the_true_low_price() -> None:
    # as a public feed did for one type during 2023
    record = fed(3.06, 36.078)
    assert record.quote is not None
    assert record.quote.price_per_hour == 3.06
    assert record.why_not_fresh(WEEK) is Doubt.OUTLIER
    back = record.quoted(Quote(price_per_hour=3.06, at_s=2 * WEEK))
    assert back.why_not_fresh(2 * WEEK) is None


def test_an_outlier_is_not_believed_for_lasting() -> None:
    record = fed(3.06, 36.078, 36.078, 36.078, 36.078)
    assert record.quote is not None
    assert record.quote.price_per_hour == 3.06


def test_a_record_that_began_with_an_outlier_finds_the_low_price() -> None:
    record = fed(36.078, 3.06, 36.078)
    assert record.quote is not None
    assert record.quote.price_per_hour == 3.06


def test_real_cuts_and_rises_are_believed() -> None:
    record = fed(98.32, 55.04, 60.0)
    assert record.quote is not None
    assert record.quote.price_per_hour == 60.0
    assert record.why_not_fresh(2 * WEEK) is None


def test_older_quotes_change_nothing() -> None:
    record = fed(1.0, 1.1)
    assert record.quoted(Quote(price_per_hour=0.9, at_s=0.0)) == record


def test_what_is_no_price_is_not_believed() -> None:
    for wrong in (0.0, -1.0, math.nan, math.inf):
        record = fed(1.0).quoted(Quote(price_per_hour=wrong, at_s=WEEK))
        assert record.why_not_fresh(WEEK) is Doubt.UNREADABLE
        assert record.quote is not None


def test_a_price_without_news_goes_stale() -> None:
    record = fed(1.0)
    assert record.why_not_fresh(6 * 3600.0) is None
    assert record.why_not_fresh(6 * 3600.0 + 1) is Doubt.STALE
    assert PriceRecord().why_not_fresh(0.0) is Doubt.NEVER
