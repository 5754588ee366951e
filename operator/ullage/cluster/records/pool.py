# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""CapacityPools: where instances come from, and what was learned of each source.

A pool is one instance type in one zone, bought in one way. Its status is also its history: a new
process reads it back and continues from there. Prices are dollars per hour of one whole instance,
never of one device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, TypeAlias

from ullage.api.pricesource import PriceSource
from ullage.api.readers import JsonObject, WireError
from ullage.api.times import rfc3339, seconds
from ullage.api.wire_fields import (
    INT32,
    INT32_COUNT,
    KEPT,
    NEEDED,
    TIME,
    Count,
    Figure,
    Flag,
    Kind,
    Schema,
    Time,
    Whole,
    figures,
)
from ullage.cluster.records.status import BY_TYPE, Condition
from ullage.engines.capacity.hazard import AdvisorBand
from ullage.engines.capacity.records import CapacityType as CapacityType

HAZARD_DIGITS: Final = 4
"""It follows from other figures, which keep nine."""


def _since_the_epoch(raw: JsonObject, field: str) -> float | None:
    return seconds(raw.get(field), field) or None


def _when_lost(raw: JsonObject, field: str) -> float:
    at_s = _since_the_epoch(raw, field)
    if at_s is None:
        raise WireError(f"{field}: missing")
    return at_s


When: TypeAlias = Annotated[float, Kind(_since_the_epoch, rfc3339, schema=TIME)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRecord:
    """The newest loss event; it counts once, however many instances it took."""

    at_s: Annotated[float, Kind(_when_lost, rfc3339, schema=TIME), "at", NEEDED]
    """Time at which its newest instance was lost."""
    nodes: Annotated[Whole, NEEDED, INT32_COUNT]
    """Instances in the pool before the event."""
    lost: Annotated[Whole, NEEDED, INT32_COUNT]
    """Instances that the event took."""
    open: Annotated[Flag, KEPT, Schema(default=True)] = True
    """Losses within 15 minutes belong to the same event; false once instances were added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRecord:
    """Launch counts with exponential decay."""

    succeeded: Annotated[Figure, KEPT, Schema(required=True)] = 0.0
    """Instances that became ready."""
    failed: Annotated[Figure, KEPT, Schema(required=True)] = 0.0
    """Instances that did not become ready within 15 minutes."""
    failed_at_s: Annotated[When | None, "failedAt"] = None
    """Time of the newest failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatus:
    """Observed state of the pool; a new operator resumes from it."""

    observed_generation: Count = 0
    """Generation of the spec that this status reflects."""
    price: Figure | None = None
    """Last accepted price of one instance per hour."""
    priced_at_s: Annotated[When | None, "pricedAt"] = None
    """Time at which that price was valid."""
    hazard_per_hour: Annotated[float, figures(HAZARD_DIGITS)] | None = None
    """Expected loss events per hour with an instance in the pool."""
    exposure_hours: Annotated[Figure, KEPT] = 0.0
    """Hours with a ready instance in the pool; older hours count less."""
    loss_events: Annotated[Figure, KEPT] = 0.0
    """Loss events in those hours, with the same decay; a rebalance recommendation counts as a
    tenth."""
    mean_lost_fraction: Figure | None = None
    """Mean fraction of the instances that an event took; absent = no event observed."""
    launch_failures: Annotated[Count, KEPT, INT32, Schema(default=0)] = 0
    """Failed launches since the last success."""
    available: Annotated[Flag, KEPT, Schema(default=True)] = True
    """False after a recent failed launch, during a loss event, and while the provider recommends
    rebalancing."""
    nodes: Annotated[Count, KEPT, INT32, Schema(default=0)] = 0
    """Ready instances without a termination notice."""
    launching: Annotated[Count, INT32] = 0
    """Instances that are requested or not ready yet; a deleted pool ends after them."""
    launches: LaunchRecord = field(default_factory=LaunchRecord)
    """Launch counts with exponential decay."""
    last_loss: LossRecord | None = None
    """The newest loss event."""
    warned_at_s: Annotated[When | None, "warnedAt"] = None
    """Time of the provider's last rebalance recommendation."""
    observed_at_s: Annotated[Time, "observedAt"] = 0.0
    """Observations up to this time are counted."""
    conditions: Annotated[tuple[Condition, ...], BY_TYPE] = ()
    """PriceFresh, HazardKnown; Invalid, when the newest version cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRecord:
    """A CapacityPool: spec, and what is known of it."""

    name: str
    uid: str = ""
    generation: int = 0
    instance_type: str
    zone: str
    capacity_type: CapacityType
    accelerator: str
    gpus_per_instance: int = 1
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Labels that a node of the pool has; a pool without any has no nodes."""
    most: int | None = None
    """Instances that the pool may have at most; ``None`` = no limit."""
    notice_s: float | None = None
    """Warning before an instance is taken; ``None`` = as is usual for the way it is bought."""
    price_source: PriceSource | None = None
    """``None`` in what decisions see."""
    advisor_band: AdvisorBand | None = None
    placement_score: int | None = None
    """1 to 10; ``None`` = none is published."""
    status: PoolStatus = field(default_factory=PoolStatus)
