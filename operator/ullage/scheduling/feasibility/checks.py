# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The chain of checks on a device: each says by how much the device falls short of a request.

A check holds for the figures of one device and, unchanged, for the columns of all devices at once;
the arithmetic of shares, memory and contexts is the admission engine's, and so is its order. A
positive answer is a refusal; its size tells which device misses by least. The order of the chain
decides which reason a device is counted under.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, Protocol

import numpy as np

from ullage.api.contract import Reason
from ullage.engines.admission import limits
from ullage.engines.admission.limits import N
from ullage.scheduling.feasibility.occupancy import MIXED, Occupancy
from ullage.scheduling.feasibility.resource_requests import ResourceRequest
from ullage.scheduling.inventory.inventory import (
    DEVICE_UNHEALTHY,
    MODE_BIT,
    NODE_UNHEALTHY,
    Flags,
    Ints,
)


@dataclass(frozen=True, slots=True)
class Facts(Generic[N]):
    """Figures of one device, or columns of all; memory in MiB, contexts counted as used."""

    model: N
    health: N
    modes: N
    memory: N
    overhead: N
    contexts: N
    sharers: N
    whole: N
    domain: N
    percent_used: N
    memory_used: N
    mps: N
    loose: N
    unmeasured: N


def node_answers(facts: Facts[N], request: ResourceRequest) -> N:
    """Its node is ready and its agent is heard."""
    return facts.health // NODE_UNHEALTHY


def device_is_healthy(facts: Facts[N], request: ResourceRequest) -> N:
    """Nothing is wrong with the device itself."""
    return facts.health % NODE_UNHEALTHY // DEVICE_UNHEALTHY


def mode_is_offered(facts: Facts[N], request: ResourceRequest) -> N:
    """It can be given in this way."""
    return 1 - facts.modes // MODE_BIT[request.mode] % 2


def device_is_free(facts: Facts[N], request: ResourceRequest) -> N:
    """Whole devices are empty before; a share joins no whole one."""
    return facts.sharers if request.lonely else facts.whole


def shares_are_served(facts: Facts[N], request: ResourceRequest) -> N:
    """What enforces shares there answers."""
    return facts.mps


def everyone_is_held(facts: Facts[N], request: ResourceRequest) -> N:
    """No one on it runs without verified limits: such a tenant may take the whole device."""
    return facts.loose


def everyone_is_measured(facts: Facts[N], request: ResourceRequest) -> N:
    """No one on it is being measured alone; who must be measured first joins no one."""
    if not request.unmeasured:
        return facts.unmeasured
    return facts.unmeasured + facts.sharers * _is_among(facts.model, tuple(request.unmeasured))


def trusts_the_others(facts: Facts[N], request: ResourceRequest) -> N:
    """Everyone on it is of the same trust domain."""
    return facts.sharers * (1 - _is_among(facts.domain, (request.domain,)))


def context_is_left(facts: Facts[N], request: ResourceRequest) -> N:
    """One more container may share it."""
    return limits.contexts_short(facts.sharers, 1, facts.contexts)


def memory_fits(facts: Facts[N], request: ResourceRequest) -> N:
    """The least memory the request needs, and its context, fit beside the others."""
    asked = memory_needed(facts, request, request.min_percent)
    return limits.memory_short_mib(asked, facts.memory - facts.memory_used, facts.overhead)


def memory_needed(facts: Facts[N], request: ResourceRequest, percent: N | int) -> N:
    """Memory that the request takes at a share, its context included, MiB."""
    if request.memory_mib:
        return limits.with_contexts_mib(request.memory_mib, 1, facts.overhead)
    return limits.memory_of_share_mib(facts.memory, percent)


def percent_fits(facts: Facts[N], request: ResourceRequest) -> N:
    """The least share keeps the sum on the device within the policy's limit."""
    if request.exclusive:
        return facts.percent_used
    return limits.percent_short(facts.percent_used, request.min_percent, request.percent_limit)


class Check(Protocol):
    """By how much a device falls short of a request; positive = refused."""

    def __call__(self, facts: Facts[N], request: ResourceRequest, /) -> N:
        """Answer for one device, or for all at once."""
        ...


