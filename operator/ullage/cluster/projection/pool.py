# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""CapacityPools as the API shows them."""

from __future__ import annotations

import re
from typing import Final

from ullage.api.contract import JsonObject, WireError, bounded, objects, section, text
from ullage.api.readers import quoted
from ullage.cluster.codecs.objects import (
    is_accelerator,
    optional_text,
    read_meta,
    string_map,
    within,
)
from ullage.cluster.codecs.pool import pool_status_from_wire
from ullage.cluster.records.pool import (
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
from ullage.cluster.values.numbers import decimal
from ullage.engines.capacity.hazard import AdvisorBand

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
            accelerator=_accelerator(spec),
            gpus_per_instance=bounded(spec, "gpusPerInstance", 1, 64, 1),
            node_selector=_selector(spec),
            most=_within(spec, "max", 0, 100_000),
            notice_s=_within(spec, "noticeSeconds", 0, 86_400),
            price_source=source,
            advisor_band=BANDS.get(band),
            placement_score=_within(prior, "placementScore", 1, 10),
            status=status,
        )


def _within(raw: JsonObject, field: str, least: int, most: int) -> int | None:
    return None if raw.get(field) is None else bounded(raw, field, least, most)


def _accelerator(spec: JsonObject) -> str:
    key = text(spec, "accelerator")
    if not is_accelerator(key):
        raise WireError(f"accelerator: {quoted(key)} is no key of an accelerator")
    return key


def _selector(spec: JsonObject) -> dict[str, str]:
    selector = string_map(spec, "nodeSelector")
    if not selector:
        raise WireError("nodeSelector: must name at least one label of the pool's nodes")
    return selector


def _capacity_type(spec: JsonObject) -> CapacityType:
    try:
        return CapacityType(text(spec, "capacityType"))
    except ValueError as error:
        raise WireError(f"capacityType: {error}") from error


def _source(raw: JsonObject, pool: str) -> PriceFrom:
    """The source that ``type`` names; rows are called like the pool unless they say otherwise."""
    word = text(raw, "type")
    stated = [field for field in _SOURCES.values() if raw.get(field) is not None]
    if word in _SOURCES and stated != [_SOURCES[word]]:
        raise WireError(f"type: {word} needs the object {_SOURCES[word]}, and no other")
    match word:
        case "Static":
            price = decimal(section(raw, "static"), "pricePerHour")
            if not price:
                raise WireError("static.pricePerHour: must be above 0")
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
            return FileFrom(
                path=_matching(one, "path", _PATH), row=optional_text(one, "row") or pool
            )
        case "HTTP":
            return _http(section(raw, "http"))
        case "AWS":
            product = optional_text(section(raw, "aws"), "product")
            return AWSFrom(product=product) if product else AWSFrom()
        case "GCP":
            parts = objects(section(raw, "gcp"), "parts")
            return GCPFrom(
                parts=tuple(
                    sorted(
                        (text(one, "sku"), float(bounded(one, "count", 1, 100_000)))
                        for one in parts
                    )
                )
            )
        case "Azure":
            return AzureFrom(region=text(section(raw, "azure"), "region"))
        case other:
            raise WireError(f"type: {other!r} is no price source this version knows")


def _http(raw: JsonObject) -> HTTPFrom:
    with within("http"):
        metric, pointer = optional_text(raw, "metric"), optional_text(raw, "pointer")
        labels = string_map(raw, "labels")
        if bool(metric) is bool(pointer) or (labels and not metric):
            raise WireError("metric: give either metric, with labels or without, or pointer")
        return HTTPFrom(
            url=_matching(raw, "url", _URL), metric=metric, labels=labels, pointer=pointer
        )


def _matching(raw: JsonObject, field: str, pattern: re.Pattern[str]) -> str:
    stated = text(raw, field)
    if not pattern.fullmatch(stated):
        raise WireError(f"{field}: {quoted(stated)} does not match {pattern.pattern}")
    return stated


_URL: Final = re.compile(r"https?://[^\s/@?#]+([/?][^\s#]*)?")
"""Without a password in it, which would stand in the open."""
_PATH: Final = re.compile(r"[A-Za-z0-9_][-A-Za-z0-9_.]*(/[A-Za-z0-9_][-A-Za-z0-9_.]*)*")
"""Within its folder."""
_SOURCES: Final = {
    "Static": "static",
    "ConfigMap": "configMap",
    "File": "file",
    "HTTP": "http",
    "AWS": "aws",
    "GCP": "gcp",
    "Azure": "azure",
}
"""Words of ``type``, and the object that each needs."""
