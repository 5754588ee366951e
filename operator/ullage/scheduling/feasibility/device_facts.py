# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The figures of devices, as the hard limits of the admission engine ask for them."""

from __future__ import annotations

from dataclasses import fields, replace
from operator import attrgetter
from typing import Final

import numpy as np

from ullage.engines.admission.limits import MIXED, Facts
from ullage.scheduling.feasibility.occupancy import Occupancy
from ullage.scheduling.feasibility.resource_requests import ResourceRequest
from ullage.scheduling.inventory.inventory import Flags, Ints

_COLUMNS: Final = attrgetter(*(column.name for column in fields(Facts)))


def columns(occupancy: Occupancy) -> Facts[Ints]:
    """The figures of all devices; everyone on them has one context."""
    inventory = occupancy.inventory
    return Facts(
        inventory.model,
        inventory.health,
        inventory.modes,
        inventory.memory_mib,
        inventory.overhead_mib,
        inventory.contexts,
        occupancy.sharers,
        occupancy.sharers,
        occupancy.whole,
        occupancy.domain,
        occupancy.percent_used,
        occupancy.memory_used_mib,
        inventory.mps,
        occupancy.loose,
        occupancy.unmeasured,
    )


def picked(facts: Facts[Ints], sites: Ints) -> Facts[Ints]:
    """The figures of some devices."""
    return Facts(*[column[sites] for column in _COLUMNS(facts)])


def figures(occupancy: Occupancy, site: int) -> Facts[int]:
    """The figures of one device; each on it has one context."""
    return Facts(*[column.item(site) for column in _COLUMNS(columns(occupancy))])


def emptied(facts: Facts[Ints]) -> Facts[Ints]:
    """The same devices with no one on them, all healthy: what could ever be."""
    nothing = np.zeros_like(facts.model)
    return replace(
        facts,
        health=nothing,
        sharers=nothing,
        contexts_used=nothing,
        whole=nothing,
        domain=nothing + MIXED,
        percent_used=nothing,
        memory_used=nothing,
        mps=nothing,
        loose=nothing,
        unmeasured=nothing,
    )


def allowed_model(facts: Facts[Ints], request: ResourceRequest) -> Flags:
    """Devices of an accelerator that the request allows, and where its objective makes sense."""
    mask: Flags = np.ones(len(facts.model), dtype=np.bool_)
    if request.accelerators is not None:
        mask = np.isin(facts.model, sorted(request.accelerators))
    for model in request.barred:
        mask &= facts.model != model
    return mask
