# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""CapacityPool: where instances come from: one type in one zone, bought in one way."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ullage.api.base import (
    AGE,
    Column,
    Count,
    KindInfo,
    LongCount,
    Model,
    Resource,
    Time,
    condition_column,
)
from ullage.api.conditions import Conditions
from ullage.api.gpurequest import Accelerator
from ullage.api.pricesource import PriceSource
from ullage.api.rules import (
    POOL_CAPACITY_STAYS,
    POOL_SELECTS_NODES,
    POOL_TYPE_STAYS,
    POOL_ZONE_STAYS,
    validations,
)
from ullage.api.words import CapacityType

Figure = Annotated[str, Field(max_length=24, pattern=r"^[0-9]{1,9}(\.[0-9]{1,12})?$")]
"""A decimal number that is read back: nine significant digits."""
_Int32 = Field(json_schema_extra={"format": "int32"})


class AdvisorBandWord(StrEnum):
    """Part of the instances that are interrupted per month, in percent."""

    UNDER_5 = "Under5"
    FROM_5_TO_10 = "From5To10"
    FROM_10_TO_15 = "From10To15"
    FROM_15_TO_20 = "From15To20"
    OVER_20 = "Over20"


class PoolPrior(Model):
    """What the provider publishes of the pool: weak hints, until something was seen."""

    advisor_band: AdvisorBandWord | None = None
    """Part of the instances interrupted per month, as the AWS Spot Advisor publishes it; absent =
    one loss in 100 hours is assumed."""
    placement_score: Annotated[int, Field(ge=1, le=10), _Int32] | None = None
    """Spot placement score: how likely a launch finds capacity. The lower it is, the longer the
    pool is left alone after a launch that failed."""


class CapacityPoolSpec(Model):
    """The pool."""

    type: Annotated[
        str,
        Field(min_length=1, max_length=63, json_schema_extra=validations(POOL_TYPE_STAYS)),
    ]
    """Instance type as the provider spells it, such as `p3.2xlarge`. Cannot change."""
    zone: Annotated[
        str,
        Field(min_length=1, max_length=63, json_schema_extra=validations(POOL_ZONE_STAYS)),
    ]
    """Zone as the provider spells it, such as `us-east-1a`. Cannot change."""
    capacity_type: Annotated[
        CapacityType, Field(json_schema_extra=validations(POOL_CAPACITY_STAYS))
    ]
    """`Spot` can be taken away at any time; `OnDemand` and `Reserved` stay. Cannot change."""
    accelerator: Accelerator
    """Accelerator key of the devices."""
    gpus_per_instance: Annotated[int, Field(ge=1, le=64), _Int32] = 1
    """Devices of one instance; prices are of whole instances."""
    node_selector: Annotated[
        dict[str, Annotated[str, Field(max_length=63)]],
        Field(max_length=16, json_schema_extra=validations(POOL_SELECTS_NODES)),
    ]
    """Labels that tell the pool's nodes from all others: usually instance type, zone and capacity
    type. A node with the labels of several pools belongs to the first of them by name."""
    max: Annotated[int, Field(ge=0, le=100000), _Int32] | None = None
    """Most instances that the pool may have; absent = no limit, 0 = nothing more is bought."""
    notice_seconds: Annotated[int, Field(ge=0, le=86400), _Int32] | None = None
    """Warning before an instance is taken away, for notices that do not say when; bounds the grace
    of pods that leave. Absent = they have their own grace."""
    price_source: PriceSource
    """Where the price of one whole instance comes from."""
    prior: PoolPrior | None = None
    """What the provider publishes of the pool."""


class LastLoss(Model):
    """The newest loss event: however many instances it took, it counts once."""

    at: Time
    """When its newest instance went."""
    nodes: Count
    """Instances that the pool had before it."""
    lost: Count
    """How many of them it took."""
    open: bool = True
    """What goes within a quarter hour belongs to the same event; false once instances came."""


class PoolLaunches(Model):
    """How often instances could be started; what is old counts less and less."""

    succeeded: Figure
    """Instances that became ready."""
    failed: Figure
    """Instances that did not within a quarter hour."""
    failed_at: Time | None = None
    """When the newest one failed."""


class CapacityPoolStatus(Model):
    """What is known of the pool; also the memory that a new operator goes on from."""

    observed_generation: LongCount | None = None
    """Generation of the spec that this status speaks of."""
    price: Figure | None = None
    """Price of one instance for an hour, the last one that was believed."""
    priced_at: Time | None = None
    """When that price was valid."""
    hazard_per_hour: Figure | None = None
    """Expected loss events per hour in which the pool has an instance."""
    exposure_hours: Figure | None = None
    """Hours in which the pool had a ready instance; what is old counts less and less."""
    loss_events: Figure | None = None
    """Loss events in those hours, counted likewise; a recommendation to leave is a tenth."""
    mean_lost_fraction: Figure | None = None
    """Mean part of the instances that an event took; absent = none was seen."""
    launch_failures: Count = 0
    """Launches that failed since the last one that succeeded."""
    available: bool = True
    """False while a launch has failed lately, instances are being lost, or the provider
    recommends to leave."""
    nodes: Count = 0
    """Ready instances that no notice of termination stands for."""
    launches: PoolLaunches | None = None
    """How often instances could be started."""
    last_loss: LastLoss | None = None
    """The newest loss event."""
    warned_at: Time | None = None
    """When the provider last recommended to leave."""
    observed_at: Time | None = None
    """Until when everything seen is counted in."""
    conditions: Conditions = ()
    """PriceFresh, HazardKnown; Invalid, when the newest version cannot be read."""


class CapacityPool(Resource):
    """A source of instances: one type in one zone, bought in one way.

    Ullage never buys: the cluster's autoscaler does, for pods whose affinity names the pool.
    """

    info: ClassVar[KindInfo] = KindInfo(
        plural="capacitypools",
        singular="capacitypool",
        short_name="cp",
        namespaced=False,
        columns=(
            Column(name="Type", path=".spec.type", description="Instance type."),
            Column(name="Zone", path=".spec.zone", description="Zone."),
            Column(name="Capacity", path=".spec.capacityType", description="How it is bought."),
            Column(
                name="Nodes",
                path=".status.nodes",
                type="integer",
                description="Ready instances that no notice stands for.",
            ),
            Column(
                name="Price",
                path=".status.price",
                description="Price of one instance for an hour.",
            ),
            Column(
                name="Hazard",
                path=".status.hazardPerHour",
                description="Expected loss events per hour.",
            ),
            condition_column("Fresh", "PriceFresh", "Whether the price is fresh.", wide=True),
            Column(
                name="Available",
                path=".status.available",
                type="boolean",
                description="Whether new instances can be had, as far as is known.",
                wide=True,
            ),
            Column(
                name="Exposure",
                path=".status.exposureHours",
                description="Hours that the hazard was learned from.",
                wide=True,
            ),
            AGE,
        ),
    )

    kind: Literal["CapacityPool"] = "CapacityPool"
    """Kind of the object."""
    spec: CapacityPoolSpec
    """The pool."""
    status: CapacityPoolStatus | None = None
    """What is known of the pool."""
