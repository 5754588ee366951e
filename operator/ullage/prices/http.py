# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Prices from a user's HTTP service: Prometheus text, or a number in a JSON document."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from ullage.api.pricesource import HTTPPrice
from ullage.cluster.records.pool import PoolRecord
from ullage.engines.capacity.price import Quote
from ullage.prices.source import PriceFetch, PriceUnreadable, QuoteSource, Where, decoded, price
from ullage.process.faults import fault_text

MOST_ROWS: Final = 10_000
"""Maximum samples of one metric."""
MOST_LINE: Final = 8_192
"""Maximum bytes of a sample's line; longer ones are ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusPrice:
    """A sample of an exposition.

    Attributes:
        url: Where it is.
        metric: Name of the sample.
        labels: Labels that must match exactly one sample, which may have others.
    """

    url: str
    metric: str
    labels: Mapping[str, str]

    def fetch(self) -> PriceFetch | None:
        """The exposition."""
        return PriceFetch(url=self.url)

    def read(self, body: bytes, now_s: float) -> Quote:
        """The sample's value, at its own time if it has one.

        Raises:
            PriceUnreadable: no exposition, or not exactly one such sample.
        """
        samples = [
            sample
            for sample in self._samples(body)
            if sample.name == self.metric and self.labels.items() <= sample.labels.items()
        ]
        if len(samples) != 1:
            raise PriceUnreadable(
                f"{self.url} has {len(samples)} samples {self.metric} with {dict(self.labels)}, "
                "exactly one is needed: name more labels"
            )
        stamp = samples[0].timestamp
        return Quote(
            price_per_hour=price(samples[0].value, f"{self.url} {self.metric}"),
            at_s=now_s if stamp is None else _seconds(stamp),
        )

    def _samples(self, body: bytes) -> Iterator[Sample]:
        """The samples of the metric; other lines are ignored.

        Raises:
            PriceUnreadable: no exposition, or too many samples.
        """
        name = re.escape(self.metric.encode())
        rows = re.finditer(rb"^[ \t]*%s[ \t{].{0,%d}$" % (name, MOST_LINE), body, re.MULTILINE)
        lines = [row.group() for row in islice(rows, MOST_ROWS + 1)]
        if len(lines) > MOST_ROWS:
            raise PriceUnreadable(f"{self.url} has more than {MOST_ROWS} samples {self.metric}")
        try:
            for family in text_string_to_metric_families((b"\n".join(lines) + b"\n").decode()):
                yield from family.samples
        except Exception as error:  # the boundary of one answer: the parser trusts its text
            raise PriceUnreadable(
                f"{self.url} is no Prometheus text: {fault_text(error)}"
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonPrice:
    """A value of a document.

    Attributes:
        url: Where it is.
        pointer: Of the value (RFC 6901), such as ``/pools/a/price``.
    """

    url: str
    pointer: str

    def fetch(self) -> PriceFetch | None:
        """The document."""
        return PriceFetch(url=self.url)

    def read(self, body: bytes, now_s: float) -> Quote:
        """The value.

        Raises:
            PriceUnreadable: no JSON, nothing at the pointer, or no price there.
        """
        value = decoded(body, self.url)
        for part in self.pointer.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            value = _under(value, key)
            if value is None:
                raise PriceUnreadable(f"{self.url} has nothing at {self.pointer}")
        return Quote(price_per_hour=price(value, f"{self.url}{self.pointer}"), at_s=now_s)


def _seconds(stamp: object) -> float:
    """Seconds since the epoch of a sample's time."""
    try:
        return float(stamp) if isinstance(stamp, int | float) else float(str(stamp))
    except (ValueError, OverflowError) as error:
        raise PriceUnreadable("the time of the sample is none") from error


def _under(value: object, key: str) -> object:
    if isinstance(value, Mapping):
        return value.get(key)
    if isinstance(value, list) and key.isdecimal() and int(key) < len(value):
        return value[int(key)]
    return None


def answered(details: HTTPPrice, pool: PoolRecord, where: Where) -> QuoteSource:
    """``type: HTTP``: exactly one of metric and pointer is stated."""
    if details.metric is not None:
        return PrometheusPrice(url=details.url, metric=details.metric, labels=details.labels or {})
    return JsonPrice(url=details.url, pointer=details.pointer or "")
