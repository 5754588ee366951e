# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What an hour of one device of each type costs: the one answer for advice and for dividing time.

A CapacityPool that can be had goes before the DeviceProfile: it says what is paid, the other what
an administrator wrote once. A type that is missing has no price, which is not a price of nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from ullage.cluster.records.pool import PoolRecord
from ullage.cluster.records.snapshot import Snapshot


def prices_of(snapshot: Snapshot) -> dict[str, float]:
    """Price of one device for an hour by accelerator, of its cheapest pool, else as declared.

    A pool counts that has nodes or of which more can be had. Types without a price are left out.
    """
    found = {
        name: profile.price_per_hour
        for name, profile in snapshot.device_profiles.items()
        if profile.price_per_hour is not None
    }
    return found | _of_pools(snapshot.pools)


def _of_pools(pools: Mapping[str, PoolRecord]) -> dict[str, float]:
    found: dict[str, float] = {}
    for pool in pools.values():
        price = pool.status.price
        if price is None or not (pool.status.available or pool.status.nodes):
            continue
        each = price / max(1, pool.gpus_per_instance)
        found[pool.accelerator] = min(each, found.get(pool.accelerator, each))
    return found
