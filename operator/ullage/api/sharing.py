# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A workload's sharing rules, and the load that it serves."""

from __future__ import annotations

from typing import Annotated

from pydantic import StrictInt, StrictStr

from ullage.api.base import Model
from ullage.api.decimals import DecimalNumber
from ullage.api.rules import ARRIVALS_NOT_NEGATIVE, RATE_POSITIVE
from ullage.api.words import OnViolation, Resizable


class SharingRules(Model):
    """How sharing may affect the workload and its neighbours."""

    allow: bool = True
    """Other workloads may run on the device; false reserves the device for this workload, whatever
    share it requests."""
    resizable: Resizable = Resizable.NEVER
    """A share never changes while a container runs. `Restart`: work whose share or memory no longer
    matches spec.gpu restarts at its checkpoint. Replicas of a service restart one after the other,
    each beside its replacement. A job of one pod may also restart with a smaller share, never below
    minPercent, to let another workload in. `Never`: the work keeps its share until its next start,
    and its status says so."""
    on_violation: OnViolation = OnViolation.FREEZE_NEIGHBOURS
    """`FreezeNeighbours` freezes neighbours without an objective while this workload's objective is
    broken. `Alert` only reports it by condition, Event and metric: no workload is stopped or
    moved."""


class TrainingSharing(SharingRules):
    """How sharing may affect the job and its neighbours."""

    allow_packing: bool = False
    """A job of one whole device may share it in its turn, under an objective other than `FIFO`:
    beside one other job that allows it too, of the same trust domain, where both together are
    predicted to gain at least a tenth over taking turns, their `gpu.memory` fits and neither
    objective is at risk. Each then has a part of the device until the turn ends. It needs one
    member, `gpu.mode: Exclusive` with count 1, `gpu.memory` and `spec.checkpoint`."""


class Load(Model):
    """Offered load of the whole service."""

    requests_per_second: Annotated[StrictInt | StrictStr, DecimalNumber(rule=RATE_POSITIVE)]
    """Requests per second over all replicas, a fraction in quotes: 40 or "12.5"."""
    cv2: Annotated[StrictInt | StrictStr, DecimalNumber(rule=ARRIVALS_NOT_NEGATIVE)] = "1"
    """Squared coefficient of variation of the times between requests: "1" for independent
    arrivals, more for bursts, "0" for evenly spaced requests."""
