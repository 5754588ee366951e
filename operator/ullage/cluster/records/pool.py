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

from ullage.api.contract import JsonObject, WireError
from ullage.api.times import rfc3339, seconds
from ullage.api.wire_fields import KEPT, NEEDED, Count, Figure, Flag, Kind, Time, Whole, figures
from ullage.cluster.records.status import Condition
from ullage.engines.capacity.hazard import AdvisorBand
from ullage.engines.capacity.records import CapacityType as CapacityType


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSpec:
    """``spec.priceSource``: which source, and what is said to it; the source reads it."""

    type: str
    options: JsonObject = field(default_factory=dict)
    """The object that is named like the type."""


HAZARD_DIGITS: Final = 4
"""It follows from other figures, which keep nine."""


def _since_the_epoch(raw: JsonObject, field: str) -> float | None:
    return seconds(raw.get(field), field) or None


def _when_lost(raw: JsonObject, field: str) -> float:
    at_s = _since_the_epoch(raw, field)
    if at_s is None:
        raise WireError(f"{field}: missing")
    return at_s


When: TypeAlias = Annotated[float, Kind(_since_the_epoch, rfc3339)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRecord:
    """The newest loss event of a pool."""

    at_s: Annotated[float, Kind(_when_lost, rfc3339), "at", NEEDED]
    """When its newest instance went, seconds since the epoch."""
    nodes: Annotated[Whole, NEEDED]
    """Instances that the pool had before it."""
    lost: Annotated[Whole, NEEDED]
    """How many of them it took so far."""
    open: Annotated[Flag, KEPT] = True
    """False once instances came: what goes from then on is an event of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRecord:
    """How often instances of a pool could be started; what is old counts less and less."""

    succeeded: Annotated[Figure, KEPT] = 0.0
    failed: Annotated[Figure, KEPT] = 0.0
    failed_at_s: Annotated[When | None, "failedAt"] = None
    """When the newest one failed, seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatus:
    """State of a pool as of ``observed_at_s``."""

    price: Figure | None = None
    """Dollars per hour of one instance, the last price that was believed; ``None`` = never one."""
    priced_at_s: Annotated[When | None, "pricedAt"] = None
    hazard_per_hour: Annotated[float, figures(HAZARD_DIGITS)] | None = None
    """Expected loss events per hour in which instances are held; ``None`` = never looked at."""
    exposure_hours: Annotated[Figure, KEPT] = 0.0
    """Pool-hours that were seen; what is old counts less and less."""
    loss_events: Annotated[Figure, KEPT] = 0.0
    """Loss events in them, counted likewise."""
    mean_lost_fraction: Figure | None = None
    """Mean part of the instances that an event took; ``None`` = no event was seen."""
    launch_failures: Annotated[Count, KEPT] = 0
    """Launches that failed since the last one that succeeded."""
    available: Annotated[Flag, KEPT] = True
    """Nothing says that new instances cannot be had now."""
    nodes: Annotated[Count, KEPT] = 0
    """Instances that are held: ready, and under no notice of termination."""
    launches: LaunchRecord = field(default_factory=LaunchRecord)
    last_loss: LossRecord | None = None
    warned_at_s: Annotated[When | None, "warnedAt"] = None
    """When the provider last recommended to leave."""
    observed_at_s: Annotated[Time, "observedAt"] = 0.0
    """Until when everything seen is counted in; 0 = never looked at."""
    observed_generation: Count = 0
    conditions: tuple[Condition, ...] = ()


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
    price_source: PriceSpec | None = None
    """``None`` in what decisions see."""
    advisor_band: AdvisorBand | None = None
    placement_score: int | None = None
    """1 to 10; ``None`` = none is published."""
    status: PoolStatus = field(default_factory=PoolStatus)
