# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Lanes in one line of text."""

from __future__ import annotations

from ullage.engines.lanes.state import LaneResident

_GIB_MIB = 1024
_WHOLE = 100


def gib(amount_mib: float) -> str:
    """Human-readable MiB: whole or tenths of GiB, MiB below one GiB."""
    if amount_mib < _GIB_MIB:
        return f"{amount_mib:.0f} MiB"
    return f"{amount_mib / _GIB_MIB:.1f}".removesuffix(".0") + " GiB"


def wait_fraction(resident: LaneResident, now_s: float) -> float:
    """The fraction of its time for which a resident waited for its lane, from 0 to 1.

    Args:
        resident: Of a lane.
        now_s: The current time.
    """
    here_s = now_s - resident.since_s
    return min(1.0, resident.wait_s(now_s) / here_s) if here_s > 0 else 0.0


def lane_line(lane: int, node: str, persistent_mib: float, waits: float) -> str:
    """Text such as ``lane 2 of node-3: 4 GiB resident, waits 7 % of its time``.

    Args:
        lane: Its number.
        node: Node of the device.
        persistent_mib: Memory kept between steps, MiB.
        waits: The fraction of its time for which the job waits, from 0 to 1.
    """
    return (
        f"lane {lane} of {node}: {gib(persistent_mib)} resident, "
        f"waits {waits * _WHOLE:.0f} % of its time"
    )
