# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Lanes in one line, for people."""

from __future__ import annotations

from ullage.engines.lanes.records import (
    Answer,
    Enlarged,
    Granted,
    Joined,
    Opened,
    Queued,
    Refusal,
    Refused,
    Turn,
    Waits,
)
from ullage.engines.lanes.state import Resident

_GIB_MIB = 1024
_WHOLE = 100


def gib(amount_mib: float) -> str:
    """MiB as people read them: whole or tenths of GiB, MiB below one GiB."""
    if amount_mib < _GIB_MIB:
        return f"{amount_mib:.0f} MiB"
    return f"{amount_mib / _GIB_MIB:.1f}".removesuffix(".0") + " GiB"


def wait_fraction(resident: Resident, now_s: float) -> float:
    """The part of its time in which a resident waited for its lane, from 0 to 1.

    Args:
        resident: Of a lane.
        now_s: The present.
    """
    here_s = now_s - resident.since_s
    return min(1.0, resident.wait_s(now_s) / here_s) if here_s > 0 else 0.0


def resident_line(resident: Resident, node: str, now_s: float) -> str:
    """As ``lane 2 of node-3: 4 GiB resident, waits 7 % of its time``.

    Args:
        resident: Of a lane.
        node: Where the device is.
        now_s: The present.
    """
    waits = wait_fraction(resident, now_s)
    return lane_line(resident.lane, node, resident.persistent_mib, waits)


def lane_line(lane: int, node: str, persistent_mib: float, waits: float) -> str:
    """As ``lane 2 of node-3: 4 GiB resident, waits 7 % of its time``.

    Args:
        lane: Its number.
        node: Where the device is.
        persistent_mib: What stays between steps, MiB.
        waits: The part of its time in which the job waits, from 0 to 1.
    """
    return (
        f"lane {lane} of {node}: {gib(persistent_mib)} resident, "
        f"waits {waits * _WHOLE:.0f} % of its time"
    )


def answer_line(answer: Answer | Turn, node: str) -> str:
    """The answer to a job, with the numbers that say why.

    Args:
        answer: Of the lane table.
        node: Where the device is.
    """
    match answer:
        case Opened() | Joined() | Enlarged():
            how = {Opened: "opened", Joined: "joined", Enlarged: "enlarged"}[type(answer)]
            return (
                f"lane {answer.lane} of {node}, {how}: {gib(answer.persistent_mib)} resident, "
                f"{gib(answer.size_mib)} for its steps"
            )
        case Queued():
            return (
                f"waits for memory of {node}: place {answer.place} of {answer.waiting}, "
                f"{gib(answer.missing_mib)} are missing"
            )
        case Granted():
            return f"runs in lane {answer.lease.lane} of {node}"
        case Waits():
            return f"waits for lane {answer.lane} of {node}, as do {answer.others} others"
        case Refused():
            return _refusal(answer, node)


def _refusal(refused: Refused, node: str) -> str:
    needs, usable = gib(refused.needs_mib), gib(refused.usable_mib)
    match refused.reason:
        case Refusal.EXCEEDS_DEVICE:
            return f"refused by {node}: needs {needs}, the device has {usable}"
        case Refusal.CANNOT_GROW:
            return (
                f"refused by {node}: its step has outgrown its lane, and the {needs} that it "
                f"needs do not fit beside the others in {usable}"
            )
        case Refusal.KNOWN:
            return f"refused by {node}: a job of this name is resident or queued"
        case Refusal.QUEUE_FULL:
            return f"refused by {node}: too many jobs wait for memory"
        case Refusal.UNKNOWN:
            return f"refused by {node}: the job is not resident"
        case Refusal.HOLDS_LEASE:
            return f"refused by {node}: the last step has not ended"
        case Refusal.STUCK:
            return f"refused by {node}: the job was suspended and could not be resumed"
