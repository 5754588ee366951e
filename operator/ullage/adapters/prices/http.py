# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Prices from any service of the user's: Prometheus text, or a number in a JSON document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from ullage.adapters.prices.source import Fetch, PriceUnreadable, decoded, price
from ullage.engines.capacity.price import Quote


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusPrice:
    """A sample of an exposition.

    Attributes:
        url: Where it is.
        metric: Name of the sample.
        labels: Labels that it has, among others; exactly one sample has to.
    """

    url: str
    metric: str
    labels: Mapping[str, str]

    def fetch(self) -> Fetch | None:
        """The exposition."""
        return Fetch(url=self.url)

    def read(self, body: bytes, now_s: float) -> Quote:
        """The sample's value, at its own time if it has one.

        Raises:
            PriceUnreadable: no exposition, or not exactly one such sample.
        """
        try:
            families = list(text_string_to_metric_families(body.decode()))
        except ValueError as error:
            raise PriceUnreadable(f"{self.url} is no Prometheus text: {error}") from error
        found = [
            sample
            for family in families
            for sample in family.samples
            if sample.name == self.metric and self.labels.items() <= sample.labels.items()
        ]
        if len(found) != 1:
            raise PriceUnreadable(
                f"{self.url} has {len(found)} samples {self.metric} with {dict(self.labels)}, "
                "exactly one is needed: name more labels"
            )
        stamp = found[0].timestamp
        return Quote(
            price_per_hour=price(found[0].value, f"{self.url} {self.metric}"),
            at_s=now_s if stamp is None else float(stamp),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonPrice:
    """A value of a document.

    Attributes:
        url: Where it is.
        pointer: Of the value (RFC 6901), such as ``/pools/a/price``.
    """

    url: str
    pointer: str

    def fetch(self) -> Fetch | None:
        """The document."""
        return Fetch(url=self.url)

    def read(self, body: bytes, now_s: float) -> Quote:
        """The value.

        Raises:
            PriceUnreadable: no JSON, nothing at the pointer, or no price there.
        """
        found = decoded(body, self.url)
        for part in self.pointer.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            found = _under(found, key)
            if found is None:
                raise PriceUnreadable(f"{self.url} has nothing at {self.pointer}")
        return Quote(price_per_hour=price(found, f"{self.url}{self.pointer}"), at_s=now_s)


def _under(found: object, key: str) -> object:
    if isinstance(found, Mapping):
        return found.get(key)
    if isinstance(found, list) and key.isdecimal() and int(key) < len(found):
        return found[int(key)]
    return None
