# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Prices written by users: in the pool itself, in a file, in a ConfigMap.

A table maps pools to a number, or to an object with ``pricePerHour`` and ``at``. It must never use
the price of another pool if the requested one is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from ullage.api.pricesource import ConfigMapPrice, FilePrice, StaticPrice
from ullage.cluster.records.pool import PoolRecord
from ullage.engines.capacity.price import Quote
from ullage.prices.source import (
    PriceFetch,
    PriceUnreadable,
    QuoteSource,
    Where,
    decoded,
    moment,
    price,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedPrice:
    """A price that never changes.

    Attributes:
        price_per_hour: Dollars.
    """

    price_per_hour: float

    def fetch(self) -> PriceFetch | None:
        """No request."""
        return None

    def read(self, body: bytes, now_s: float) -> Quote:
        """The price, always fresh.

        Raises:
            PriceUnreadable: it is not above 0.
        """
        return Quote(price_per_hour=price(self.price_per_hour, "the static price"), at_s=now_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePrice:
    """A row of a table.

    Attributes:
        where: A path, or ``configmap:namespace/name/key``.
        row: Name of the row, usually the pool's.
    """

    where: str
    row: str

    def fetch(self) -> PriceFetch | None:
        """The table."""
        return PriceFetch(url=self.where)

    def read(self, body: bytes, now_s: float) -> Quote:
        """The row's price.

        Raises:
            PriceUnreadable: no table, no such row, or no price in it.
        """
        table = decoded(body, self.where)
        if not isinstance(table, Mapping) or self.row not in table:
            raise PriceUnreadable(f"{self.where} has no row {self.row}: add it")
        row, name = table[self.row], f"{self.where} {self.row}"
        if not isinstance(row, Mapping):
            return Quote(price_per_hour=price(row, name), at_s=now_s)
        at = row.get("at")
        return Quote(
            price_per_hour=price(row.get("pricePerHour"), f"{name} pricePerHour"),
            at_s=now_s if at is None else moment(at, f"{name} at"),
        )


def stated(details: StaticPrice, pool: PoolRecord, where: Where) -> QuoteSource:
    """``type: Static``."""
    return StatedPrice(price_per_hour=details.price_per_hour)


def in_config_map(details: ConfigMapPrice, pool: PoolRecord, where: Where) -> QuoteSource:
    """``type: ConfigMap``; the row has the pool's name by default."""
    table = f"configmap:{where.namespace}/{details.name}/{details.key}"
    return TablePrice(where=table, row=details.row or pool.name)


def in_file(details: FilePrice, pool: PoolRecord, where: Where) -> QuoteSource:
    """``type: File``; the row has the pool's name by default.

    Raises:
        PriceUnreadable: there is no folder of prices.
    """
    if not where.file_root:
        raise PriceUnreadable("ULLAGE_PRICE_FILE_ROOT names no folder of prices")
    path = PurePosixPath(where.file_root) / details.path
    return TablePrice(where=str(path), row=details.row or pool.name)
