# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Every price source, by its word in ``CapacityPool.spec.priceSource.type``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final

from ullage.api.readers import WireError, quoted
from ullage.cluster.codecs.objects import within
from ullage.cluster.records.pool import PoolRecord
from ullage.ports import JsonObject
from ullage.prices import aws, azure, gcp, http, static
from ullage.prices.source import PriceUnreadable, QuoteSource, Where

SOURCES: Final[Mapping[str, Callable[[JsonObject, PoolRecord, Where], QuoteSource]]] = (
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
"""From what a pool says to the source, to its source. ``WireError``: it says it wrong;
``PriceUnreadable``: it cannot be asked for this pool, or here."""


def check(pool: PoolRecord) -> None:
    """Check that the source that a pool names understands what the pool says to it.

    Raises:
        WireError: it does not, or there is no such source.
    """
    with suppress(PriceUnreadable):  # the condition PriceFresh says what stands in the way
        _read(pool, Where(namespace="", file_root=""))


def source_of(pool: PoolRecord, where: Where) -> QuoteSource:
    """The source of a pool's price.

    Raises:
        PriceUnreadable: the spec names no source that can be asked.
    """
    try:
        return _read(pool, where)
    except WireError as error:
        raise PriceUnreadable(str(error)) from error


def _read(pool: PoolRecord, where: Where) -> QuoteSource:
    spec = pool.price_source
    if spec is None:
        raise PriceUnreadable("spec.priceSource is missing")
    if spec.type not in SOURCES:
        known = ", ".join(SOURCES)
        raise WireError(f"spec.priceSource.type: {quoted(spec.type)} is none of {known}")
    with within(f"spec.priceSource[{spec.type}]"):
        return SOURCES[spec.type](spec.options, pool, where)
