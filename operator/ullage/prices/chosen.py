# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Chooses the price source that a pool's spec names."""

from __future__ import annotations

from pathlib import PurePosixPath

from ullage.cluster.records.pool import (
    AWSFrom,
    AzureFrom,
    CapacityType,
    ConfigMapFrom,
    FileFrom,
    GCPFrom,
    HTTPFrom,
    PoolRecord,
    StaticFrom,
)
from ullage.prices.aws import AwsSpotPrice
from ullage.prices.azure import AzureRetailPrice
from ullage.prices.gcp import GcpSkuPrice
from ullage.prices.http import JsonPrice, PrometheusPrice
from ullage.prices.source import PriceSource, PriceUnreadable
from ullage.prices.static import StaticPrice, TablePrice


def source_of(pool: PoolRecord, *, namespace: str, file_root: str) -> PriceSource:
    """The source of a pool's price.

    Args:
        pool: The pool.
        namespace: The operator's own; ConfigMaps of no other are read.
        file_root: Folder below which files of prices lie; nothing above it is read.

    Raises:
        PriceUnreadable: the spec names no source that can be asked.
    """
    match pool.price_source:
        case StaticFrom(price_per_hour=price):
            return StaticPrice(price_per_hour=price)
        case ConfigMapFrom(name=name, key=key, row=row):
            return TablePrice(where=f"configmap:{namespace}/{name}/{key}", row=row)
        case FileFrom(path=path, row=row):
            return TablePrice(where=_below(file_root, path), row=row)
        case HTTPFrom(url=url, metric=metric, labels=labels, pointer=pointer):
            if metric:
                return PrometheusPrice(url=url, metric=metric, labels=labels)
            return JsonPrice(url=url, pointer=pointer)
        case AWSFrom(product=product):
            if pool.capacity_type is not CapacityType.SPOT:
                raise PriceUnreadable(
                    "type AWS reads the history of spot prices: give the pool of capacityType "
                    f"{pool.capacity_type} another priceSource, such as Static"
                )
            return AwsSpotPrice(instance_type=pool.instance_type, zone=pool.zone, product=product)
        case GCPFrom(parts=parts):
            return GcpSkuPrice(parts=parts)
        case AzureFrom(region=region):
            spot = pool.capacity_type is CapacityType.SPOT
            return AzureRetailPrice(sku=pool.instance_type, region=region, spot=spot)
        case None:
            raise PriceUnreadable("spec.priceSource is missing")


def _below(root: str, path: str) -> str:
    """The file's full path.

    Raises:
        PriceUnreadable: it would lead out of the folder.
    """
    asked = PurePosixPath(path)
    if not root or asked.is_absolute() or ".." in asked.parts:
        raise PriceUnreadable(f"file.path {path!r} must lie below the folder of prices")
    return str(PurePosixPath(root) / asked)
