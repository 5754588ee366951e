# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""CapacityPool: a source of instances of one type, zone and capacity type."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from ullage.api.base import AGE, Column, KindInfo, Resource, condition_column
from ullage.api.gpurequest import Accelerator
from ullage.api.pricesource import PriceSource
from ullage.api.rules import (
    POOL_CAPACITY_STAYS,
    POOL_SELECTS_NODES,
    POOL_TYPE_STAYS,
    POOL_ZONE_STAYS,
    validations,
)
from ullage.api.spec import Keeps, Spec, SpecReader, Whole, text_map
from ullage.api.words import CapacityType


class AdvisorBandWord(StrEnum):
    """Share of instances interrupted per month, in percent."""

    UNDER_5 = "Under5"
    FROM_5_TO_10 = "From5To10"
    FROM_10_TO_15 = "From10To15"
    FROM_15_TO_20 = "From15To20"
    OVER_20 = "Over20"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPrior(Spec):
    """The provider's published figures for the pool: weak hints that observations replace."""

    advisor_band: AdvisorBandWord | None = None
    """Share of instances interrupted per month, as the AWS Spot Advisor publishes it; absent =
    Ullage assumes one loss in 100 hours."""
    placement_score: Annotated[int, Whole(1, 10)] | None = None
    """Spot placement score: how likely a launch finds capacity. The lower the score, the longer
    Ullage avoids the pool after a failed launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPoolSpec(Spec):
    """Desired state of the pool."""

    type: Annotated[
        str,
        Field(min_length=1, max_length=63, json_schema_extra=validations(POOL_TYPE_STAYS)),
    ]
    """Instance type as the provider spells it, such as `p3.2xlarge`. Immutable."""
    zone: Annotated[
        str,
        Field(min_length=1, max_length=63, json_schema_extra=validations(POOL_ZONE_STAYS)),
    ]
    """Zone as the provider spells it, such as `us-east-1a`. Immutable."""
    capacity_type: Annotated[
        CapacityType, Field(json_schema_extra=validations(POOL_CAPACITY_STAYS))
    ]
    """The provider may take `Spot` instances back at any time; `OnDemand` and `Reserved` instances
    stay. Immutable."""
    accelerator: Accelerator
    """Accelerator key of the devices."""
    gpus_per_instance: Annotated[int, Whole(1, 64)] = 1
    """Devices per instance; prices are per whole instance."""
    node_selector: Annotated[dict[str, str], text_map(16, 63), Keeps(POOL_SELECTS_NODES)]
    """Labels that select the pool's nodes, usually instance type, zone and capacity type. A node
    that matches several pools belongs to the first of them by name."""
    most: Annotated[Annotated[int, Whole(0, 100_000)] | None, Field(alias="max")] = None
    """Maximum number of instances; absent = no limit, 0 = Ullage requests no more."""
    notice_s: Annotated[Annotated[int, Whole(0, 86_400)] | None, Field(alias="noticeSeconds")] = (
        None
    )
    """Warning time before the provider takes an instance back, for notices without a deadline; it
    bounds the grace period of evicted pods. Absent = pods keep their own grace period."""
    price_source: PriceSource
    """Source of the price of one whole instance."""
    prior: PoolPrior | None = None
    """The provider's published figures for the pool."""


read_pool_spec: Final = SpecReader(CapacityPoolSpec)


class CapacityPool(Resource):
    """A source of instances of one type, zone and capacity type.

    Ullage never buys instances. The cluster's autoscaler does, for pods whose affinity names the
    pool.
    """

    info: ClassVar[KindInfo] = KindInfo(
        plural="capacitypools",
        singular="capacitypool",
        short_name="cp",
        namespaced=False,
        columns=(
            Column(name="Type", path=".spec.type", description="Instance type."),
            Column(name="Zone", path=".spec.zone", description="Zone."),
            Column(name="Capacity", path=".spec.capacityType", description="Capacity type."),
            Column(
                name="Nodes",
                path=".status.nodes",
                type="integer",
                description="Ready instances without a termination notice.",
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
                description="Whether new instances are likely to be available.",
                wide=True,
            ),
            Column(
                name="Exposure",
                path=".status.exposureHours",
                description="Hours of observation behind the hazard.",
                wide=True,
            ),
            AGE,
        ),
    )

    kind: Literal["CapacityPool"] = "CapacityPool"
    """Kind of the object."""
    spec: CapacityPoolSpec
    """Desired state of the pool."""
