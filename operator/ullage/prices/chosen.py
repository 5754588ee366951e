# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Every price source, by its word in ``CapacityPool.spec.priceSource.type``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from ullage.api.contract import WireError
from ullage.cluster.codecs.objects import within
from ullage.cluster.records.pool import PoolRecord
from ullage.ports import JsonObject
from ullage.prices import aws, azure, gcp, http, static
from ullage.prices.source import PriceSource, PriceUnreadable, Where

SOURCES: Final[Mapping[str, Callable[[JsonObject, PoolRecord, Where], PriceSource]]] = (
    MappingProxyType(
        {
            "Static": static.stated,
            "ConfigMap": static.in_config_map,
            "File": static.in_file,
            "HTTP": http.answered,
            "AWS": aws.spot_price,
            "GCP": gcp.sum_of_skus,
            "Azure": azure.retail_price,
        }
    )
)
"""From what the pool says to the source, to the source of this pool. Each raises ``WireError`` or
``PriceUnreadable`` for what cannot be asked."""


def source_of(pool: PoolRecord, where: Where) -> PriceSource:
    """The source of a pool's price.

    Raises:
        PriceUnreadable: the spec names no source that can be asked.
    """
    spec = pool.price_source
    if spec is None:
        raise PriceUnreadable("spec.priceSource is missing")
    if spec.type not in SOURCES:
        raise PriceUnreadable(
            f"spec.priceSource.type {spec.type!r} is none of {', '.join(SOURCES)}"
        )
    try:
        with within(f"spec.priceSource of type {spec.type}"):
            return SOURCES[spec.type](spec.options, pool, where)
    except WireError as error:
        raise PriceUnreadable(str(error)) from error
