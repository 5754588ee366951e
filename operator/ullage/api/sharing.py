# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a workload accepts on a shared device, and the load that it serves."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ullage.api.base import AnyName, Line, Model, Percent, Time, Word
from ullage.api.rules import ARRIVALS_NOT_NEGATIVE, RATE_POSITIVE, validations
from ullage.api.words import OnViolation, Resizable

_DECIMAL = r"^[0-9]{1,9}(\.[0-9]{1,6})?$"


class SharingRules(Model):
    """What sharing may do to the workload and to its neighbours."""

    allow: bool = True
    """Whether other workloads may run on the device; false keeps the device to this workload,
    whatever share it requests."""
    resizable: Resizable = Resizable.NEVER
    """A share never changes while a container runs. `Restart`: work whose share or memory no longer
    fits spec.gpu restarts at its checkpoint, replicas of a service one after the other beside their
    replacements, and a job of one pod may be restarted with a smaller share, never below
    minPercent, where that lets another workload in; `Never`: it keeps what it has until its next
    start, and is told so."""
    on_violation: OnViolation = OnViolation.FREEZE_NEIGHBOURS
    """`FreezeNeighbours` stops neighbours without an objective while this one's is broken;
    `Alert` only reports it by condition, Event and metric: no workload is stopped or moved."""


class MadeRoom(Model):
    """The last restart of the job with a smaller share that made room for another workload."""

    time: Time
    """When the restart was requested; for ten minutes its starts request at most percent."""
    percent: Percent
    """Share that the job keeps, in percent of the device."""
    node: AnyName
    """Node of the device on which it keeps that much."""
    gpu: AnyName
    """UUID of the device."""
    beneficiary: Line
    """Namespace and name of the workload that received the rest."""
    beneficiary_uid: Word
    """UID of that workload; when it is gone, the limit no longer applies."""


class Load(Model):
    """Requests that arrive at the whole service."""

    requests_per_second: Annotated[
        str,
        Field(max_length=16, pattern=_DECIMAL, json_schema_extra=validations(RATE_POSITIVE)),
    ]
    """Requests per second of all replicas together, as a quoted decimal number."""
    cv2: Annotated[
        str,
        Field(
            max_length=16, pattern=_DECIMAL, json_schema_extra=validations(ARRIVALS_NOT_NEGATIVE)
        ),
    ] = "1"
    """Squared coefficient of variation of the times between requests: "1" for independent
    arrivals, more for bursts, "0" for a steady clock."""
