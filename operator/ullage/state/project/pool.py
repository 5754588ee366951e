# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""CapacityPools as the API shows them."""

from __future__ import annotations

from typing import Final

from ullage.api.contract import JsonObject, WireError, objects, section, text, whole
from ullage.engines.capacity.hazard import AdvisorBand
from ullage.state.pools.records import (
    AWSFrom,
    AzureFrom,
    CapacityType,
    ConfigMapFrom,
    FileFrom,
    GCPFrom,
    HTTPFrom,
    PoolRecord,
    PriceFrom,
    StaticFrom,
)
from ullage.state.pools.wire import pool_status_from_wire
from ullage.state.profile.numbers import decimal
from ullage.state.project.objects import (
    optional_text,
    optional_whole,
    read_meta,
    string_map,
    within,
)

BANDS: Final = {
    "Under5": AdvisorBand.UNDER_5,
    "From5To10": AdvisorBand.FROM_5_TO_10,
    "From10To15": AdvisorBand.FROM_10_TO_15,
    "From15To20": AdvisorBand.FROM_15_TO_20,
    "Over20": AdvisorBand.OVER_20,
}
"""Words of ``spec.prior.advisorBand``."""


def project_pool(raw: JsonObject) -> PoolRecord:
    """Read a CapacityPool.

    Raises:
        WireError: a field that is needed is missing or malformed.
    """
    meta = read_meta(raw)
    with within("status"):
        status = pool_status_from_wire(section(raw, "status"))
    with within("spec"):
        spec = section(raw, "spec")
        prior = section(spec, "prior")
        band = optional_text(prior, "advisorBand")
        if band and band not in BANDS:
            raise WireError(f"prior.advisorBand: {band!r} is none of {', '.join(BANDS)}")
        with within("priceSource"):
            source = _source(section(spec, "priceSource"), meta.name)
        return PoolRecord(
            name=meta.name,
            uid=meta.uid,
            generation=meta.generation,
            instance_type=text(spec, "type"),
            zone=text(spec, "zone"),
            capacity_type=_capacity_type(spec),
            accelerator=text(spec, "accelerator"),
            gpus_per_instance=optional_whole(spec, "gpusPerInstance", 1),
            node_selector=string_map(spec, "nodeSelector"),
            most=_whole(spec, "max"),
            notice_s=_seconds(spec, "noticeSeconds"),
            price_source=source,
            advisor_band=BANDS.get(band),
            placement_score=_whole(prior, "placementScore"),
            status=status,
        )


def _whole(raw: JsonObject, field: str) -> int | None:
    return None if raw.get(field) is None else whole(raw, field)


def _seconds(raw: JsonObject, field: str) -> float | None:
    found = _whole(raw, field)
    return None if found is None else float(found)


def _capacity_type(spec: JsonObject) -> CapacityType:
    try:
        return CapacityType(text(spec, "capacityType"))
    except ValueError as error:
        raise WireError(f"capacityType: {error}") from error


def _source(raw: JsonObject, pool: str) -> PriceFrom:
    """The source that ``type`` names; rows are called like the pool unless they say otherwise."""
    match text(raw, "type"):
        case "Static":
            price = decimal(section(raw, "static"), "pricePerHour")
            if price is None:
                raise WireError("static.pricePerHour: missing")
            return StaticFrom(price_per_hour=price)
        case "ConfigMap":
            one = section(raw, "configMap")
            return ConfigMapFrom(
                name=text(one, "name"),
                key=optional_text(one, "key") or "prices.json",
                row=optional_text(one, "row") or pool,
            )
        case "File":
            one = section(raw, "file")
            return FileFrom(path=text(one, "path"), row=optional_text(one, "row") or pool)
        case "HTTP":
            return _http(section(raw, "http"))
        case "AWS":
            product = optional_text(section(raw, "aws"), "product")
            return AWSFrom(product=product) if product else AWSFrom()
        case "GCP":
            parts = objects(section(raw, "gcp"), "parts")
            return GCPFrom(
                parts=tuple(sorted((text(one, "sku"), float(whole(one, "count"))) for one in parts))
            )
        case "Azure":
            return AzureFrom(region=text(section(raw, "azure"), "region"))
        case other:
            raise WireError(f"type: {other!r} is no price source this version knows")


def _http(raw: JsonObject) -> HTTPFrom:
    return HTTPFrom(
        url=text(raw, "url"),
        metric=optional_text(raw, "metric"),
        labels=string_map(raw, "labels"),
        pointer=optional_text(raw, "pointer"),
    )
