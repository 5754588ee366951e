# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Types of device as a choice between them sees them: how many, how large, at what price.

Nothing here says what is free: a recommendation looks at what there is, placing at what is left.
"""

from __future__ import annotations

from dataclasses import dataclass

from ullage.api.contract import Health
from ullage.cluster.records.snapshot import Snapshot
from ullage.scheduling.inventory.inventory import overhead_mib
from ullage.scheduling.learning.device_prices import prices_of


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceKind:
    """One type of device in the cluster.

    ``devices`` are healthy ones, ``most_on_a_node`` the most of them together; memory is that of
    the smallest, MiB, ``overhead_mib`` what one context costs there.
    """

    accelerator: str
    devices: int = 0
    most_on_a_node: int = 0
    memory_mib: int = 0
    overhead_mib: int = 0
    price_per_hour: float | None = None


def fleet_of(snapshot: Snapshot) -> dict[str, DeviceKind]:
    """Every type that a node reports or a DeviceProfile describes, by key."""
    counts: dict[str, dict[str, int]] = {}
    memory: dict[str, int] = {}
    overhead: dict[str, int] = {}
    for name in sorted(snapshot.gpu_nodes):
        node = snapshot.gpu_nodes[name]
        for device in node.devices:
            if device.health is not Health.HEALTHY or node.retire:
                continue
            here = counts.setdefault(device.model, {})
            here[name] = here.get(name, 0) + 1
            least = memory.get(device.model, device.memory_mib)
            memory[device.model] = min(least, device.memory_mib)
            if device.model not in overhead:
                overhead[device.model] = overhead_mib(snapshot, device)
    prices = prices_of(snapshot)
    found: dict[str, DeviceKind] = {}
    for accelerator in sorted(counts.keys() | snapshot.device_profiles.keys()):
        profile = snapshot.device_profiles.get(accelerator)
        here = counts.get(accelerator, {})
        found[accelerator] = DeviceKind(
            accelerator=accelerator,
            devices=sum(here.values()),
            most_on_a_node=max(here.values(), default=0),
            memory_mib=memory.get(accelerator) or (profile.memory_mib if profile else 0),
            overhead_mib=overhead.get(
                accelerator, profile.context_overhead_mib if profile is not None else 0
            ),
            price_per_hour=prices.get(accelerator),
        )
    return found
