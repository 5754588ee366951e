# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Hourly price of one device of each type: the same for advice and for dividing time.

A CapacityPool with available nodes has precedence over the DeviceProfile: it has the actual price,
the other a declared one. A missing type has no price, which is not a price of 0.
"""

from __future__ import annotations

from ullage.cluster.records.snapshot import Snapshot


def prices_of(snapshot: Snapshot) -> dict[str, float]:
    """Price of one device for an hour by accelerator, of its cheapest pool, else as declared.

    A pool counts that has nodes or can get more. Types without a price are left out.
    """
    declared = {
        name: profile.price_per_hour
        for name, profile in snapshot.device_profiles.items()
        if profile.price_per_hour is not None
    }
    paid: dict[str, float] = {}
    for pool in snapshot.pools.values():
        price = pool.status.price
        if price is None or not (pool.status.available or pool.status.nodes):
            continue
        each = price / max(1, pool.gpus_per_instance)
        paid[pool.accelerator] = min(each, paid.get(pool.accelerator, each))
    return declared | paid
