# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What must hold on a device before anyone asks a predictor: each rule once, each with a number.

Memory and contexts are physics and trust domains are promises, so no forecast may outvote them.
Pure; it must never round in favour of a newcomer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Final

from ullage.api.contract import MpsState, Reason
from ullage.engines.admission import limits
from ullage.engines.admission.limits import memory_of_share_mib
from ullage.engines.admission.records import ClassProfile, Fingerprint, Proposal, Tenant

WHOLE_PERCENT: Final = limits.WHOLE_PERCENT
SHARE_STEP_PERCENT: Final = 10
CONTEXT_OVERHEAD_MIB: Final = 512
"""Memory of one context until a DeviceProfile says it (a default; 300-600 are told)."""
CONTEXT_RESERVE: Final = 4
"""Contexts of an MPS server that are kept back."""
PEAK_MARGIN: Final = 1.05
"""Memory counted for a tenant without a limit, in units of its profile's peak."""

_NAMES: Final = (*(one.name for one in fields(Fingerprint)), "batch", "fixed_s", "scaled_s")
"""Figures of a profile in the order of checking."""
_FIGURES: Final[Callable[[Fingerprint], tuple[float | None, ...]]] = attrgetter(
    *(one.name for one in fields(Fingerprint))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """A tenant that is on a device already, or surely will be.

    ``memory_mib`` ``None`` = in proportion to its share, contexts included; otherwise without
    them. ``enforced``: ``True`` = its limits were verified, ``False`` = they do not hold, ``None``
    = not verified yet, and it counts as one that takes the whole device.
    """

    tenant: Tenant
    memory_mib: int | None = None
    contexts: int = 1
    trust_domain: str = ""
    enforced: bool | None = True
    known: str = ""
    """Accelerator its profile was measured on, "" = not said."""

    @property
    def seen(self) -> Tenant:
        """The tenant as a predictor must see it."""
        if self.enforced is None and self.tenant.percent < WHOLE_PERCENT:
            return self.tenant.at(WHOLE_PERCENT)
        return self.tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class Newcomer:
    """Who wants to join, and between which shares; the tenant's own percent does not count.

    ``memory_mib`` 0 = no limit of its own: 1.05 times the peak of its profile, or else in
    proportion to the share.
    """

    tenant: Tenant
    min_percent: int
    max_percent: int
    memory_mib: int = 0
    contexts: int = 1
    trust_domain: str = ""
    devices: int = 1
    known: str = ""
    """Accelerator its profile was measured on, "" = not said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Facts of one device and who is on it.

    ``contexts`` is how many contexts may be open at once (`usable_contexts` of the server's own
    limit), ``mps`` ``None`` where something else enforces shares, ``steps`` the shares that the
    hardware tells apart ("" = every percent), ``percent_limit`` the most that shares may sum to.
    """

    uuid: str
    accelerator: str
    memory_mib: int
    contexts: int
    context_overhead_mib: int = CONTEXT_OVERHEAD_MIB
    mps: MpsState | None = None
    steps: tuple[int, ...] = ()
    percent_limit: int = WHOLE_PERCENT
    residents: tuple[Resident, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a newcomer may not join, with the number that stands in the way."""

    reason: Reason
    text: str
    binding: str = ""
    """Tenant that it fails for, "" = the device or the newcomer itself."""


def usable_contexts(server_limit: int) -> int:
    """Contexts that tenants may open where the MPS server takes so many."""
    return max(0, server_limit - CONTEXT_RESERVE)


def held_mib(one: Resident, device: Device) -> int:
    """Memory that a resident takes of its device, contexts included."""
    if one.memory_mib is None:
        return memory_of_share_mib(device.memory_mib, one.tenant.percent)
    return limits.with_contexts_mib(one.memory_mib, one.contexts, device.context_overhead_mib)


def free_mib(device: Device) -> int:
    """Memory that no one on a device holds."""
    return device.memory_mib - sum(held_mib(one, device) for one in device.residents)


def asked_mib(newcomer: Newcomer, device: Device, percent: int) -> int:
    """Memory that a newcomer would take at a share, contexts included."""
    own = own_memory_mib(newcomer)
    if own is None:
        return memory_of_share_mib(device.memory_mib, percent)
    return limits.with_contexts_mib(own, newcomer.contexts, device.context_overhead_mib)


def own_memory_mib(newcomer: Newcomer) -> int | None:
    """Memory without contexts that does not depend on the share; ``None`` where it does."""
    if newcomer.memory_mib:
        return newcomer.memory_mib
    profile = newcomer.tenant.profile
    peak = profile.fingerprint.peak_memory_mib if profile else None
    return math.ceil(PEAK_MARGIN * peak) if peak else None


def share_ceiling(newcomer: Newcomer, device: Device) -> int:
    """Largest share that limits, memory and the request leave; may be below the least."""
    used = sum(one.tenant.percent for one in device.residents)
    top = min(newcomer.max_percent, device.percent_limit - used)
    if own_memory_mib(newcomer) is None and device.memory_mib > 0:
        top = min(top, limits.share_that_fits(device.memory_mib, free_mib(device)))
    return top


def proposal_for(newcomer: Newcomer, device: Device) -> Proposal:
    """What a prediction is asked about a device, with the shares that the limits leave."""
    return Proposal(
        place=device.uuid,
        accelerator=device.accelerator,
        residents=tuple(one.seen for one in device.residents),
        newcomer=newcomer.tenant,
        shares=candidate_shares(newcomer, device),
    )


def candidate_shares(newcomer: Newcomer, device: Device) -> tuple[int, ...]:
    """Shares to try on a device, rising, as its hardware rounds them."""
    least, most = newcomer.min_percent, share_ceiling(newcomer, device)
    wanted = shares_between(least, most)
    if not device.steps:
        return wanted
    inside = sorted(step for step in set(device.steps) if least <= step <= most)
    snapped = {max((step for step in inside if step <= p), default=None) for p in wanted}
    return tuple(sorted({*(p for p in snapped if p is not None), *inside[:1]}))


def shares_between(least: int, most: int) -> tuple[int, ...]:
    """Shares to try, rising: every tenth percent, least and most."""
    if most < least:
        return ()
    tenths = range(SHARE_STEP_PERCENT, WHOLE_PERCENT + 1, SHARE_STEP_PERCENT)
    return tuple(sorted({least, most, *(p for p in tenths if least < p < most)}))


def first_refusal(newcomer: Newcomer, device: Device) -> Refusal | None:
    """The first rule that a newcomer breaks on a device, at the least share it would take."""
    return (
        _shares_one(newcomer)
        or impossible_objective(newcomer.tenant)
        or next((found for _, rule in RULES if (found := rule(newcomer, device))), None)
    )


def _shares_one(newcomer: Newcomer) -> Refusal | None:
    if newcomer.devices == 1:
        return None
    return Refusal(
        reason=Reason.MULTI_GPU, text=f"a share of {newcomer.devices} devices; only 1 is shared"
    )


def impossible_objective(tenant: Tenant) -> Refusal | None:
    """An objective that no one keeps, not even alone on a whole device."""
    allowed = tenant.max_slowdown
    if allowed is None or allowed >= 1:
        return None
    return Refusal(
        reason=Reason.SLO_INFEASIBLE,
        text=f"cannot be met even alone: slowdown 1.00x > {allowed:.2f}x",
        binding=tenant.name,
    )


def _trusts(newcomer: Newcomer, device: Device) -> Refusal | None:
    other = next(
        (one for one in device.residents if one.trust_domain != newcomer.trust_domain), None
    )
    if other is None:
        return None
    return Refusal(
        reason=Reason.TRUST_DOMAIN,
        text=(
            f"{other.tenant.name} is of trust domain {other.trust_domain or 'none'!r}, not "
            f"{newcomer.trust_domain or 'none'!r}"
        ),
        binding=other.tenant.name,
    )


def _mps_answers(newcomer: Newcomer, device: Device) -> Refusal | None:
    if device.mps in (None, MpsState.ACTIVE):
        return None
    return Refusal(
        reason=Reason.MPS_NOT_READY, text=f"the MPS server of {device.uuid} is {device.mps}"
    )


def _all_enforced(newcomer: Newcomer, device: Device) -> Refusal | None:
    loose = next((one for one in device.residents if one.enforced is False), None)
    if loose is None:
        return None
    return Refusal(
        reason=Reason.ENFORCEMENT_MISSING,
        text=f"the limits of {loose.tenant.name} do not hold, so it may take the whole device",
        binding=loose.tenant.name,
    )


def _contexts_left(newcomer: Newcomer, device: Device) -> Refusal | None:
    used = sum(one.contexts for one in device.residents)
    short = limits.contexts_short(used, newcomer.contexts, device.contexts)
    if short <= 0:
        return None
    return Refusal(
        reason=Reason.CONTEXT_LIMIT,
        text=(
            f"{newcomer.contexts} contexts beside {used} exceed {device.contexts} on "
            f"{device.uuid} by {short}"
        ),
    )


def _percent_left(newcomer: Newcomer, device: Device) -> Refusal | None:
    used = sum(one.tenant.percent for one in device.residents)
    short = limits.percent_short(used, newcomer.min_percent, device.percent_limit)
    if short <= 0:
        return None
    return Refusal(
        reason=Reason.PERCENT_LIMIT,
        text=(
            f"{newcomer.min_percent} % beside {used} % exceed {device.percent_limit} % on "
            f"{device.uuid} by {short}"
        ),
    )


def _memory_left(newcomer: Newcomer, device: Device) -> Refusal | None:
    free = free_mib(device)
    asked = asked_mib(newcomer, device, newcomer.min_percent)
    contexts = newcomer.contexts * device.context_overhead_mib
    short = limits.memory_short_mib(asked, free, contexts)
    if short <= 0:
        return None
    if asked <= contexts:
        text = (
            f"{newcomer.min_percent} % of {device.memory_mib} MiB is {asked} MiB, less than the "
            f"{contexts} MiB of its contexts; ask for a larger share"
        )
    else:
        text = f"{asked} MiB with contexts, {free} MiB free on {device.uuid}: short of {short} MiB"
    return Refusal(reason=Reason.MEMORY_WOULD_OVERFLOW, text=text)


RULES: Final[tuple[tuple[Reason, Callable[[Newcomer, Device], Refusal | None]], ...]] = (
    (Reason.TRUST_DOMAIN, _trusts),
    (Reason.MPS_NOT_READY, _mps_answers),
    (Reason.ENFORCEMENT_MISSING, _all_enforced),
    (Reason.CONTEXT_LIMIT, _contexts_left),
    # before memory: without a limit of its own, memory follows the share and says less
    (Reason.PERCENT_LIMIT, _percent_left),
    (Reason.MEMORY_WOULD_OVERFLOW, _memory_left),
)
"""What a device must leave free or prove, in the order of asking; searches keep to it too."""


def check_device(device: Device) -> None:
    """Refuse facts that no device can have.

    Raises:
        ValueError: naming the figure.
    """
    _whole(device.memory_mib, f"memory of {device.uuid}", 1)
    _whole(device.contexts, f"contexts of {device.uuid}", 0)
    _whole(device.context_overhead_mib, f"context overhead of {device.uuid}", 0)
    _whole(device.percent_limit, f"percent limit of {device.uuid}", 1)
    for one in device.residents:
        _check_known(one.tenant, one.known, device)
        _check_tenant(one.tenant)
        _share(one.tenant.percent, one.tenant.name)
        _whole(one.contexts, f"contexts of {one.tenant.name}", 0)
        if one.memory_mib is not None:
            _whole(one.memory_mib, f"memory of {one.tenant.name}", 0)


def check_newcomer(newcomer: Newcomer, device: Device) -> None:
    """Refuse a request that no one can mean.

    Raises:
        ValueError: naming the figure.
    """
    _check_known(newcomer.tenant, newcomer.known, device)
    _check_tenant(newcomer.tenant)
    _share(newcomer.min_percent, newcomer.tenant.name)
    _share(newcomer.max_percent, newcomer.tenant.name)
    if newcomer.min_percent > newcomer.max_percent:
        raise ValueError(
            f"{newcomer.tenant.name}: least share {newcomer.min_percent} % is above the most "
            f"{newcomer.max_percent} %"
        )
    _whole(newcomer.memory_mib, f"memory of {newcomer.tenant.name}", 0)
    _whole(newcomer.contexts, f"contexts of {newcomer.tenant.name}", 1)
    _whole(newcomer.devices, f"devices of {newcomer.tenant.name}", 1)


def check_proposal(proposal: Proposal) -> None:
    """Refuse tenants and shares that no prediction can be about.

    Raises:
        ValueError: naming the figure.
    """
    for one in proposal.residents:
        _check_tenant(one)
        _share(one.percent, one.name)
    _check_tenant(proposal.newcomer)
    if not proposal.shares:
        raise ValueError(f"{proposal.newcomer.name}: no share to judge")
    for percent in (proposal.shares[0], proposal.shares[-1]):
        _share(percent, proposal.newcomer.name)


def _check_known(tenant: Tenant, known: str, device: Device) -> None:
    if known and known != device.accelerator:
        raise ValueError(
            f"{tenant.name}: its profile was measured on {known}, this device is "
            f"{device.accelerator}; coefficients never carry over between kinds of device"
        )


def _check_tenant(tenant: Tenant) -> None:
    name = tenant.name
    for what, value in (("utilisation", tenant.utilisation), ("weight", tenant.weight)):
        if not 0 <= value < math.inf:
            raise ValueError(f"{name}: {what} must be a number of at least 0, not {value:g}")
    slo = tenant.max_slowdown
    if slo is not None and not 0 < slo < math.inf:
        raise ValueError(f"{name}: max_slowdown must be a positive number, not {slo:g}")
    if tenant.profile is not None:
        check_profile(tenant.profile)


def check_profile(profile: ClassProfile) -> None:
    """Refuse a profile with figures that no measurement gives.

    Raises:
        ValueError: naming the class and the figure.
    """
    fingerprint = _FIGURES(profile.fingerprint)
    curve = profile.curve
    figures = (*fingerprint, profile.batch, *((curve.fixed_s, curve.scaled_s) if curve else ()))
    for at, value in enumerate(figures):
        if value is not None and not 0 <= value < math.inf:
            raise ValueError(
                f"class {profile.workload_class}: {_NAMES[at]} must be a number of at least 0, not "
                f"{value:g}; measure the class again"
            )


def _share(percent: int, name: str) -> None:
    if not 1 <= percent <= WHOLE_PERCENT:
        raise ValueError(f"{name}: share {percent} % is outside 1..{WHOLE_PERCENT}")


def _whole(value: int, what: str, least: int) -> None:
    if value < least:
        raise ValueError(f"{what} must be at least {least}, not {value}")
