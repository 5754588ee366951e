# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The safety condition of a device's lanes, computed from lanes and residents only."""

from __future__ import annotations

from collections.abc import Iterable

from ullage.engines.lanes.state import LaneState, MemoryPlace


class UnsafeLanes(RuntimeError):
    """Memory could run out: a bug of this package. No further grants are allowed."""


def check(lanes: Iterable[LaneState], usable_mib: int) -> None:
    """Check that the sum of P and L fits the device, L >= the largest step, and one step per lane.

    Args:
        lanes: All lanes of a device.
        usable_mib: Memory that persistent memory and lanes may take, MiB.

    Raises:
        UnsafeLanes: the condition fails.
    """
    used = 0
    for lane in lanes:
        used += lane.reserved_mib
        for resident in lane.residents.values():
            used += resident.persistent_mib
            if resident.ephemeral_mib > lane.reserved_mib:
                raise UnsafeLanes(f"lane {lane.lane} is smaller than a step of {resident.name!r}")
            holds = resident.lease is not None
            if resident.memory is MemoryPlace.AWAY or (
                holds and resident.memory is not MemoryPlace.HERE
            ):
                raise UnsafeLanes(
                    f"{resident.name!r} has a place in lane {lane.lane} without memory"
                )
            if holds and resident.ephemeral_mib > lane.size_mib:
                raise UnsafeLanes(
                    f"{resident.name!r} runs in lane {lane.lane}, which has not grown yet"
                )
            if holds != (lane.holder == resident.name):
                raise UnsafeLanes(f"lane {lane.lane} and {resident.name!r} differ on who runs")
        if any(resident.demand.assigned != lane.assigned for resident in lane.residents.values()):
            raise UnsafeLanes(f"lane {lane.lane} has a job that was assigned another one")
        if lane.own and len(lane.residents) > 1:
            raise UnsafeLanes(f"lane {lane.lane} belongs to one job and has more")
        if lane.holder is not None and lane.holder not in lane.residents:
            raise UnsafeLanes(f"lane {lane.lane} is held by a job that is not in it")
    if used > usable_mib:
        raise UnsafeLanes(f"{used} MiB are promised of {usable_mib}")