CHAIN: Final[tuple[tuple[Reason, Check], ...]] = (
    (Reason.NODE_UNHEALTHY, node_answers),
    (Reason.DEVICE_UNHEALTHY, device_is_healthy),
    (Reason.MODE_UNSUPPORTED, mode_is_offered),
    (Reason.NO_CAPACITY, device_is_free),
    (Reason.TRUST_DOMAIN, trusts_the_others),
    (Reason.NEED_PROFILE, everyone_is_measured),
    (Reason.MPS_NOT_READY, shares_are_served),
    (Reason.ENFORCEMENT_MISSING, everyone_is_held),
    (Reason.CONTEXT_LIMIT, context_is_left),
    # before memory: without a limit of its own, memory follows the share and says less
    (Reason.PERCENT_LIMIT, percent_fits),
    (Reason.MEMORY_WOULD_OVERFLOW, memory_fits),
)


def passes(facts: Facts[int], request: ResourceRequest) -> bool:
    """Whether one device passes the chain; the predictor is asked elsewhere."""
    return all(check(facts, request) <= 0 for _, check in CHAIN)


def ceiling(facts: Facts[N], request: ResourceRequest) -> N:
    """Largest share that limits, memory and the request leave, before the predictor is asked."""
    top = request.percent_limit - facts.percent_used
    if not request.memory_mib:
        fits = limits.share_that_fits(facts.memory, facts.memory - facts.memory_used)
        top = limits.smaller(top, fits)
    return limits.smaller(top, request.max_percent)


def columns(occupancy: Occupancy) -> Facts[Ints]:
    """The figures of all devices."""
    inventory = occupancy.inventory
    return Facts(
        inventory.model,
        inventory.health,
        inventory.modes,
        inventory.memory_mib,
        inventory.overhead_mib,
        inventory.contexts,
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
    return Facts(
        facts.model[sites],
        facts.health[sites],
        facts.modes[sites],
        facts.memory[sites],
        facts.overhead[sites],
        facts.contexts[sites],
        facts.sharers[sites],
        facts.whole[sites],
        facts.domain[sites],
        facts.percent_used[sites],
        facts.memory_used[sites],
        facts.mps[sites],
        facts.loose[sites],
        facts.unmeasured[sites],
    )


def figures(occupancy: Occupancy, site: int) -> Facts[int]:
    """The figures of one device."""
    inventory = occupancy.inventory
    return Facts(
        inventory.model.item(site),
        inventory.health.item(site),
        inventory.modes.item(site),
        inventory.memory_mib.item(site),
        inventory.overhead_mib.item(site),
        inventory.contexts.item(site),
        occupancy.sharers.item(site),
        occupancy.whole.item(site),
        occupancy.domain.item(site),
        occupancy.percent_used.item(site),
        occupancy.memory_used_mib.item(site),
        inventory.mps.item(site),
        occupancy.loose.item(site),
        occupancy.unmeasured.item(site),
    )


def emptied(facts: Facts[Ints]) -> Facts[Ints]:
    """The same devices with no one on them, all healthy: what could ever be."""
    nothing = np.zeros_like(facts.model)
    return Facts(
        facts.model,
        nothing,
        facts.modes,
        facts.memory,
        facts.overhead,
        facts.contexts,
        nothing,
        nothing,
        nothing + MIXED,
        nothing,
        nothing,
        nothing,
        nothing,
        nothing,
    )


def allowed_model(facts: Facts[Ints], request: ResourceRequest) -> Flags:
    """Devices of an accelerator that the request allows, and where its objective makes sense."""
    mask: Flags = np.ones(len(facts.model), dtype=np.bool_)
    if request.accelerators is not None:
        mask = np.isin(facts.model, sorted(request.accelerators))
    for model in request.barred:
        mask &= facts.model != model
    return mask


def _is_among(one: N, models: tuple[int, ...]) -> N:
    if isinstance(one, int):
        return int(one in models)
    return np.isin(one, models).astype(np.int64)
