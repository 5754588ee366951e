# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Records that a job made room for another: ``status.madeRoom``, as a record and as JSON.

It binds the job's next start and outlives the operator: without it a job would take back the room
that it gave, and be asked for it again.
"""

from __future__ import annotations

from dataclasses import dataclass

from ullage.api.contract import bounded, text
from ullage.cluster.values.quantity import rfc3339, seconds
from ullage.ports import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeRoom:
    """The last time that a job was restarted with a smaller share for the sake of another.

    ``percent`` is the most that it was left, ``node`` and ``gpu`` the device where it keeps that
    much, ``beneficiary`` (namespace/name) and ``beneficiary_uid`` who got the rest.
    """

    time: float
    percent: int
    node: str
    gpu: str
    beneficiary: str
    beneficiary_uid: str


def made_room_to_wire(made: MadeRoom) -> dict[str, object]:
    """``status.madeRoom`` as the API stores it."""
    return {
        "time": rfc3339(made.time),
        "percent": made.percent,
        "node": made.node,
        "gpu": made.gpu,
        "beneficiary": made.beneficiary,
        "beneficiaryUID": made.beneficiary_uid,
    }


def made_room_from_wire(raw: JsonObject) -> MadeRoom:
    """``status.madeRoom`` as it was read back.

    Raises:
        WireError: a field is missing or malformed.
    """
    return MadeRoom(
        time=seconds(raw.get("time"), "time"),
        percent=bounded(raw, "percent", 1, 100),
        node=text(raw, "node"),
        gpu=text(raw, "gpu"),
        beneficiary=text(raw, "beneficiary"),
        beneficiary_uid=text(raw, "beneficiaryUID"),
    )
