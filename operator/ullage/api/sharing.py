# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a workload lets be done to it on a shared device, and the load that it serves."""

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
    """Whether others may run on the device; with false the workload is alone there, whatever
    share it asked for."""
    resizable: Resizable = Resizable.NEVER
    """A share never changes while a container runs. `Restart`: work whose share or memory no longer
    fits spec.gpu restarts at its checkpoint, replicas of a service one after the other beside their
    replacements, and a job of one pod may be restarted with a smaller share, never below
    minPercent, where that lets another workload in; `Never`: it keeps what it has until its next
    start, and is told so."""
    on_violation: OnViolation = OnViolation.FREEZE_NEIGHBOURS
    """`FreezeNeighbours` stops neighbours without an objective while this one's is broken;
    `Alert` only tells, by condition, Event and metric: no one is stopped or moved for it."""


class MadeRoom(Model):
    """The last time that the job was restarted with a smaller share for the sake of another."""

    time: Time
    """When it was asked to; for ten minutes its starts ask for no more than percent."""
    percent: Percent
    """Share that it was left, in percent of the device."""
    node: AnyName
    """Node of the device on which it keeps that much."""
    gpu: AnyName
    """UUID of the device."""
    beneficiary: Line
    """Namespace and name of the workload that the rest went to."""
    beneficiary_uid: Word
    """UID of that workload; once it is gone, nothing binds the job any more."""


class Load(Model):
    """Requests that the whole service is offered."""

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
