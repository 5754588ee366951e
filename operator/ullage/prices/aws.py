# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""AWS: spot price history, placement scores, and the bands of the Spot Advisor.

Reads the answers of the EC2 query API (XML) and those of the command line and SDKs (JSON). A score
is a hint on launches, a band a weak prior; neither is a hazard.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode
from xml.etree import ElementTree

from ullage.api.pricesource import AWSPrice
from ullage.cluster.records.pool import CapacityType, PoolRecord
from ullage.engines.capacity.price import Quote
from ullage.prices.source import (
    PriceFetch,
    PriceUnreadable,
    QuoteSource,
    Where,
    decoded,
    listed,
    moment,
    price,
)

API_VERSION: Final = "2016-11-15"
_FIELDS: Final = {
    "availabilityZone": "AvailabilityZone",
    "instanceType": "InstanceType",
    "productDescription": "ProductDescription",
    "spotPrice": "SpotPrice",
    "timestamp": "Timestamp",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsSpotPrice:
    """The spot price of a type in a zone.

    Attributes:
        instance_type: Such as p3.2xlarge.
        zone: Such as us-east-1a.
        product: Operating system, as described by AWS.
    """

    instance_type: str
    zone: str
    product: str

    @property
    def region(self) -> str:
        """The zone's region."""
        return self.zone[:-1]

    def fetch(self) -> PriceFetch | None:
        """Query for the newest entries of the history; it has to be signed."""
        query = urlencode(
            {
                "Action": "DescribeSpotPriceHistory",
                "AvailabilityZone": self.zone,
                "InstanceType.1": self.instance_type,
                "ProductDescription.1": self.product,
                "MaxResults": "5",
                "Version": API_VERSION,
            }
        )
        return PriceFetch(
            url=f"https://ec2.{self.region}.amazonaws.com/?{query}",
            signed_for=("ec2", self.region),
        )

    def read(self, body: bytes, now_s: float) -> Quote:
        """The newest entry of this type, zone and product that is not in the future.

        Raises:
            PriceUnreadable: no history, or no entry of it.
        """
        asked = (self.instance_type, self.zone, self.product)
        quotes = [
            Quote(
                price_per_hour=price(entry.get("SpotPrice"), "SpotPrice"),
                at_s=moment(entry.get("Timestamp"), "Timestamp"),
            )
            for entry in _history(body)
            if (
                entry.get("InstanceType"),
                entry.get("AvailabilityZone"),
                entry.get("ProductDescription"),
            )
            == asked
        ]
        past = [quote for quote in quotes if quote.at_s <= now_s]
        if not past:
            raise PriceUnreadable(f"the spot price history has no entry of {' '.join(asked)}")
        newest = max(past, key=lambda quote: quote.at_s)
        # AWS writes an entry when the price changes: it is valid until the next one
        return Quote(price_per_hour=newest.price_per_hour, at_s=now_s)


def _history(body: bytes) -> Iterator[Mapping[str, object]]:
    if body.lstrip()[:1] != b"<":
        yield from listed(decoded(body, "the history"), "SpotPriceHistory", "the history")
        return
    # entities could grow without bound; AWS sends none
    if b"<!" in body or b"\0" in body:
        raise PriceUnreadable("the history has a document type, which AWS never sends")
    try:
        root = ElementTree.fromstring(body)
    except ElementTree.ParseError as error:
        raise PriceUnreadable(f"the history is no XML: {error}") from error
    items = root.find("{*}spotPriceHistorySet")
    if items is None:
        text = " ".join(part.strip() for part in root.itertext() if part.strip())
        raise PriceUnreadable(f"AWS answered no history: {text[:300]}")
    for item in items.findall("{*}item"):
        yield {name: item.findtext(f"{{*}}{tag}") for tag, name in _FIELDS.items()}


def spot_price(details: AWSPrice, pool: PoolRecord, where: Where) -> QuoteSource:
    """``type: AWS``.

    Raises:
        PriceUnreadable: the pool is not of spot instances.
    """
    if pool.capacity_type is not CapacityType.SPOT:
        raise PriceUnreadable(
            "type AWS reads the history of spot prices: give the pool of capacityType "
            f"{pool.capacity_type} another priceSource, such as Static"
        )
    return AwsSpotPrice(
        instance_type=pool.instance_type,
        zone=pool.zone,
        product=details.product,
    )
