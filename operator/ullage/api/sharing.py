# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A workload's sharing rules, and the load that it serves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from ullage.api.rules import ARRIVALS_NOT_NEGATIVE, RATE_POSITIVE
from ullage.api.scalars import decimal_number
from ullage.api.spec import Spec, Switch, is_word
from ullage.api.words import OnViolation, Resizable


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingRules(Spec):
    """Effects that sharing may have on the workload and its neighbours."""

    allow: Switch = True
    """Other workloads may run on the device; false reserves the device for this workload, whatever
    share it requests."""
    resizable: Annotated[bool, is_word(Resizable.RESTART, Resizable.NEVER)] = False
    """A share never changes while a container runs. `Restart`: work whose share or memory no longer
    matches spec.gpu restarts at its checkpoint. Replicas of a service restart one after the other,
    each beside its replacement. A job of one pod may also restart with a smaller share, never below
    minPercent, to let another workload in. `Never`: the work keeps its share until its next start,
    and its status says so."""
    freeze_neighbours: Annotated[
        bool,
        is_word(OnViolation.FREEZE_NEIGHBOURS, OnViolation.ALERT),
        Field(alias="onViolation"),
    ] = True
    """`FreezeNeighbours` freezes neighbours without an objective while this workload's objective is
    broken. `Alert` only reports it by condition, Event and metric: no workload is stopped or
    moved."""

    allow_packing: Switch = False
    """A job of one whole device may share it in its turn, under an objective other than `FIFO`:
    beside one other job that allows it too, of the same trust domain, where both together are
    predicted to gain at least a tenth over taking turns, their `gpu.memory` fits and neither
    objective is at risk. Each then has a part of the device until the turn ends. It needs one
    member, `gpu.mode: Exclusive` with count 1, `gpu.memory` and `spec.checkpoint`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedLoad(Spec):
    """Offered load of the whole service."""

    requests_per_s: Annotated[
        float, decimal_number(RATE_POSITIVE), Field(alias="requestsPerSecond")
    ]
    """Requests per second over all replicas, a fraction in quotes: 40 or "12.5"."""
    cv2: Annotated[float, decimal_number(ARRIVALS_NOT_NEGATIVE)] = 1.0
    """Squared coefficient of variation of the times between requests: "1" for independent
    arrivals, more for bursts, "0" for evenly spaced requests."""
