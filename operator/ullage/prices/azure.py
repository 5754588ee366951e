# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Azure: the public retail prices, spot or not, of a size in a region."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from ullage.api.pricesource import AzurePrice
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

URL: Final = "https://prices.azure.com/api/retail/prices"


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureRetailPrice:
    """The price of a size.

    Attributes:
        sku: Such as Standard_NC6s_v3.
        region: Such as eastus.
        spot: Its spot price; else pay as you go.
    """

    sku: str
    region: str
    spot: bool = True

    def fetch(self) -> PriceFetch | None:
        """Query for the size's prices; no credentials are needed."""
        wanted = (
            f"serviceName eq 'Virtual Machines' and armRegionName eq '{self.region}'"
            f" and armSkuName eq '{self.sku}' and priceType eq 'Consumption'"
        )
        return PriceFetch(url=f"{URL}?$filter={quote(wanted)}")

    def read(self, body: bytes, now_s: float) -> Quote:
        """The newest valid Linux price.

        Raises:
            PriceUnreadable: there is none.
        """
        rows = listed(decoded(body, "the retail prices"), "Items", "the retail prices")
        prices = [
            (moment(row.get("effectiveStartDate"), "effectiveStartDate"), row.get("retailPrice"))
            for row in rows
            if self._asked(row)
        ]
        valid = [(at, value) for at, value in prices if at <= now_s]
        if not valid:
            kind = "spot" if self.spot else "pay-as-you-go"
            raise PriceUnreadable(f"no {kind} price of {self.sku} in {self.region} is listed")
        _, value = max(valid, key=lambda item: item[0])
        return Quote(price_per_hour=price(value, f"{self.sku} retailPrice"), at_s=now_s)

    def _asked(self, row: Mapping[str, object]) -> bool:
        name = str(row.get("skuName"))
        return (
            row.get("armSkuName") == self.sku
            and row.get("armRegionName") == self.region
            and row.get("type") == "Consumption"
            and row.get("unitOfMeasure") == "1 Hour"
            and row.get("currencyCode") == "USD"
            and not str(row.get("productName")).endswith("Windows")
            and "Low Priority" not in name
            and name.endswith(" Spot") is self.spot
        )


def retail_price(details: AzurePrice, pool: PoolRecord, where: Where) -> QuoteSource:
    """``type: Azure``."""
    return AzureRetailPrice(
        sku=pool.instance_type,
        region=details.region,
        spot=pool.capacity_type is CapacityType.SPOT,
    )
