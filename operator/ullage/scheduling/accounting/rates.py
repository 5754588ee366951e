# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Hourly cost of a slice: its part of the price of its node, and of on-demand.

A price that is missing is a reason, never 0. The parts of a node never add up to more than its
price.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from ullage.api.slices import DesiredSlice
from ullage.cluster.records.pool import CapacityType, PoolRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import Placement
from ullage.scheduling.inventory.pool_membership import PoolMembership

Slices = Mapping[str, Sequence[DesiredSlice]]
"""Slices by node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Dollars per hour.

    Attributes:
        per_hour: Actual cost; ``None`` = a price is missing.
        on_demand: The same on on-demand; ``None`` = a price is missing.
        message: The missing price; empty = none is missing.
    """

    per_hour: float | None = 0.0
    on_demand: float | None = 0.0
    message: str = ""


@dataclass(slots=True)
class Rates:
    """Prices of one cycle; every device is looked up once.

    Attributes:
        snapshot: The snapshot.
        slices: Slices of every node by the plan.
        any_price: True when there is a price; without any, no accounts are kept.
    """

    snapshot: Snapshot
    slices: Slices
    any_price: bool
    _membership: PoolMembership
    _by_type: Mapping[tuple[str, str], float]
    _devices: dict[tuple[str, str], Rate] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: Snapshot, slices: Slices) -> Self:
        """Prices of a snapshot."""
        pools = snapshot.pools.values()
        declared = any(
            device_profile.price_per_hour is not None
            for device_profile in snapshot.device_profiles.values()
        )
        return cls(
            snapshot=snapshot,
            slices=slices,
            any_price=declared or any(pool.status.price is not None for pool in pools),
            _membership=PoolMembership.of(snapshot.pools),
            _by_type=reliable_prices(snapshot),
        )

    def held(self, placement: Sequence[Placement]) -> Rate:
        """Total cost of these slices."""
        paid, reliable = 0.0, 0.0
        paid_known = reliable_known = True
        message = ""
        for slice_ in placement:
            device = self.device(slice_.node, slice_.gpu)
            part = slice_.percent / 100
            paid += (device.per_hour or 0.0) * part
            reliable += (device.on_demand or 0.0) * part
            paid_known &= device.per_hour is not None
            reliable_known &= device.on_demand is not None
            message = message or device.message
        return Rate(
            per_hour=paid if paid_known else None,
            # a sum with a missing price has no comparison
            on_demand=reliable if paid_known and reliable_known else None,
            message=message,
        )

    def device(self, node: str, gpu: str) -> Rate:
        """Cost of a whole device."""
        rate = self._devices.get((node, gpu))
        if rate is None:
            rate = self._devices[node, gpu] = self._device(node, gpu)
        return rate

    def _device(self, node: str, gpu: str) -> Rate:
        record, kube = self.snapshot.gpu_nodes.get(node), self.snapshot.nodes.get(node)
        devices = record.devices if record is not None else ()
        model = next((device.model for device in devices if device.uuid == gpu), "")
        pool = self._membership.pool_of(kube.labels) if kube is not None else None
        if pool is None and not model:
            return Rate(per_hour=None, on_demand=None, message=f"node {node} is not known now")
        # a lost or undeclared device does not raise the price of others
        crowd = self._crowd(node, gpu)
        declared = declared_price(self.snapshot, model)
        if pool is None:
            reliable = self._by_type.get(("", model), declared)
            message = "" if declared is not None else f"no price of {model}: {_HOW}"
            return _rate(declared, reliable, crowd, message)
        count = max(1, pool.gpus_per_instance, len(devices))
        price = None if pool.status.price is None else pool.status.price / count
        message = f"CapacityPool {pool.name} has no price yet" if price is None else ""
        return _rate(price, on_demand_price(pool, price, declared, self._by_type), crowd, message)

    def _crowd(self, node: str, gpu: str) -> float:
        """Occupied fraction of a device, as the sum of percents; at least 1 when exceeded."""
        parts = [part for part in self.slices.get(node, ()) if part.gpu == gpu]
        if self.snapshot.policy.max_percent_sum <= 100 and not any(part.lane for part in parts):
            return 1.0
        percents = sum(part.percent for part in parts)
        return max(1.0, percents / 100)


_HOW = "give its DeviceProfile a pricePerHour, or its nodes a CapacityPool"


def _rate(price: float | None, on_demand: float | None, crowd: float, message: str) -> Rate:
    return Rate(
        per_hour=None if price is None else price / crowd,
        on_demand=None if on_demand is None else on_demand / crowd,
        message=message,
    )


def declared_price(snapshot: Snapshot, model: str) -> float | None:
    """Dollars per hour of a device by its DeviceProfile; ``None`` = not declared."""
    profile = snapshot.device_profiles.get(model)
    return profile.price_per_hour if profile is not None else None


def on_demand_price(
    pool: PoolRecord,
    price: float | None,
    declared: float | None,
    reliable: Mapping[tuple[str, str], float],
) -> float | None:
    """Price of a device of a pool's type on on-demand or reserved capacity; ``None`` = unknown.

    Args:
        pool: The pool.
        price: Of one of its devices, dollars per hour.
        declared: Price of the type by its DeviceProfile.
        reliable: On-demand and reserved prices, from ``reliable_prices``.
    """
    if pool.capacity_type is CapacityType.ON_DEMAND:
        return price
    reserved = price if pool.capacity_type is CapacityType.RESERVED else None
    for key in ((pool.instance_type, pool.accelerator), ("", pool.accelerator)):
        if key in reliable:
            return reliable[key]
    return reserved if reserved is not None else declared


def reliable_prices(snapshot: Snapshot) -> dict[tuple[str, str], float]:
    """Price of one device by (instance type, accelerator) and by ("", accelerator).

    On-demand before reserved, the cheapest of a kind; pools without a price are ignored.
    """
    prices: dict[tuple[str, str], float] = {}
    for kind in (CapacityType.ON_DEMAND, CapacityType.RESERVED):
        of_kind: dict[tuple[str, str], float] = {}
        for pool in snapshot.pools.values():
            price = pool.status.price
            if pool.capacity_type is not kind or price is None:
                continue
            each = price / max(1, pool.gpus_per_instance)
            for key in ((pool.instance_type, pool.accelerator), ("", pool.accelerator)):
                of_kind[key] = min(each, of_kind.get(key, each))
        prices = of_kind | prices
    return prices
