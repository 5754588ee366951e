# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""CapacityPools as the API shows them."""

from __future__ import annotations

from typing import Final

from ullage.api.contract import JsonObject, WireError, bounded, section, text
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
    CapacityType,
    PoolRecord,
    PriceSpec,
)
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
        most = _within(spec, "max", 0, 100_000)
        with within("priceSource"):
            source = _source(section(spec, "priceSource"))
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
            # a pool that is being deleted gets no more instances
            most=0 if section(raw, "metadata").get("deletionTimestamp") else most,
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


def _source(raw: JsonObject) -> PriceSpec:
    """The type, and the one object of that name; whether there is such a source, prices say."""
    word = text(raw, "type")
    stated = [field for field, value in raw.items() if field != "type" and value is not None]
    if [field.lower() for field in stated] != [word.lower()]:
        raise WireError(f"type: {quoted(word)} needs the object of that name, and no other")
    return PriceSpec(type=word, options=section(raw, stated[0]))
