# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Every price source, by its word in ``CapacityPool.spec.priceSource.type``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from ullage.api.words import PriceSourceType
from ullage.cluster.records.pool import PoolRecord
from ullage.prices import aws, azure, gcp, http, static
from ullage.prices.source import PriceUnreadable, QuoteSource, Where

SOURCES: Final[Mapping[PriceSourceType, Callable[[Any, PoolRecord, Where], QuoteSource]]] = (
    MappingProxyType(
        {
            PriceSourceType.STATIC: static.stated,
            PriceSourceType.CONFIG_MAP: static.in_config_map,
            PriceSourceType.FILE: static.in_file,
            PriceSourceType.HTTP: http.answered,
            PriceSourceType.AWS: aws.spot_price,
            PriceSourceType.GCP: gcp.sum_of_skus,
            PriceSourceType.AZURE: azure.retail_price,
        }
    )
)
"""Function from the object of a type to its source; ``PriceUnreadable``: it cannot be queried for
this pool, or in this process."""


def source_of(pool: PoolRecord, where: Where) -> QuoteSource:
    """The source of a pool's price.

    Raises:
        PriceUnreadable: the spec names no usable source.
    """
    source = pool.price_source
    if source is None:
        raise PriceUnreadable("spec.priceSource is missing")
    return SOURCES[source.type](source.details, pool, where)
