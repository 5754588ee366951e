# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Learns from a pause: the same tenant with its neighbours and without them, seconds apart.

Pure. The label is clean and negative: this class beside those breaks its objective. Tenants or
neighbours without a class, and windows without a step time, are skipped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import islice
from typing import Final

from ullage.api.observations import Observation, ObservedPartner
from ullage_node.model.guard import GuardTenant, ObjectiveWindow, PauseObservation
from ullage_node.model.slices import class_seen_from

MAX_PARTNERS: Final = 16
"""Most neighbours that one observation names."""


def observations(
    learned: PauseObservation, accelerator: str, wall_s: float
) -> tuple[Observation, ...]:
    """The two rows of a pause: with the neighbours (violated), and without (frozen).

    Args:
        learned: the pause's two windows.
        accelerator: key of the device's model.
        wall_s: time of the pause, seconds since the epoch.
    """
    victim = learned.victim
    classes = [tenant.workload_class for tenant in (victim, *learned.neighbours)]
    if not all(classes) or not (learned.beside.step_micros and learned.without.step_micros):
        return ()
    return (
        _row(learned, accelerator, wall_s, frozen=False),
        _row(learned, accelerator, wall_s, frozen=True),
    )


def _row(
    learned: PauseObservation, accelerator: str, wall_s: float, *, frozen: bool
) -> Observation:
    victim = learned.victim
    window = learned.without if frozen else learned.beside
    at_s = int(wall_s - (learned.without.at_s - window.at_s))
    return Observation(
        id=_identity(victim, window, frozen),
        workload_class=victim.workload_class,
        namespace=victim.namespace,
        accelerator=accelerator,
        percent=victim.percent,
        step_micros=window.step_micros,
        at_s=at_s,
        family=victim.family,
        partners=_partners(victim.namespace, learned.remaining if frozen else learned.neighbours),
        solo_step_micros=window.solo_micros,
        latency_micros=window.latency_micros,
        percentile=window.percentile if window.latency_micros else "",
        requests_milli=window.requests_milli,
        max_slowdown_percent=victim.max_slowdown_percent,
        frozen=frozen,
        probation=victim.probation,
        violated=not frozen,
    )


def _partners(namespace: str, neighbours: Iterable[GuardTenant]) -> tuple[ObservedPartner, ...]:
    partners = (
        ObservedPartner(
            workload_class=class_seen_from(
                namespace, neighbour.namespace, neighbour.workload_class
            ),
            percent=neighbour.percent,
        )
        for neighbour in neighbours
    )
    return tuple(islice(partners, MAX_PARTNERS))


def _identity(victim: GuardTenant, window: ObjectiveWindow, frozen: bool) -> str:
    """A name that stays the same when the same row is reported again."""
    text = f"{victim.key.directory}/{window.at_s:.3f}/{frozen}"
    return f"guard-{hashlib.sha256(text.encode()).hexdigest()[:32]}"
