# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""CapacityPools from the API."""

from __future__ import annotations

from typing import Final

from ullage.api.capacitypool import AdvisorBandWord, PoolPrior, read_pool_spec
from ullage.api.readers import JsonObject, section
from ullage.cluster.codecs.objects import read_meta, within
from ullage.cluster.codecs.status import pool_status_from_wire
from ullage.cluster.records.pool import PoolRecord
from ullage.engines.capacity.hazard import AdvisorBand

BANDS: Final = {
    AdvisorBandWord.UNDER_5: AdvisorBand.UNDER_5,
    AdvisorBandWord.FROM_5_TO_10: AdvisorBand.FROM_5_TO_10,
    AdvisorBandWord.FROM_10_TO_15: AdvisorBand.FROM_10_TO_15,
    AdvisorBandWord.FROM_15_TO_20: AdvisorBand.FROM_15_TO_20,
    AdvisorBandWord.OVER_20: AdvisorBand.OVER_20,
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
    spec = read_pool_spec(section(raw, "spec"))
    prior = spec.prior or PoolPrior()
    return PoolRecord(
        name=meta.name,
        uid=meta.uid,
        generation=meta.generation,
        instance_type=spec.type,
        zone=spec.zone,
        capacity_type=spec.capacity_type,
        accelerator=spec.accelerator,
        gpus_per_instance=spec.gpus_per_instance,
        node_selector=spec.node_selector,
        # a pool that is being deleted gets no more instances
        most=0 if section(raw, "metadata").get("deletionTimestamp") else spec.most,
        notice_s=spec.notice_s,
        price_source=spec.price_source,
        advisor_band=BANDS[prior.advisor_band] if prior.advisor_band else None,
        placement_score=prior.placement_score,
        status=status,
    )
