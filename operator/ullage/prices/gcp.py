# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Google Cloud: a machine's price is the sum of its SKUs in the public billing catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ullage.api.pricesource import GCPPrice
from ullage.cluster.records.pool import PoolRecord
from ullage.engines.capacity.price import Quote
from ullage.prices.source import (
    Paging,
    PriceFetch,
    PriceUnreadable,
    QuoteSource,
    Where,
    decoded,
    listed,
    moment,
    price,
)
from ullage.prices.times import GCP_CATALOGUE_S
from ullage.process.faults import shortened

COMPUTE: Final = "6F81-5844-456A"
"""Compute Engine in the catalogue."""
NANO: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class GcpSkuPrice:
    """A machine as quantities of SKUs.

    Attributes:
        parts: (SKU id, how many per machine): cores, GiB of memory, GPUs.
    """

    parts: tuple[tuple[str, float], ...]

    def fetch(self) -> PriceFetch | None:
        """The rows of these SKUs in the catalogue of Compute Engine, which takes several pages."""
        return PriceFetch(
            url=f"https://cloudbilling.googleapis.com/v1/services/{COMPUTE}/skus?pageSize=5000",
            bearer=True,
            paging=Paging(rows="skus", key="skuId", keep=frozenset(sku for sku, _ in self.parts)),
            every_s=GCP_CATALOGUE_S,
        )

    def read(self, body: bytes, now_s: float) -> Quote:
        """The sum of all parts, each of which must be in the answer.

        Raises:
            PriceUnreadable: a part is missing, or not priced by the hour in dollars.
        """
        catalogue = decoded(body, "the catalogue")
        rows = {sku.get("skuId"): sku for sku in listed(catalogue, "skus", "the catalogue")}
        missing = [sku for sku, _ in self.parts if sku not in rows]
        if missing or not self.parts:
            raise PriceUnreadable(f"the catalogue has no SKU {', '.join(missing)}")
        try:
            total = sum(_hourly(rows[sku], sku) * count for sku, count in self.parts)
        except OverflowError as error:
            raise PriceUnreadable("the sum of the SKUs is no number") from error
        dates = [moment(_newest(rows[sku], sku).get("effectiveTime"), sku) for sku, _ in self.parts]
        if max(dates) > now_s:
            raise PriceUnreadable("a price of the catalogue is of the future")
        # the catalogue has the valid prices, however old they are
        return Quote(price_per_hour=price(total, "the sum of the SKUs"), at_s=now_s)


def _newest(row: Mapping[str, object], sku: str) -> Mapping[str, object]:
    return listed(row, "pricingInfo", f"SKU {sku}")[-1]


def _hourly(row: Mapping[str, object], sku: str) -> float:
    """Dollars per hour of one unit: the last tier's, which has no free quantity."""
    expression = _newest(row, sku).get("pricingExpression")
    if not isinstance(expression, Mapping):
        raise PriceUnreadable(f"SKU {sku} has no pricingExpression")
    if expression.get("usageUnit") not in ("h", "GiBy.h"):
        raise PriceUnreadable(f"SKU {sku} is priced per {expression.get('usageUnit')!r}, not hour")
    unit = listed(expression, "tieredRates", f"SKU {sku}")[-1].get("unitPrice")
    if not isinstance(unit, Mapping) or unit.get("currencyCode") != "USD":
        raise PriceUnreadable(f"SKU {sku} is not priced in USD")
    units, nanos = unit.get("units", 0), unit.get("nanos", 0)
    if not isinstance(units, int | str) or not isinstance(nanos, int | float):
        raise PriceUnreadable(f"SKU {sku} has no unit price")
    try:
        return int(units) + nanos * NANO
    except (ValueError, OverflowError) as error:
        raise PriceUnreadable(f"SKU {sku} has no unit price: {shortened(str(units))}") from error


def sum_of_skus(details: GCPPrice, pool: PoolRecord, where: Where) -> QuoteSource:
    """``type: GCP``."""
    return GcpSkuPrice(parts=tuple(sorted((part.sku, float(part.count)) for part in details.parts)))
